"""The server on the built-in model, its engine in a child process: the text is plain decoding's (check 22), what was
read is not read again, and a child that is killed is followed by another."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import localspec
from localspec.core.requests import LoadRequest
from localspec.runtime.worker import EngineProcess
from localspec.serve.app import Served, Site, make_app
from localspec.serve.engine import Host, State
from localspec.serve.queue import Queue
from localspec.serve.security import AccessRules
from tests.support.asgi_client import Call

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder", "warm_engines")]

PATIENCE = 120.0  # seconds, of a load on a busy machine
PROMPTS = "Speculative decoding is", "Once upon a time", "Zebra moon, and"
LONG = "A draft is not the answer: the model reads every token of it, and keeps what it would have written itself."
LENGTH = 40
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": LENGTH}


class Guide:
    """Real engines behind real routes."""

    def __init__(self) -> None:
        self.engines: list[EngineProcess] = []
        self.changes = asyncio.Event()
        self.host = Host(self._make, changed=self.changes.set)
        self.site = Site(Served("guide"), self.host, Queue(self.changes.set))
        self.app = make_app(self.site, AccessRules())

    def _make(self) -> EngineProcess:
        self.engines.append(EngineProcess(LoadRequest.of("guide", threads=1)))
        return self.engines[-1]

    async def enters(self, state: State) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.host.state != state:
                self.changes.clear()
                await self.changes.wait()

    async def completes(self, prompt: str, **fields: Any) -> Any:
        call = await Call(self.app, "POST", "/v1/completions", {"prompt": prompt, **GREEDY, **fields}).end()
        assert call.status == 200, call.body
        return call.json


@asynccontextmanager
async def serving() -> AsyncIterator[Guide]:
    world = Guide()
    world.host.start()
    await world.enters("ready")
    try:
        yield world
    finally:
        world.host.close()
        for engine in world.engines:
            engine.close()


async def test_greedy_text_is_that_of_plain_decoding_however_it_is_drafted():
    with localspec.load("guide", draft="off", threads=1) as plain:
        wanted = {prompt: plain.generate(prompt, temperature=0, max_tokens=LENGTH) for prompt in PROMPTS}
    drafted = 0
    async with serving() as world:
        for prompt, result in wanted.items():
            for spec in ({"spec": "on", "k": 4}, {"spec": "off"}, {"spec": "auto"}):
                found = await world.completes(prompt, localspec=spec)
                assert found["choices"][0]["text"] == result.text
                assert found["usage"]["completion_tokens"] == len(result.tokens)
                stats = found["localspec"]["stats"]
                assert stats["draft_n"] >= stats["draft_n_accepted"]
                assert (stats["draft_rounds"] == 0) or spec["spec"] != "off"
                drafted += stats["draft_n_rejected"]
        assert drafted > 0  # else no rejected draft could have been counted
        twice = [await world.completes(LONG), await world.completes(LONG)]
        read = [(one["timings"]["cache_n"], one["timings"]["prompt_n"]) for one in twice]
        assert read == [(0, sum(read[0])), (sum(read[0]) - 1, 1)]
        assert twice[0]["choices"] == twice[1]["choices"]
        assert twice[1]["usage"]["prompt_tokens_details"]["cached_tokens"] == read[1][0]


async def test_a_child_that_is_killed_fails_its_answer_and_another_answers_the_next():
    async with serving() as world:
        before = await world.completes(PROMPTS[0])
        endless = {"prompt": "a", "temperature": 2, "stream": True, "stop": ["\0"]}
        call = Call(world.app, "POST", "/v1/completions", endless)
        await call.sees(": reading ")
        pid = world.engines[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # so that it cannot end its answer first
        os.kill(pid, signal.SIGKILL)
        await call.end()
        assert call.events[-1]["error"]["code"] == "engine_died"
        assert (await Call(world.app, "GET", "/health").end()).status == 503
        await world.enters("ready")
        assert (await world.completes(PROMPTS[0]))["choices"] == before["choices"]
        assert world.engines[1].pid != pid
