"""The two commands of the README, as they are typed: `localspec pull`, killed or not, then `localspec chat`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.hub import blobs
from localspec.models import hub_cache
from localspec.tui.app import ChatApp
from tests.conftest import Program
from tests.support.chat_stage import Stage
from tests.support.fake_hub import FakeHub
from tests.support.hub_clients import guide

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder")]

NAME = "org/guide"
LOAD = ("--device", "cpu", "--quant", "fp32")
QUESTION = "What is speculative decoding?"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with FakeHub(guide(NAME)) as running:
        for name, value in running.variables(tmp_path / "hf").items():
            monkeypatch.setenv(name, value)
        yield running


def test_chat_opens_on_what_was_pulled_and_answers(
    hub: FakeHub, localspec: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The command's own parser, screen and engine."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "chats"))
    assert localspec("pull", NAME, "--draft", "none", "--yes")[1].endswith(f"Ready. localspec chat {NAME}\n")
    hub.forget()
    answers: list[str] = []

    async def drive(app: ChatApp) -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            stage = Stage(pilot, app, [])
            await stage.sees("guide")
            await stage.ready()
            await stage.send(QUESTION)
            await stage.until(lambda: len(stage.turns) == 2 and stage.chat.state.phase == "idle")
            answers.append(stage.turns[1].content)

    monkeypatch.setattr("localspec.tui.app.no_screen", lambda: "")
    monkeypatch.setattr(ChatApp, "run", lambda app, **_: asyncio.run(drive(app)))
    assert localspec("chat", NAME, *LOAD, "--temperature", "0", "--draft", "early-exit:2")[0] == 0
    assert "draft" in answers[0].lower()
    assert hub.log == (), "the hub is asked nothing"


def test_pull_is_killed_three_times_and_then_comes_to_an_end(hub: FakeHub, localspec: Program):
    """Each start goes on where the last one was killed, and the model answers."""
    for reached in (3_000_000, 7_000_000, 12_000_000):
        before = on_disk()
        hub.switches.hold_after = reached - before
        kill_at(reached)
        assert hub_cache.snapshot(NAME) is None
        assert before < on_disk() <= reached
    hub.switches.hold_after = None
    hub.release()
    assert localspec("pull", NAME, "--draft", "none", "--yes")[0] == 0
    starts = [int(one.range.partition("=")[2].partition("-")[0]) for one in hub.seen("cdn") if one.range]
    assert len([start for start in starts if start > 1_000_000]) == 3, "each start but the first goes on"
    code, out, _ = localspec("run", NAME, QUESTION, *LOAD, "--max-tokens", "8", "--temperature", "0", "--draft", "off")
    assert (code, bool(out.strip())) == (0, True)


def on_disk() -> int:
    """Bytes of the weights' part."""
    return sum(map(blobs.size, blobs.parts(NAME)))


def kill_at(reached: int) -> None:
    """The command in a process of its own, until so many bytes are here and no more come."""
    words = [sys.executable, "-m", "localspec", "pull", NAME, "--draft", "none", "--yes"]
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    ends = time.monotonic() + 60
    while on_disk() < reached * 0.95 and child.poll() is None and time.monotonic() < ends:
        time.sleep(0.02)
    child.kill()
    _, said = child.communicate()
    assert (child.returncode, on_disk() >= reached * 0.95) == (-9, True), said
    while time.monotonic() < ends and held():  # the hub's process ends with its parent
        time.sleep(0.02)


def held() -> bool:
    from localspec.hub import pulls

    return pulls.running(NAME)
