"""C2 and C4: memory that runs out, an engine that is killed. What was written is kept, and the next turn works."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from localspec import admission, paths
from localspec.api import LLM, load
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExit
from localspec.errors import EngineError
from localspec.events import Notice, Step
from localspec.history import History, NewChat, Writer
from localspec.requests import LoadRequest
from localspec.tui.app import ChatApp
from localspec.tui.chat import ChatScreen
from localspec.tui.scribe import Scribe
from localspec.worker import EngineProcess
from tests.chat_stage import Stage
from tests.history_made_here import sound
from tests.models_made_here import save_snapshot
from tests.tokenizers_made_here import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

FULL = 20
FEW = (1, 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = tmp_path_factory.mktemp("models") / "tiny"
    return save_snapshot(name, gpt2_like(), template=CHATML, max_position_embeddings=8192)  # 20 answers fit


@pytest.fixture
def request_(folder: Path) -> LoadRequest:
    """A load whose verdict is remembered, so that no child imports transformers."""
    key = admission.fingerprint(json.loads((folder / "config.json").read_text()))
    paths.admissions_file().write_text(json.dumps({key: 0.0}))
    return LoadRequest(str(folder), "early-exit:2", k="2", threads=1, quant="fp64")


# --- C2


class Failing:
    """Every call goes through until the one that finds no memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
        self.real, self.before = getattr(kind, name), -1
        monkeypatch.setattr(kind, name, lambda *given, **named: self(*given, **named))  # noqa: PLW0108 - a method

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.before -= 1
        if self.before == -1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.real(*given, **named)


@pytest.fixture
def llm(request_: LoadRequest) -> Iterator[LLM]:
    with load(request_.model, draft=request_.draft, k=2, quant="fp64") as opened:
        yield opened


PROMPT = "the quick brown fox"


def text_until_it_fails(llm: LLM) -> str:
    text = ""
    with pytest.raises(EngineError):  # noqa: PT012 - the text so far is the point
        for event in llm.stream(PROMPT, max_tokens=90, temperature=0):
            text += event.text if isinstance(event, Step) else ""
    return text


def rounds() -> Any:
    return pytest.mark.parametrize(
        "round", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in range(1, FULL + 1)]
    )


@rounds()
def test_no_memory_to_verify_in_any_round(llm: LLM, round: int, monkeypatch: pytest.MonkeyPatch):
    whole = llm.generate(PROMPT, max_tokens=90, temperature=0).text
    forward = Failing(monkeypatch, Decoder, "forward")
    llm.generate("another text", max_tokens=2)  # so that the prompt is read again
    forward.before = round
    text = text_until_it_fails(llm)
    assert text or round == 1
    assert whole.startswith(text)
    assert llm.generate(PROMPT, max_tokens=90, temperature=0).text == whole


@rounds()
def test_no_memory_to_draft_in_any_round_costs_the_drafter_and_nothing_else(
    llm: LLM, round: int, monkeypatch: pytest.MonkeyPatch
):
    whole = llm.generate(PROMPT, max_tokens=90, temperature=0).text
    draft = Failing(monkeypatch, EarlyExit, "draft")
    draft.before = round - 1
    events = list(llm.stream(PROMPT, max_tokens=90, temperature=0))
    assert "".join(event.text for event in events if isinstance(event, Step)) == whole
    assert [event.code for event in events if isinstance(event, Notice)] == ["drafter_failed"]
    assert llm.generate(PROMPT, max_tokens=90, temperature=0).text == whole


@rounds()
def test_no_memory_to_read_the_prompt_of_any_turn(llm: LLM, round: int, monkeypatch: pytest.MonkeyPatch):
    forward = Failing(monkeypatch, Decoder, "forward")
    chat, alone = llm.chat(max_tokens=3, temperature=0), llm.chat(max_tokens=3, temperature=0)
    for turn in range(1, round):
        chat.send(str(turn))
    said = list(chat.messages)
    forward.before = 0
    with pytest.raises(EngineError):
        chat.send(str(round))
    assert chat.messages == said, "the turn that failed is taken back"
    answered = chat.send(str(round)).text
    for turn in range(1, round):
        alone.send(str(turn))
    assert alone.send(str(round)).text == answered


# --- C4


@asynccontextmanager
async def real_chat(request: LoadRequest) -> AsyncIterator[Stage]:
    paper = Writer()
    app = ChatApp(lambda: EngineProcess(request), scribe=Scribe(paper, NewChat("tiny")))
    async with app.run_test(size=(80, 24)) as pilot:
        yield Stage(pilot, app, [])
    assert paper.close() is None


def written(chat: ChatScreen, number: int) -> int:
    """Characters of the answer to this question, which may have ended by itself."""
    branch = chat.conversation.branch
    return len(branch[-1].text) if len(branch) == 2 * number + 2 else 0


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
async def test_an_engine_killed_again_and_again_costs_no_message(request_: LoadRequest, kills: int):
    dice, shown = random.Random(0), list[tuple[str, str]]()
    async with real_chat(request_) as stage:
        chat = stage.chat
        for number in range(kills):
            await stage.until(lambda: chat.phase == "idle")
            await stage.send(f"question {number}")
            length = dice.randint(1, 30)
            await stage.until(lambda: written(chat, number) >= length)  # noqa: B023
            assert chat.feed is not None
            assert isinstance(chat.feed.engine, EngineProcess)
            assert chat.feed.engine.pid
            os.kill(chat.feed.engine.pid, signal.SIGKILL)
            await stage.until(lambda: chat.phase == "gone")
            await stage.sees("The engine stopped.")
            shown += [("user", f"question {number}"), ("assistant", chat.conversation.branch[-1].text)]
            await stage.pilot.press("ctrl+r")
        await stage.until(lambda: chat.phase == "idle")
    print(f"\n{kills} kills after {sum(len(text) for _, text in shown[1::2]):,} characters of answers")
    with History() as history:
        found = history.latest()
        assert found is not None
        assert [(said.role, said.content) for said in history.open(found.id).branch] == shown
    assert sound(paths.history_file())
