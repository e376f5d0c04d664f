"""From a name to a chat, as it is typed: `localspec chat` alone, and `localspec pull`, killed, then `localspec chat`.

The built-in model stands for LayerSkip's: it has more layers than the catalogue's exit layer.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.sizes import size_words
from localspec.history import Generation, recall
from localspec.hub import blobs, pulls
from localspec.models import hub_cache
from localspec.tui.app import ChatApp
from tests.conftest import Program
from tests.support.chat_stage import Stage
from tests.support.fake_hub import Account, FakeHub
from tests.support.hub_clients import guide

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder")]

NAME = "facebook/layerskip-llama2-7B"
LOAD = ("--device", "cpu", "--quant", "fp32")
QUESTION = "What is speculative decoding?"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    model = guide(NAME, gated="manual", licence="fair")
    with FakeHub(model, account=Account(may_read=frozenset({NAME}))) as running:
        for name, value in running.variables(tmp_path / "hf").items():
            monkeypatch.setenv(name, value)
        paths.licences_file().unlink(missing_ok=True)  # the state folder is all tests', and none has accepted one
        yield running


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a chat is answered to the question: the command's own parser, screen and engine."""
    given: list[str] = []

    async def drive(app: ChatApp) -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            stage = Stage(pilot, app, [])
            await stage.sees("layerskip-llama2-7B")
            await stage.ready()
            await stage.send(QUESTION)
            await stage.until(lambda: len(stage.turns) == 2 and stage.chat.state.phase == "idle")
            given.append(stage.turns[1].content)

    monkeypatch.setattr("localspec.tui.app.no_screen", lambda: "")
    monkeypatch.setattr(ChatApp, "run", lambda app, **_: asyncio.run(drive(app)))
    return given


def test_chat_alone_asks_pulls_opens_and_answers(
    hub: FakeHub, answers: list[str], localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    """From a name to an answer in one command; the second time nothing is asked, of the user or of the hub."""
    asked: list[str] = []
    monkeypatch.setattr("localspec.cli.questions.interactive", lambda: True)
    monkeypatch.setattr("localspec.cli.questions.answered", lambda question, **_: not asked.append(question))
    code, _, err = localspec("chat", NAME, *LOAD, "--temperature", "0")
    assert code == 0, err
    assert [question.rpartition(". ")[2] for question in asked] == ["Do you accept it?", "Download?"]
    assert "layers 1–8, k 6 (LayerSkip's README); no second model" in err
    assert hub_cache.snapshot(NAME) is not None
    hub.forget()
    assert localspec("chat", NAME, *LOAD, "--temperature", "0")[0] == 0
    assert (len(asked), hub.log) == (2, ())
    assert answers[0] == answers[1]
    assert "draft" in answers[0].lower()


def test_killed_three_times_it_goes_on_chats_at_the_catalogues_layer_and_is_deleted(
    hub: FakeHub, answers: list[str], localspec: Program
):
    """Each start goes on where the last one was killed; what a deletion frees is what the download took."""
    for reached in (3_000_000, 7_000_000, 12_000_000):
        before = on_disk()
        hub.switches.hold_after = reached - before
        kill_at(reached)
        assert hub_cache.snapshot(NAME) is None
        assert before < on_disk() <= reached
    hub.switches.hold_after = None
    hub.release()
    assert localspec("pull", NAME, "--yes")[1].endswith(f"Ready. localspec chat {NAME}\n")
    starts = [int(one.range.partition("=")[2].partition("-")[0]) for one in hub.seen("cdn") if one.range]
    assert len([start for start in starts if start > 1_000_000]) == 3, "each start but the first goes on"
    hub.forget()
    assert localspec("chat", NAME, *LOAD, "--temperature", "0")[0] == 0
    assert hub.log == (), "the hub is asked nothing"
    assert "draft" in answers[0].lower()
    made = last_generation()
    assert (made.target, made.draft) == (NAME, "lookup+early-exit:8"), "the layer of the catalogue that is shipped"
    assert made.stats.by_drafter["early-exit"].drafted > 0
    assert len(made.stats.tested_counts) == 1 + 6, "and its k: the most that a round drafted"
    taken = own_bytes(hub_cache.folder())
    assert taken > 16_000_000
    code, out, _ = localspec("rm", NAME, "--yes")
    assert (code, out.splitlines()[-1]) == (0, f"Freed {size_words(taken)}.")
    assert own_bytes(hub_cache.folder()) < 4096
    assert localspec("run", NAME, QUESTION)[0] == 3, "and is asked for again"


def last_generation() -> Generation:
    """How the newest answer of the history was made."""
    made = recall().branch[-1].generation
    assert made is not None
    return made


def own_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def on_disk() -> int:
    """Bytes of the weights' part."""
    return sum(map(blobs.size, blobs.parts(NAME)))


def kill_at(reached: int) -> None:
    """The command in a process of its own, until so many bytes are here and no more come."""
    words = [sys.executable, "-m", "localspec", "pull", NAME, "--yes"]
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    ends = time.monotonic() + 60
    while on_disk() < reached * 0.95 and child.poll() is None and time.monotonic() < ends:
        time.sleep(0.02)
    child.kill()
    _, said = child.communicate()
    assert (child.returncode, on_disk() >= reached * 0.95) == (-9, True), said
    while time.monotonic() < ends and pulls.running(NAME):  # the hub's process ends with its parent
        time.sleep(0.02)
