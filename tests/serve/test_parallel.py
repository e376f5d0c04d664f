"""Several answers at once: who is let in, who waits, a chat ahead of others, and one engine for openai's client."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx2
import msgspec
import pytest
from openai import AsyncOpenAI

from localspec.core.events import AnyEvent, Done, Stats
from localspec.core.requests import GenerateRequest, LoadRequest
from localspec.runtime.worker import EngineProcess
from localspec.serve.app import Served, Site, make_app
from localspec.serve.engine import Host
from localspec.serve.queue import Queue
from localspec.serve.security import AccessRules
from tests.serve.test_answers import SCRIPT, TEXT
from tests.serve.test_queue import lined_up
from tests.support.asgi_client import PATIENCE, Call
from tests.support.models import save_snapshot
from tests.support.scripted_engine import DIED, READY
from tests.support.site import stage
from tests.support.tokenizers import CHATML, gpt2_like


class Conducted:
    """An engine that says what the test says, by the number of a request."""

    def __init__(self, parallel: int) -> None:
        self.requests: list[GenerateRequest] = []
        self.cancelled: list[int] = []
        self.closed = False
        self._said: SimpleQueue[tuple[int | None, AnyEvent] | None] = SimpleQueue()
        self.say(None, msgspec.structs.replace(READY, parallel=parallel))

    def start(self) -> None: ...

    def numbered(self) -> Iterator[tuple[int | None, AnyEvent]]:
        return iter(self._said.get, None)

    def ask(self, request: GenerateRequest) -> int:
        self.requests.append(request)
        return len(self.requests) - 1

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)
        self.say(number, Done("cancelled", Stats(finish_reason="cancelled")))

    def close(self) -> None:
        self.closed = True
        self._said.put(None)

    def permit(self) -> None: ...

    def say(self, number: int | None, *events: AnyEvent) -> None:
        for event in events:
            self._said.put((number, event))

    async def is_asked(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.requests) < count:
                await asyncio.sleep(0.001)

    @property
    def asked(self) -> list[str]:
        return [request.messages[0].content for request in self.requests if request.messages]


@pytest.fixture
def engine() -> Conducted:
    return Conducted(parallel=3)


async def test_as_many_are_answered_at_once_as_there_are_slots_and_the_others_wait(engine: Conducted):
    async with stage(engine) as world:  # type: ignore[arg-type]
        calls = await lined_up(world, 7, stream=True)
        assert (world.queue.answering, world.queue.waiting) == (3, 4)
        await engine.is_asked(3)
        assert engine.asked == ["question 0", "question 1", "question 2"]
        await calls[3].sees(": queued 1\n\n")
        await calls[6].sees(": queued 4\n\n")
        eighth = await world.chat().end()
        assert (eighth.status, eighth.error["code"]) == (429, "queue_full")
        assert "3 answers are being written and 4 wait" in eighth.error["message"]
        assert int(eighth.headers["retry-after"]) > 0
        engine.say(1, *SCRIPT)
        assert (await calls[1].end()).text == TEXT
        await engine.is_asked(4)
        assert engine.asked[3] == "question 3"
        await calls[6].sees(": queued 3\n\n")
        for number in (3, 2, 0):
            engine.say(number, *SCRIPT)
            assert (await calls[number].end()).text == TEXT
        for call in calls[4:]:
            call.leave()
            await call.end()


async def test_who_leaves_stops_its_own_answer_and_no_other(engine: Conducted):
    async with stage(engine) as world:  # type: ignore[arg-type]
        calls = await lined_up(world, 3, stream=True)
        for number in range(3):
            engine.say(number, *SCRIPT[:2])
        for call in calls:
            await call.sees("there")
        calls[1].leave()
        await calls[1].end()
        assert engine.cancelled == [1]
        for number in (2, 0):
            engine.say(number, *SCRIPT[2:])
            assert (await calls[number].end()).text == TEXT
        assert world.queue.answering == 0


async def test_a_chat_goes_ahead_of_others_that_wait_and_not_of_another_chat(engine: Conducted):
    async with stage(engine) as world:  # type: ignore[arg-type]
        await lined_up(world, 5, stream=True)
        for name in ("first", "second"):
            world.chat(f"{name} chat", stream=True, ahead=True)
            waiting = 3 if name == "first" else 4
            await world.until(lambda waiting=waiting: world.queue.waiting == waiting)  # type: ignore[misc]
        for number in range(4):
            engine.say(number, *SCRIPT)
            await engine.is_asked(number + 4)
        await engine.is_asked(7)
        assert engine.asked[3:] == ["first chat", "second chat", "question 3", "question 4"]


async def test_an_engine_that_dies_fails_all_that_it_answers(engine: Conducted):
    again = Conducted(parallel=3)
    async with stage(engine, again) as world:  # type: ignore[arg-type]
        calls = await lined_up(world, 4)
        engine.say(None, DIED)
        for call in calls[:3]:
            assert ((await call.end()).status, call.error["code"]) == (500, "engine_died")
        await again.is_asked(1)
        again.say(0, *SCRIPT)
        assert (await calls[3].end()).status == 200


async def test_health_and_metrics_name_how_many_are_answered_at_once(engine: Conducted):
    async with stage(engine) as world:  # type: ignore[arg-type]
        assert (await world.get("/health").end()).json["parallel"] == 3
        metrics = (await world.get("/metrics").end()).body.decode()
        assert "localspec:answers_parallel 3\n" in metrics


# --- with an engine of a process of its own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML)


class Tiny:
    """A real engine of three slots behind real routes."""

    def __init__(self, folder: Path) -> None:
        self._request = LoadRequest.of(str(folder), draft="early-exit:2", quant="fp64", threads=1, parallel=3)
        self.engines: list[EngineProcess] = []
        self.changes = asyncio.Event()
        self.host = Host(self._make, changed=self.changes.set)
        self.queue = Queue(self.changes.set, lambda: self.host.parallel, waiting=5)
        self.app = make_app(Site(Served("tiny"), self.host, self.queue), AccessRules())

    def _make(self) -> EngineProcess:
        self.engines.append(EngineProcess(self._request, "tests.support.warm:open_verified"))
        return self.engines[-1]

    async def until_ready(self) -> None:
        await self.until(lambda: self.host.state == "ready")

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not reached():
                self.changes.clear()
                await self.changes.wait()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Tiny]:
    world = Tiny(folder)
    world.host.start()
    await world.until_ready()
    try:
        yield world
    finally:
        world.host.close()
        for engine in world.engines:
            engine.close()


def question(number: int) -> dict[str, Any]:
    """Of another length and another way of speculating for each."""
    ways: tuple[dict[str, Any], ...] = ({}, {"spec": "off"}, {"spec": "on", "k": 4})
    return {
        "model": "tiny",
        "messages": [{"role": "user", "content": f"hello there {number} " * (number + 1)}],
        "max_tokens": 6 + 2 * number,
        "temperature": 0.8,
        "seed": number,
        "extra_body": {"localspec": ways[number % 3]},
    }


@pytest.mark.heavy
@pytest.mark.usefixtures("warm_engines", "verified")
async def test_eight_at_once_with_openais_client_are_answered_as_each_alone(folder: Path):
    async with serving(folder) as world:
        transport = httpx2.ASGITransport(world.app)
        async with (
            httpx2.AsyncClient(transport=transport) as line,
            AsyncOpenAI(base_url="http://127.0.0.1/v1", api_key="none", max_retries=0, http_client=line) as client,
        ):

            async def ask(number: int) -> Any:
                return await client.chat.completions.create(**question(number))

            alone = [await ask(number) for number in range(8)]
            at_once = await asyncio.gather(*map(ask, range(8)))
        assert [one.choices for one in at_once] == [one.choices for one in alone]
        modes = [one.model_extra["localspec"]["spec"]["mode"] for one in at_once]
        assert modes == ["auto", "off", "on", "auto", "off", "on", "auto", "off"]
        assert [one.model_extra["localspec"]["stats"]["draft_n"] for one in at_once[1::3]] == [0, 0, 0]


@pytest.mark.heavy
@pytest.mark.usefixtures("warm_engines", "verified")
async def test_a_killed_child_fails_three_answers_and_is_loaded_again(folder: Path):
    async with serving(folder) as world:
        pid = world.engines[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # so that it cannot end its answers first
        calls = [Call(world.app, "POST", "/v1/completions", {"prompt": "a", "stream": True}) for _ in range(3)]
        await world.until(lambda: world.queue.answering == 3)
        os.kill(pid, signal.SIGKILL)
        for call in calls:
            await call.end()
            assert (call.status, call.error["code"]) == (500, "engine_died")
        await world.until_ready()
        call = await Call(world.app, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 3}).end()
        assert call.status == 200
