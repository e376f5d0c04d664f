"""C4: an engine that is killed. What was written is kept, and the next turn works."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.requests import LoadRequest
from localspec.history import History, NewChat, Writer
from localspec.loading.self_check import config
from localspec.runtime.worker import OPEN_MODEL, EngineProcess
from localspec.tui.app import ChatApp
from localspec.tui.chat.recorder import HistoryRecorder
from localspec.tui.control.failures import DIED
from localspec.tui.keys.key_names import with_keys
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.transcript.markers import Note
from tests.support import failing_gpu
from tests.support.chat_stage import Stage
from tests.support.chats import sound
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = tmp_path_factory.mktemp("models") / "tiny"
    return save_snapshot(name, gpt2_like(), template=CHATML, max_position_embeddings=8192)  # 20 answers fit


@pytest.fixture
def request_(folder: Path) -> LoadRequest:
    """A load whose verdict is remembered, so that no child imports transformers."""
    key = config.fingerprint(json.loads((folder / "config.json").read_text()))
    paths.self_checks_file().write_text(json.dumps({key: 0.0}))
    return LoadRequest.of(str(folder), draft="early-exit:2", k=2, threads=1, quant="fp64")


@asynccontextmanager
async def real_chat(request: LoadRequest, opener: str = OPEN_MODEL) -> AsyncIterator[Stage]:
    sink = Writer()
    app = ChatApp(lambda: EngineProcess(request, opener), recorder=HistoryRecorder(sink, NewChat("tiny")))
    async with app.run_test(size=(80, 24)) as pilot:
        yield Stage(pilot, app, [])
    assert sink.close() is None


def written(chat: ChatScreen, number: int) -> int:
    """Characters of the answer to this question, which may have ended by itself."""
    branch = chat.conversation.branch
    return len(branch[-1].text) if len(branch) == 2 * number + 2 else 0


def notices(chat: ChatScreen) -> set[object]:
    """Where the transcript says something itself: the answers that trouble ended, and lines of its own."""
    return {*chat.query(Note), *(said.id for said in chat.conversation.branch if said.how == "-failed")}


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("warm_engines")
async def test_an_engine_killed_again_and_again_costs_no_message(request_: LoadRequest, kills: int):
    dice, shown = random.Random(0), list[tuple[str, str]]()
    async with real_chat(request_) as stage:
        chat = stage.chat
        for number in range(kills):
            await stage.until(lambda: chat.state.phase == "idle")
            await stage.send(f"question {number}")
            length = dice.randint(1, 30)
            await stage.until(lambda: written(chat, number) >= length)  # noqa: B023
            assert chat.engine.feed is not None
            assert isinstance(chat.engine.feed.engine, EngineProcess)
            assert chat.engine.feed.engine.pid
            before = notices(chat)
            os.kill(chat.engine.feed.engine.pid, signal.SIGKILL)
            await stage.until(lambda: chat.state.phase == "gone")
            await stage.sees("The engine stopped.")
            assert chat.status.state == with_keys(chat, DIED)
            assert len(notices(chat) - before) == 1
            shown += [("user", f"question {number}"), ("assistant", chat.conversation.branch[-1].text)]
            await stage.pilot.press("ctrl+r")
        await stage.until(lambda: chat.state.phase == "idle")
    kept_as_shown(shown)
    print(f"\n{kills} kills after {sum(len(text) for _, text in shown[1::2]):,} characters of answers")


@pytest.mark.slow
@pytest.mark.parametrize("failures", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("warm_engines")
async def test_a_gpu_that_fails_again_and_again_costs_no_message(request_: LoadRequest, failures: int):
    shown = list[tuple[str, str]]()
    async with real_chat(request_, failing_gpu.OPENER) as stage:
        chat = stage.chat
        for number in range(failures):
            await stage.until(lambda: chat.state.phase == "idle")
            before = notices(chat)
            await stage.send(f"question {number}")
            await stage.until(lambda: chat.state.phase == "gone")
            await stage.sees("The GPU failed while answering")
            assert chat.status.state == with_keys(chat, DIED)
            assert len(notices(chat) - before) == 1
            assert written(chat, number)
            shown += [("user", f"question {number}"), ("assistant", chat.conversation.branch[-1].text)]
            await stage.pilot.press("ctrl+r")
        await stage.until(lambda: chat.state.phase == "idle")
    kept_as_shown(shown)


def kept_as_shown(shown: list[tuple[str, str]]) -> None:
    """The history has just these messages, and is sound."""
    with History() as history:
        found = history.latest()
        assert found is not None
        assert [(said.role, said.content) for said in history.open(found.id).branch] == shown
    assert sound(paths.history_file())
