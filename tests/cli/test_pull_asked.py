"""How a pull is asked for, stopped and gone on with: addresses, drafters, options, other processes, refusals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localspec.cli.pulling import background, session
from localspec.cli.pulling.record import PullRecord
from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.hub import pulls
from localspec.hub.addresses import without_address
from localspec.hub.records import AskFit, AskPair, AskPull, FitFound, PairFound, PullRequest
from tests.cli.test_pull import ARRIVING, Install, answers, hub
from tests.conftest import Program
from tests.support.scripted_hub import COMMIT, GB, ScriptedHub, a_fit, a_plan, a_repository, gated

__all__ = ["answers", "hub"]

ADDRESSES = {
    "https://huggingface.co/org/model": "org/model",
    "http://HuggingFace.co/org/model/?not-for-all#files": "org/model",
    "https://huggingface.co/org/model/tree/v1.0": "org/model@v1.0",
    "https://huggingface.co/org/model/tree/main": "org/model",
    "https://huggingface.co/org/model/tree/refs%2Fpr%2F1": "org/model@refs/pr/1",
    "https://huggingface.co/org/model/blob/main/model-Q4_K_M.gguf": "org/model:model-Q4_K_M.gguf",
    "https://huggingface.co/org/model/resolve/v1/sub/m-00002-of-00003.gguf?download=true": "org/model@v1:sub/m.gguf",
    "https://huggingface.co/org/model/blob/v1/config.json": "org/model@v1",
    "https://huggingface.co/org/model/discussions/3": "org/model",
    "hf.co/org/model": "org/model",
    "hf.co/org/model:Q4_K_M": "org/model:Q4_K_M",
    "huggingface.co/org/model": "org/model",
    "hf:org/model": "org/model",
    "hf:org/model@v1:Q4_K_M": "org/model@v1:Q4_K_M",
    "hf:org/model/file-Q4": "hf:org/model/file-Q4",  # a file on this machine, as `ls` names it
    "org/model": "org/model",
    "./hf.co/org": "./hf.co/org",
    "qwen3:8b": "qwen3:8b",
}


@pytest.mark.parametrize("typed", ADDRESSES)
def test_a_pasted_address_is_the_name_that_it_holds(typed: str):
    assert without_address(typed) == ADDRESSES[typed]
    assert without_address(ADDRESSES[typed]) == ADDRESSES[typed]


@pytest.mark.parametrize(
    "typed",
    [
        "https://example.com/org/model",
        "https://huggingface.co.example.com/org/model",
        "https://huggingface.co@example.com/org/model",
        "https://huggingface.co:443@example.com/org/model",
        "https://huggingface.co/datasets/org/model",
        "https://huggingface.co/org",
        "https://huggingface.co",
    ],
)
def test_an_address_of_another_host_or_page_is_refused_and_nothing_is_asked(
    typed: str, hub: Install, localspec: Program
):
    scripted = hub()
    code, _, err = localspec("pull", typed, "--dry-run")
    assert (code, "Give ORG/NAME, as on huggingface.co." in err, scripted.asked) == (2, True, [])
    with pytest.raises(UsageError):
        without_address(typed)


def test_a_folder_with_the_name_of_a_host_stays_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hf.co" / "org" / "model").mkdir(parents=True)
    assert without_address("hf.co/org/model") == "hf.co/org/model"


def test_every_command_about_models_takes_an_address(hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch):
    scripted = hub()
    localspec("pull", "https://huggingface.co/org/model/tree/v1", "--draft", "hf.co/org/small", "--dry-run")
    assert scripted.asked == [AskPull(PullRequest("org/model", "v1", draft="org/small"))]
    asked = ScriptedHub({AskFit: [[FitFound(a_fit("org/model"))]], AskPair: [[PairFound(())]]}).install(monkeypatch)
    localspec("fit", "hf.co/org/model:Q4_K_M")
    localspec("pair", "https://huggingface.co/org/model", "hf:org/small")
    first, second = (each.request for each in asked.asked if isinstance(each, AskFit | AskPair))
    assert (first.repo, second.target, second.drafter) == ("org/model", "org/model", "org/small")  # type: ignore[union-attr]
    for command in ("show", "rm", "verify-files", "chat", "run"):
        code, _, err = localspec(command, "hf.co/org/model")
        assert (code, "'org/model' is not on this machine" in err) == (3, True)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("localspec", "There is no model 'localspec'. Give ORG/NAME, or a name of the catalogue."),
        ("smolm2-1.7b", "did you mean 'smollm2-1.7b'? Give ORG/NAME, or a name of the catalogue."),
    ],
)
def test_a_name_that_is_none_gets_the_nearest_and_no_advice_that_a_pull_refuses(
    typed: str, said: str, localspec: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # here is a folder with one of the names
    code, _, err = localspec("pull", typed)
    assert (code, said in err) == (3, True)
    assert "built-in" not in err


def test_draft_off_is_none_and_an_early_exit_is_no_download(hub: Install, localspec: Program):
    scripted = hub()
    localspec("pull", "org/model", "--draft", "off", "--dry-run")
    assert scripted.asked == [AskPull(PullRequest("org/model", draft="none"))]
    for draft in ("early-exit", "early-exit:8"):
        code, _, err = localspec("pull", "org/model", "--draft", draft, "--yes")
        assert (code, "An early exit is part of the target" in err) == (2, True)
        assert f"localspec chat org/model --draft {draft}" in err
    assert len(scripted.asked) == 1


def test_the_command_that_goes_on_has_every_option_that_was_given(hub: Install, localspec: Program):
    hub(arrives=[*ARRIVING, KeyboardInterrupt()])  # type: ignore[list-item]
    given = ("--draft", "org/small", "--as", "mine", "--quant", "int8", "--ctx", "512", "--xet", "--wait")
    code, _, err = localspec("pull", "org/model@v1", "--yes", *given)
    said = f"Stopped. What came is kept: 3.0 of 4.0 GB. Go on: localspec pull org/model@v1 {' '.join(given)}\n"
    assert (code, err.endswith(said)) == (130, True)


def test_what_stopped_before_a_byte_came_keeps_nothing(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "sleep", interrupted)
    hub(a_plan(gated(a_repository(), "awaiting"), fit=None))
    code, _, err = localspec("pull", "org/model", "--wait")
    assert (code, err.endswith("Stopped. Go on: localspec pull org/model --wait\n")) == (130, True)


# --- other processes

TAKES = """
from localspec.cli.pulling.record import PullRecord
record = PullRecord("org/model")
held = record.take()
print("held", flush=True)
import time
time.sleep(60)
"""


@pytest.fixture
def downloading() -> Iterator[subprocess.Popen[str]]:
    """Another process that has the right to fetch org/model."""
    with subprocess.Popen(
        [sys.executable, "-c", TAKES], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "held\n"
        yield one
        one.kill()


def test_stop_ends_the_process_that_downloads(localspec: Program, downloading: subprocess.Popen[str]):
    code, _, err = localspec("pull", "--stop", "org/model")
    assert (code, err) == (0, "Stopped. Go on: localspec pull org/model\n")
    assert downloading.wait(10) != 0
    assert not PullRecord("org/model").is_held


def test_stop_says_where_nothing_runs_or_a_chat_is_at_it(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    assert localspec("pull", "--stop", "org/model")[2] == "org/model is not being downloaded.\n"
    assert localspec("pull", "--stop")[0] == 2
    monkeypatch.setattr(pulls, "running", lambda _: True)
    code, _, err = localspec("pull", "--stop", "org/model")
    assert (code, "is being downloaded by a chat. Stop it there: Ctrl+O, Downloads." in err) == (2, True)


def test_ctrl_c_while_another_process_downloads_says_that_it_goes_on(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("localspec.cli.pulling.record.sleep", interrupted)
    record = PullRecord("org/model")
    first = record.take()
    assert first is not None
    record.begin()
    record.add(ARRIVING[1])
    hub()
    code, _, err = localspec("pull", "org/model")
    first.close()
    said = "It goes on downloading in the background (3.0 of 4.0 GB). See it: localspec pull org/model\n"
    assert (code, err.endswith(said)) == (130, True)
    assert "kept" not in err


def test_pull_alone_shows_what_runs_without_a_question(
    hub: Install, answers: Callable[[bool], list[str]], localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    request = PullRequest("org/model", "v1")
    runs = pulls.Unfinished("org/model", COMMIT, GB, 4 * GB, "", 1.0, request, running=True)
    monkeypatch.setattr("localspec.cli.pulling.unfinished.unfinished", lambda: [runs])
    watched: list[str] = []
    monkeypatch.setattr(background, "watch_another", lambda asked, _: watched.append(asked.typed))
    hub()
    asked = answers(False)
    code, out, _ = localspec("pull")
    assert (code, asked, watched) == (0, [], ["org/model@v1"])
    assert "is being downloaded" in out


def test_a_key_for_a_file_that_cannot_be_written_is_refused_before_the_pull(
    hub: Install, localspec: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "file" / "config"))
    scripted = hub()
    code, _, err = localspec("pull", "org/model", "--yes", "--as", "mine")
    assert (code, scripted.asked) == (2, [])
    assert f"{paths.models_file()} cannot be written" in err
