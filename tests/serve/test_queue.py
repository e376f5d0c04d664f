"""One answer at a time: who waits, who is refused, who leaves, and what a client that waits is sent."""

from __future__ import annotations

import pytest

from localspec.core.events import Loading
from localspec.serve.engine import STARTING
from tests.serve.test_answers import SCRIPT, TEXT
from tests.support.asgi_client import Call
from tests.support.scripted_engine import READY, ScriptedEngine
from tests.support.site import Stage, stage


async def lined_up(world: Stage, count: int, **fields: bool) -> list[Call]:
    """So many requests, each of which has joined the queue before the next came."""
    calls = []
    for index in range(count):
        calls.append(world.chat(f"question {index}", **fields))
        joined = index + 1
        await world.until(lambda joined=joined: world.queue.answering + world.queue.waiting == joined)
    return calls


def slow(*scripts: object) -> ScriptedEngine:
    """An engine that has loaded, and plays the answers when it is permitted."""
    engine = ScriptedEngine(*(scripts or [SCRIPT] * 9), paused=True)  # type: ignore[arg-type]
    engine.permit(1)
    return engine


async def test_answers_come_in_the_order_of_the_requests():
    async with stage(slow()) as world:
        calls = await lined_up(world, 5)
        assert (world.queue.answering, world.queue.waiting) == (1, 4)
        world.engine.permit()
        for call in calls:
            assert (await call.end()).status == 200
        asked = [request.messages[0].content for request in world.engine.requests if request.messages]
        assert asked == [f"question {index}" for index in range(5)]
        assert (world.queue.answering, world.queue.waiting) == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_sixth_is_asked_to_come_back(stream: bool):
    async with stage(slow()) as world:
        calls = await lined_up(world, 5, stream=stream)
        sixth = await world.chat(stream=stream).end()
        assert sixth.status == 429
        assert int(sixth.headers["retry-after"]) > 0
        assert sixth.error["type"] == "rate_limit_error"
        assert sixth.error["position"] == 5
        world.engine.permit()
        for call in calls:
            await call.end()
        assert (await world.chat().end()).status == 200


async def test_where_the_queue_is_full_no_body_is_waited_for():
    async with stage(slow()) as world:
        calls = await lined_up(world, 5)
        sixth = await world.post("/v1/chat/completions", parts=[]).end()
        assert (sixth.status, sixth.error["code"]) == (429, "queue_full")
        assert world.site.bodies.reading == 0
        for call in calls:
            call.leave()


async def test_a_chat_is_let_in_ahead_of_a_full_queue():
    """It is refused for other chats alone, and takes nobody's position."""
    async with stage(slow()) as world:
        calls = await lined_up(world, 5, stream=True)
        chats = []
        for waiting in range(5, 9):
            chats.append(world.chat(f"chat {waiting - 5}", stream=True, ahead=True))
            await world.until(lambda waiting=waiting: world.queue.waiting == waiting)  # type: ignore[misc]
        await chats[0].sees(": queued 1\n\n")
        await calls[4].sees(": queued 8\n\n")
        for refused, position in ((world.chat(ahead=True), 5), (world.chat(), 9)):
            assert (await refused.end()).error["code"] == "queue_full"
            assert refused.error["position"] == position
            assert "One answer is being written and 8 wait" in refused.error["message"]
        world.engine.permit()
        for call in (*calls, *chats):
            assert (await call.end()).text == TEXT
        asked = [request.messages[0].content for request in world.engine.requests if request.messages]
        assert asked == [
            "question 0",
            *(f"chat {index}" for index in range(4)),
            *(f"question {index}" for index in range(1, 5)),
        ]


async def test_a_stream_that_waits_is_sent_its_position_as_a_comment():
    async with stage(slow()) as world:
        first, second, third = await lined_up(world, 3, stream=True)
        await second.sees(": queued 1\n\n")
        await third.sees(": queued 2\n\n")
        world.engine.permit(len(SCRIPT))
        await third.sees(": queued 1\n\n")
        world.engine.permit()
        for call in (first, second, third):
            assert (await call.end()).text == TEXT
        assert "queued" not in first.body.decode()


async def test_the_position_is_repeated_so_that_proxies_keep_the_line():
    async with stage(slow(), ping=0.01) as world:
        _, second = await lined_up(world, 2, stream=True)
        await second.sees(": queued 1\n\n: queued 1\n\n: queued 1\n\n")


@pytest.mark.parametrize("stream", [False, True])
async def test_who_leaves_while_waiting_is_never_asked_for(stream: bool):
    async with stage(slow()) as world:
        first, second, third = await lined_up(world, 3, stream=stream)
        if stream:
            await second.sees(": queued 1")
        second.leave()
        await world.until(lambda: world.queue.waiting == 1)
        world.engine.permit()
        for call in (first, second, third):
            await call.end()
        asked = [request.messages[0].content for request in world.engine.requests if request.messages]
        assert asked == ["question 0", "question 2"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_is_gone_frees_the_engine_within_a_round(stream: bool):
    """Of an endless answer not one event is permitted after the client has left: Done comes because of the cancel."""
    endless = [SCRIPT[0], *SCRIPT[1:-1] * 500, SCRIPT[-1]]
    async with stage(slow(endless, SCRIPT)) as world:
        (call,) = await lined_up(world, 1, stream=stream)
        world.engine.permit(3)
        if stream:
            await call.sees("there")
        call.leave()
        await world.until(lambda: world.queue.answering == 0)
        await call.end()
        assert world.site.totals.answers["cancelled"] == 1
        world.engine.permit()
        assert (await world.chat().end()).status == 200


async def test_a_client_that_leaves_before_the_first_word_frees_the_engine_too():
    async with stage(slow()) as world:
        (call,) = await lined_up(world, 1)
        call.leave()
        await world.until(lambda: world.queue.answering == 0)
        await call.end()


async def test_a_refused_request_keeps_nothing_waiting():
    async with stage(slow()) as world:
        for _ in range(9):
            assert (await world.chat(max_tokens=0).end()).status == 400
        assert (world.queue.answering, world.queue.waiting) == (0, 0)


async def test_while_it_loads_requests_are_refused_as_llama_server_does():
    loading = [Loading("loading weights", 3, 12, eta_s=4.5), READY]
    engine = ScriptedEngine(SCRIPT, opening=loading, paused=True)
    async with stage(engine, loaded=False) as world:
        begun = await world.get("/health").end()
        assert begun.error["progress"]["stage"] == "starting the engine"  # before it has said a word
        engine.permit(1)
        while world.host.progress is STARTING:
            await world.get("/health").end()
        for call in (world.get("/health"), world.chat(), world.chat(stream=True)):
            await call.end()
            assert call.status == 503
            assert (call.error["message"], call.error["type"], call.error["code"]) == (
                "Loading model",
                "unavailable_error",
                503,
            )
            progress = call.error["progress"]
            assert progress == {"stage": "loading weights", "done": 3, "total": 12, "unit": "bytes", "eta_s": 4.5}
        assert (await world.get("/v1/models").end()).json["data"][0]["id"] == "guide"
        engine.permit()
        await world.enters("ready")
        assert (await world.get("/health").end()).json["status"] == "ok"
        assert (await world.chat().end()).status == 200
