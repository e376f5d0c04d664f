"""The engine behind the server: it dies and is loaded again, is unloaded when idle, and ends with the server."""

from __future__ import annotations

import asyncio
from time import time

import pytest

from localspec.core.events import Failure, Loading
from localspec.serve.server import loaded
from tests.serve.test_answers import SCRIPT, TEXT
from tests.serve.test_queue import lined_up, slow
from tests.support.asgi_client import PATIENCE
from tests.support.scripted_engine import READY, ScriptedEngine, answer, step
from tests.support.site import Stage, stage

TOO_LARGE = Failure("does_not_fit", "Not enough memory for guide.", "Try: --quant int8", 5)


def loads_when_permitted() -> ScriptedEngine:
    return ScriptedEngine(SCRIPT, SCRIPT, opening=[Loading("loading weights", 1, 2), READY], paused=True)


async def closes(engine: ScriptedEngine) -> None:
    """Waits until the thread that ends it has."""
    async with asyncio.timeout(PATIENCE):
        while not engine.closed:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_killed_engine_fails_its_answer_and_is_loaded_again(stream: bool):
    again = loads_when_permitted()
    async with stage(slow(), again) as world:
        (call,) = await lined_up(world, 1, stream=stream)
        world.engine.permit(2)
        if stream:
            await call.sees("there")
        world.made[0].die()
        await call.end()
        error = call.events[-1]["error"] if stream else call.error
        assert (call.status, error["code"]) == (200 if stream else 500, "engine_died")
        assert world.told == ["engine_died"]
        assert "loaded again" in error["message"]
        assert (await world.get("/health").end()).status == 503
        assert (await world.chat().end()).status == 503
        again.permit()
        await world.enters("ready")
        assert (await world.get("/health").end()).status == 200
        assert (await world.chat().end()).status == 200


async def test_those_who_wait_are_answered_by_the_next_engine():
    async with stage(slow(), ScriptedEngine(SCRIPT, SCRIPT)) as world:
        first, second, third = await lined_up(world, 3, stream=True)
        world.made[0].die()
        assert (await first.end()).status == 500
        assert (await second.end()).text == TEXT
        assert (await third.end()).text == TEXT
        await closes(world.made[0])
        assert world.host.starts == 2


async def test_while_it_loads_no_body_is_waited_for():
    async with stage(loads_when_permitted(), loaded=False) as world:
        call = await world.post("/v1/chat/completions", parts=[]).end()
        assert (call.status, call.headers["retry-after"]) == (503, "1")


async def test_an_engine_that_dies_idle_is_loaded_again_once():
    """One that dies after every load, without a request, is not loaded for ever: the next request tries."""
    async with stage(ScriptedEngine(SCRIPT), ScriptedEngine(SCRIPT), ScriptedEngine(SCRIPT)) as world:
        world.made[0].die()
        await world.until(lambda: world.host.starts == 2 and world.host.state == "ready")
        world.made[1].die()
        await world.enters("unloaded")
        assert (await world.chat().end()).json["choices"][0]["message"]["content"] == TEXT
        assert world.host.starts == 3


async def test_a_model_that_cannot_be_loaded_at_the_start_is_reported():
    async with stage(ScriptedEngine(opening=[TOO_LARGE]), loaded=False) as world:
        await world.enters("failed")
        assert world.failures == [TOO_LARGE]
        call = await world.get("/health").end()
        assert (call.status, call.error["code"]) == (503, "does_not_fit")


async def test_an_engine_that_cannot_even_start_is_reported():
    class Broken(ScriptedEngine):
        def start(self) -> None:
            raise OSError("no more processes")

    async with stage(Broken(), loaded=False) as world:
        await world.enters("failed")
        assert world.failures[0].code == "engine_died"


async def test_a_model_that_cannot_be_loaded_again_is_tried_by_the_next_request():
    engines = (
        ScriptedEngine(),
        ScriptedEngine(opening=[TOO_LARGE]),
        ScriptedEngine(opening=[TOO_LARGE]),
        ScriptedEngine(SCRIPT),
    )
    async with stage(*engines) as world:
        world.made[0].die()
        await world.enters("failed")
        assert len(world.failures) == 0
        assert world.told == ["engine_died", "does_not_fit"]
        call = await world.chat().end()
        assert (call.status, call.error["code"]) == (503, "does_not_fit")
        assert "--quant int8" in call.error["message"]
        assert world.queue.answering == 0
        assert (await world.chat().end()).status == 200


