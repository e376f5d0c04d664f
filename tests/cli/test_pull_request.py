"""How a pull is asked for, stopped and gone on with: addresses, drafters, options, other processes, refusals."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from localspec.cli.download import background, session
from localspec.cli.download.bar import TransferBar, bar_line
from localspec.cli.download.record import PullRecord
from localspec.cli.io import fitted
from localspec.cli.questions import answered
from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.sizes import rate_words
from localspec.hub import pulls
from localspec.hub.records import AskFit, AskPair, AskPull, FitFound, PairFound, PullRequest
from localspec.models import hub_cache
from localspec.models.addresses import without_address
from localspec.models.catalog import Catalog
from tests.cli.test_pull import ARRIVING, Install, answers, hub
from tests.conftest import Program
from tests.support.scripted_hub import COMMIT, GB, ScriptedHub, a_fit, a_plan, a_repository, gated

__all__ = ["answers", "hub"]
Capture = pytest.CaptureFixture[str]

PAIR = ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B")
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


NAMES = {
    "qwen/qwen3-8b": "Qwen/Qwen3-8B",  # the catalogue's
    "Qwen/Qwen3-8B/": "Qwen/Qwen3-8B",
    "https://huggingface.co/qwen/qwen3-8B/": "Qwen/Qwen3-8B",
    "https://huggingface.co/qwen/qwen3-8B/tree/main/": "Qwen/Qwen3-8B",
    "QWEN/QWEN3-8B@v1": "Qwen/Qwen3-8B@v1",
    "ORG/Half": "org/half",  # whatever of it is in the cache
    "org/half:Q4_K_M": "org/half:Q4_K_M",
    "Org/Half@V1:q4_k_m": "org/half@V1:q4_k_m",
    "Guide": "guide",
    "Qwen3-8B": "qwen3-8b",
    "QWEN3:8b": "qwen3:8b",
    "who/Knows": "who/Knows",
    "who/Knows/": "who/Knows",
    "ollama:Qwen3:8b": "ollama:Qwen3:8b",
    "./org/half/": "./org/half/",
    "": "",
    "a/b/c/": "a/b/c/",
}


@pytest.mark.parametrize("typed", NAMES)
def test_a_name_in_another_case_or_with_a_slash_is_the_one_that_is_known(typed: str):
    hub_cache.kept("org/half").mkdir(parents=True)
    assert Catalog.load().plain_name(typed) == NAMES[typed]
    assert Catalog.load().plain_name(NAMES[typed]) == NAMES[typed]


def test_of_two_names_that_differ_by_case_each_is_its_own():
    for name in ("org/half", "org/HALF"):
        hub_cache.kept(name).mkdir(parents=True)
        assert Catalog.load().plain_name(name) == name


def test_a_folder_that_is_there_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Guide").mkdir()
    (tmp_path / "qwen" / "qwen3-8b").mkdir(parents=True)
    assert [Catalog.load().plain_name(name) for name in ("Guide", "qwen/qwen3-8b")] == ["Guide", "qwen/qwen3-8b"]


def test_every_command_about_models_takes_any_case(hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch):
    scripted = hub()
    localspec("pull", "qwen/qwen3-8b/", "--draft", "qwen/QWEN3-0.6B", "--dry-run")
    assert scripted.asked == [AskPull(PullRequest("Qwen/Qwen3-8B", draft="Qwen/Qwen3-0.6B"))]
    scripts = {AskPull: [[a_plan()]], AskFit: [[FitFound(a_fit("org/model"))]], AskPair: [[PairFound(())]]}
    asked = ScriptedHub(scripts).install(monkeypatch)
    assert localspec("show", "qwen/qwen3-8b/")[0] == 0
    assert asked.asked == [AskPull(PullRequest("Qwen/Qwen3-8B"))]
    localspec("fit", "qwen/qwen3-8b")
    localspec("pair", "qwen/qwen3-8b/", "qwen/QWEN3-0.6B")
    first, second = (each.request for each in asked.asked if isinstance(each, AskFit | AskPair))
    assert (first.repo, second.target, second.drafter) == ("Qwen/Qwen3-8B", *PAIR)  # type: ignore[union-attr]
    for command in ("rm", "verify-files", "chat", "run"):
        code, _, err = localspec(command, "qwen/qwen3-8b/")
        assert (code, "'Qwen/Qwen3-8B' is not on this machine" in err) == (3, True)


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
    scripts = {AskPull: [[a_plan()]], AskFit: [[FitFound(a_fit("org/model"))]], AskPair: [[PairFound(())]]}
    asked = ScriptedHub(scripts).install(monkeypatch)
    assert localspec("show", "hf.co/org/model/tree/v1")[0] == 0
    assert asked.asked == [AskPull(PullRequest("org/model", "v1"))]
    localspec("fit", "hf.co/org/model:Q4_K_M")
    localspec("pair", "https://huggingface.co/org/model", "hf:org/small")
    first, second = (each.request for each in asked.asked if isinstance(each, AskFit | AskPair))
    assert (first.repo, second.target, second.drafter) == ("org/model", "org/model", "org/small")  # type: ignore[union-attr]
    for command in ("rm", "verify-files", "chat", "run"):
        code, _, err = localspec(command, "hf.co/org/model")
        assert (code, "'org/model' is not on this machine" in err) == (3, True)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("localspec", "There is no model 'localspec'. Give ORG/NAME, or a name of the catalogue, such as qwen2.5-7b, "),
        ("smolm2-1.7b", "did you mean 'smollm2-1.7b'? Give ORG/NAME, or a name of the catalogue, such as qwen2.5-7b, "),
    ],
)
def test_a_name_that_is_none_gets_the_nearest_and_no_advice_that_a_pull_refuses(
    typed: str, said: str, localspec: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # here is a folder with one of the names
    code, _, err = localspec("pull", typed)
    assert (code, said in err) == (3, True)
    assert "built-in" not in err


def test_y_is_yes(hub: Install, localspec: Program):
    hub()
    assert localspec("pull", "org/model", "-y")[0] == 0
    code, _, err = localspec("rm", "org/nope", "-y")
    assert (code, "not on this machine" in err) == (3, True)


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
    said = f"Stopped. Progress is kept: 3.0 of 4.0 GB. Go on: localspec pull org/model@v1 {' '.join(given)}\n"
    assert (code, err.endswith(said)) == (130, True)


def test_what_stopped_before_a_byte_came_keeps_nothing(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "sleep", interrupted)
    hub(a_plan(gated(a_repository(), "awaiting"), fit=None))
    code, _, err = localspec("pull", "org/model", "--wait", "--yes")
    assert (code, err.endswith("Stopped. Go on: localspec pull org/model --wait\n")) == (130, True)


# --- other processes

TAKES = """
from localspec.cli.download.record import PullRecord
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

    monkeypatch.setattr("localspec.cli.download.record.sleep", interrupted)
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
    monkeypatch.setattr("localspec.cli.download.unfinished_pulls.unfinished", lambda: [runs])
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


