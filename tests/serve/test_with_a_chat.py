"""Two terminals: curls stream from a server while a chat with the same server goes on, in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from localspec.config.tables import Config
from localspec.core.requests import LoadRequest, SamplingOptions
from localspec.remote.engine import RemoteEngine
from localspec.remote.server import Remote
from localspec.tui.control.tuning import Tuning
from tests.serve.test_in_turn import QUESTIONS, body, curl, text_of
from tests.support.chat_stage import Stage, open_chat
from tests.support.served import PATIENCE, Server

pytestmark = pytest.mark.heavy

GREEDY = SamplingOptions(temperature=0)


class Watched(RemoteEngine):
    """Knows whether it was closed, as the stage asks."""

    @property
    def closed(self) -> bool:
        return self._closed


@asynccontextmanager
async def chat_with(server: Server) -> AsyncIterator[Stage]:
    tuning = Tuning(Config(), load=LoadRequest("served"), name="served", server="served", said=GREEDY)
    async with open_chat(Watched(Remote(server.address, "served")), tuning=tuning) as stage:  # type: ignore[arg-type]
        await stage.ready()
        yield stage


async def test_a_chat_goes_on_between_two_curls(served: Server):
    """One curl is answered first, the chat's question waits behind it, and the other curl behind both."""
    alone = {
        question: served.send("POST", "/v1/chat/completions", body(question)).json["choices"][0]["message"]["content"]
        for question in QUESTIONS
    }
    assert all(alone.values())
    async with chat_with(served) as stage:
        with served.frozen():
            first = curl(served, QUESTIONS[0])
            await stage.until(lambda: served.queue == (1, 0))
            await stage.send(QUESTIONS[0])
            await stage.until(lambda: served.queue == (1, 1))
            second = curl(served, QUESTIONS[1])
            await stage.until(lambda: served.queue == (1, 2))
        printed = [
            await asyncio.to_thread(lambda one=one: one.communicate(timeout=PATIENCE)[0]) for one in (first, second)
        ]
        await stage.until(lambda: stage.turns and stage.turns[-1].role == "assistant")
        await stage.ready()
        answered = stage.turns[-1].content
    assert [text_of(one) for one in printed] == [alone[question] for question in QUESTIONS]
    assert answered.startswith(alone[QUESTIONS[0]])
    assert b": queued 2" in printed[1]