async def test_an_idle_model_is_unloaded_and_the_next_request_loads_it():
    again = loads_when_permitted()
    async with stage(ScriptedEngine(SCRIPT), again, ttl=0.01) as world:
        await world.enters("unloaded")
        health = await world.get("/health").end()
        assert (health.status, health.json["loaded"]) == (200, False)
        assert world.told == ["unloaded"]
        call = world.chat(stream=True)
        await call.sees(": loading\n\n")
        assert (await world.get("/health").end()).status == 200
        again.permit()
        assert (await call.end()).text == TEXT
        await closes(world.made[0])
        assert world.host.starts == 2


async def test_a_model_that_answers_is_not_unloaded():
    """The time is counted from the end of the answer."""
    async with stage(slow(), ttl=0.01) as world:
        (call,) = await lined_up(world, 1, stream=True)
        world.engine.permit(2)
        await call.sees("there")
        await asyncio.sleep(0.05)
        assert world.host.state == "ready"
        world.engine.permit()
        assert (await call.end()).text == TEXT
        await world.enters("unloaded")


async def test_it_says_until_when_it_stays_and_what_it_takes():
    """As `ps` lists it; nothing is unloaded while it answers, and one that is unloaded takes nothing."""
    async with stage(slow(), ttl=3600) as world:
        assert world.host.until is not None
        assert 3500 < world.host.until - time() <= 3600
        (call,) = await lined_up(world, 1, stream=True)
        assert world.host.until is None
        world.engine.permit()
        await call.end()
        assert world.host.until is not None
        found = loaded(world.host)
        assert (found["quant"], found["device"], found["context"], found["num_bytes"]) == (
            "int8",
            "cpu",
            8192,
            118 << 20,
        )
    async with stage(ScriptedEngine(SCRIPT), ttl=0.01) as world:
        await world.enters("unloaded")
        assert (world.host.until, loaded(world.host)["num_bytes"]) == (None, 0)


async def test_without_a_time_it_stays():
    async with stage(ScriptedEngine(SCRIPT)) as world:
        await asyncio.sleep(0.05)
        assert world.host.state == "ready"
        assert world.host.until is None


@pytest.mark.parametrize("stream", [False, True])
async def test_the_server_ends_in_the_middle_of_an_answer(stream: bool):
    async with stage(slow()) as world:
        (call,) = await lined_up(world, 1, stream=stream)
        world.engine.permit(2)
        if stream:
            await call.sees("there")
        world.host.close()
        await call.end()
        error = call.events[-1]["error"] if stream else call.error
        assert error["code"] == "engine_stopped"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_server_ends_while_a_request_waits_for_the_model(stream: bool):
    """Once, such a request asked for a load again and again, and held up the server's end."""
    async with stage(ScriptedEngine(SCRIPT), loads_when_permitted(), ttl=0.01) as world:
        await world.enters("unloaded")
        call = world.chat(stream=stream)
        await world.enters("waking")
        world.host.close()
        await call.end()
        error = call.events[-1]["error"] if stream else call.error
        assert error["code"] == "engine_stopped"
        assert call.comments.count("loading") <= 2
        assert (await world.chat().end()).status == 503


async def test_a_cancelled_answer_does_not_stop_the_next():
    async with stage(slow()) as world:
        first, second = await lined_up(world, 2, stream=True)
        world.engine.permit(2)
        await first.sees("there")
        first.leave()
        await world.until(lambda: world.queue.waiting == 0)
        world.engine.permit()
        assert (await second.end()).text == TEXT


async def test_metrics_count_what_was_answered_and_refused():
    world: Stage
    rejected = answer(step("a"), step("b", "c", "d"))
    async with stage(ScriptedEngine(SCRIPT, rejected)) as world:
        await world.chat().end()
        await world.chat().end()
        await world.chat(tools=[{}]).end()
        await world.get("/nothing").end()
        call = await world.get("/metrics").end()
    assert call.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = call.body.decode().splitlines()
    for line in (
        "llamacpp:tokens_predicted_total 9",
        "llamacpp:prompt_tokens_total 24",
        "llamacpp:spec_decode_num_drafts_total 4",
        "llamacpp:spec_decode_num_draft_tokens_total 8",
        "llamacpp:spec_decode_num_accepted_tokens_total 4",
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 3',
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 1',
        "llamacpp:requests_processing 0",
        "llamacpp:requests_deferred 0",
        'localspec:answers_total{finish_reason="stop"} 2',
        'localspec:requests_refused_total{status="400"} 1',
        'localspec:requests_refused_total{status="404"} 1',
        "localspec:engine_starts_total 1",
        "localspec:model_loaded 1",
    ):
        assert line in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