# --- on a terminal


@pytest.mark.parametrize(("typed", "answer"), [("y\n", True), ("\n", True), ("what\nNO\n", False)])
def test_an_answer_is_y_or_n_and_anything_else_is_asked_again(typed: str, answer: bool):
    with CliRunner().isolation(input=typed) as (_, asked, _):
        assert answered("Download?", default=True) == answer
        shown = asked.getvalue().decode()
    assert shown.count("Download? [Y/n]:") == typed.count("\n")
    assert ("Answer y or n." in shown) == (typed.count("\n") > 1)
    assert "nvalid" not in shown


def test_ctrl_c_at_a_question_ends_the_line(monkeypatch: pytest.MonkeyPatch, capsys: Capture):
    def interrupted(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", interrupted)
    with pytest.raises(click.Abort):
        answered("Download?", default=True)
    assert capsys.readouterr().err.endswith("\n")


def test_a_wide_line_is_wrapped_at_words_and_a_command_keeps_a_line_of_its_own():
    line = "  checked: two of two files have the hub's sha256"
    assert fitted(line, 49) == line
    assert fitted(line, 30) == "  checked: two of two files\n    have the hub's sha256"
    gate = "Its page: https://x.y. Go on when they have: localspec pull org/model --wait"
    assert fitted(gate, 30).splitlines()[-1] == "  localspec pull org/model --wait"
    ready = fitted("Ready. localspec chat org/a-long-name --draft org/another", 40)
    assert ready == "Ready.\n  localspec chat org/a-long-name --draft org/another"


def test_the_plan_fits_a_narrow_terminal(hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.cli.io.columns_of_stdout", lambda: 40)
    hub()
    _, out, _ = localspec("pull", "org/model", "--yes")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()).count("4.0 GB in 2 files, 2.00 B parameters, BF16") == 1


def test_a_bar_in_a_window_that_became_narrower_is_erased_whole(monkeypatch: pytest.MonkeyPatch, capsys: Capture):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("localspec.cli.download.bar.get_terminal_size", lambda: os.terminal_size((80, 24)))
    bar = TransferBar()
    bar.show(ARRIVING[1])
    drawn = len(bar_line(ARRIVING[1]))
    monkeypatch.setattr("localspec.cli.download.bar.get_terminal_size", lambda: os.terminal_size((30, 24)))
    bar.wipe()
    assert 60 < drawn < 80
    assert capsys.readouterr().err.endswith("\r\033[2A\033[J")
    bar.wipe()
    assert capsys.readouterr().err == ""


def test_a_slow_rate_has_a_decimal():
    rates = [rate_words(rate) for rate in (92_000_000, 10_000_000, 9_940_000, 1_230_000, 640_000, 92_000)]
    assert rates == ["92 MB/s", "10 MB/s", "9.9 MB/s", "1.2 MB/s", "0.6 MB/s", "92 kB/s"]


def test_while_a_pull_waits_for_a_gate_nothing_else_is_advised(
    hub: Install, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session, "sleep", lambda _: None)
    closed = [a_plan(gated(a_repository(), gate), fit=None) for gate in ("no-request", "awaiting")]
    hub(*closed, a_plan())
    code, out, _ = localspec("pull", "org/model", "--yes", "--wait")
    assert code == 0
    assert "Nothing was downloaded." not in out
    assert "--wait" not in out
    hub(closed[1])
    assert "Go on when they have: localspec pull org/model --wait" in localspec("pull", "org/model", "--yes")[1]


def test_ls_on_a_narrow_terminal_has_two_lines_a_model(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.cli.io.columns_of_stdout", lambda: 40)
    out = localspec("ls")[1]
    assert out == "guide\n  bf16 · 16 MB · fits · layers 1–2 · apache-2.0\n"
    monkeypatch.setattr("localspec.cli.io.columns_of_stdout", lambda: 120)
    assert localspec("ls")[1].startswith("NAME ")


def test_counts_of_checked_files_are_sentences(localspec: Program, tmp_path: Path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    _, out, _ = localspec("verify-files", str(tmp_path / "x.gguf"))
    assert "x.gguf: 0 of 1 file has the hash that is known of it.\n" in out
    code, out, _ = localspec("verify-files", "guide")
    assert code == 0
    assert re.match(r"guide: \d files, which look whole; there is no published hash to compare them with\.\n", out)
