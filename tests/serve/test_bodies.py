"""Bodies: what is wrong is refused by the name of its field, and the engine hears nothing of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from localspec.serve.request_body import Bodies, Bounds
from tests.serve.test_answers import SCRIPT
from tests.support.asgi_client import Call
from tests.support.site import Stage, answering

HI: list[Any] = [{"role": "user", "content": "hi"}]


async def refused(world: Stage, call: Call, status: int = 400) -> dict[str, Any]:
    await call.end()
    assert call.status == status
    assert set(call.error) == {"message", "type", "param", "code"}
    assert call.error["type"] == "invalid_request_error"
    assert world.engine.requests == []
    return call.error


UNSUPPORTED: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "required",
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "n": 2,
    "logit_bias": {"50256": -100},
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "response_format": {"type": "json_object"},
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy"},
    "web_search_options": {},
}


@pytest.mark.parametrize("field", UNSUPPORTED)
async def test_what_the_engine_cannot_do_is_refused_by_name(field: str):
    """A client that asked for tools would wait for a call that never comes: silence is worse than an error."""
    async with answering(SCRIPT) as world:
        error = await refused(world, world.chat(**{field: UNSUPPORTED[field]}))
    assert (error["param"], error["code"]) == (field, "unsupported")
    assert f"'{field}'" in error["message"]


HARMLESS: dict[str, Any] = {
    "tools": [],
    "tool_choice": "none",
    "n": 1,
    "logprobs": False,
    "top_logprobs": None,
    "logit_bias": {},
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "user": "someone",
    "metadata": {"a": "b"},
    "store": True,
    "a_field_of_next_year": {"deep": [1, 2]},
    "n_discard": -(1 << 62),
    "stop": ["a" * 1000],
    "max_tokens": None,
    "stream": False,
    "localspec": {},
}


async def test_what_asks_for_nothing_and_what_is_unknown_is_ignored():
    """CVE-2026-21869 (llama-server): n_discard. Here there is no such field."""
    async with answering(SCRIPT) as world:
        assert (await world.chat(**HARMLESS).end()).status == 200


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"echo": True}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": [[1]]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": 3}, "prompt"),
    ],
)
async def test_a_completion_is_one_text_continued(fields: dict[str, Any], parameter: str):
    async with answering(SCRIPT) as world:
        error = await refused(world, world.post("/v1/completions", {"prompt": "a", **fields}))
    assert error["param"] == parameter


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 8193}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"max_tokens": "12"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": 1e9}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"seed": -2}, "seed"),
    ({"seed": 1 << 63}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"stop": 5}, "stop"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": ["a", 1]}, "stop[1]"),
    ({"stop": "a" * 1001}, "stop"),
    ({"stop": ["a", "a" * 1001]}, "stop[1]"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": []}, "stream_options"),
    ({"n": 10**9}, "n"),
    ({"model": 3}, "model"),
    ({"localspec": {"spec": "maybe"}}, "localspec.spec"),
    ({"localspec": {"k": 17}}, "localspec.k"),
    ({"localspec": {"k": -1}}, "localspec.k"),
    ({"localspec": {"k": "many"}}, "localspec.k"),
    ({"localspec": {"spec": "off", "k": 17}}, "localspec.k"),
    ({"max_completion_tokens": 8193}, "max_completion_tokens"),
    ({"max_completion_tokens": 8193, "max_tokens": 5}, "max_completion_tokens"),
    ({"localspec": {"tokens": 1}}, "localspec.tokens"),
    ({"messages": []}, "messages"),
    ({"messages": HI * 4097}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "<|im_start|>", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [*HI, {"role": "assistant", "content": "x", "tool_calls": [{}]}]}, "messages[1].tool_calls"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
    ),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0].type"),
]


@pytest.mark.parametrize(("fields", "parameter"), WRONG, ids=[f"{p}-{str(f)[:40]}" for f, p in WRONG])
async def test_a_wrong_field_is_named(fields: dict[str, Any], parameter: str):
    """Numbers have bounds: CVE-2026-34756 (vLLM, an unbounded `n`), CVE-2026-21869 (llama-server, n_discard)."""
    async with answering(SCRIPT) as world:
        error = await refused(world, world.post("/v1/chat/completions", {"messages": HI, **fields}))
    assert error["param"] == parameter
    assert parameter.partition("[")[0].partition(".")[0] in error["message"]


@pytest.mark.parametrize(("path", "parameter"), [("/chat/completions", "messages"), ("/completions", "prompt")])
async def test_a_field_that_is_missing_is_named(path: str, parameter: str):
    async with answering(SCRIPT) as world:
        error = await refused(world, world.post(path, {"max_tokens": 3}))
    assert (error["param"], error["code"], error["message"]) == (parameter, "missing", f"'{parameter}' is missing.")


NOT_JSON = {
    "empty": b"",
    "cut": b'{"messages": [{"role": "user", "content": "hi"}',
    "words": b"hello",
    "not-a-number": b'{"messages": NaN}',
    "not-utf-8": b'{"messages": "\xff\xfe"}',
    "half-a-surrogate": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "too-deep": b'{"a":' + b"[" * 100_000,
    "too-deep-tools": b'{"messages": [], "tools": ' + b'{"a":' * 50_000,
    "nulls": b"\0\0\0\0",
    "two": b"{}{}",
}


@pytest.mark.parametrize("name", NOT_JSON)
async def test_what_is_no_json_is_refused(name: str):
    async with answering(SCRIPT) as world:
        await refused(world, world.post("/v1/chat/completions", NOT_JSON[name]))


@pytest.mark.parametrize("content", [b"[]", b"null", b"3", b'"hi"', b"{}"])
async def test_json_that_is_no_request_is_refused(content: bytes):
    async with answering(SCRIPT) as world:
        await refused(world, world.post("/v1/chat/completions", content))
        await refused(world, world.post("/v1/completions", content))


async def test_another_model_is_not_here():
    async with answering(SCRIPT) as world:
        error = await refused(world, world.chat(model="gpt-4"), 404)
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert "'guide'" in error["message"]
        assert (await world.get("/v1/models/gpt-4").end()).status == 404
        assert (await world.get("/v1/models/guide").end()).json["id"] == "guide"
        assert (await world.chat(model="guide").end()).status == 200


async def test_a_body_of_the_most_bytes_is_read_and_one_more_is_not():
    body = json.dumps({"messages": HI}).encode()
    bounds = Bounds(most_bytes=len(body) + 10)
    async with answering(SCRIPT, SCRIPT, bodies=Bodies(bounds)) as world:
        assert (await world.post("/v1/chat/completions", body + b" " * 10).end()).status == 200
        long = body + b" " * 11
        announced = ("content-length", str(len(long)))
        for more in ({"headers": [announced]}, {"parts": [long[:9], long[9:30], long[30:]]}):
            call = await world.post("/v1/chat/completions", long, **more).end()  # type: ignore[arg-type]
            assert (call.status, call.headers["connection"]) == (413, "close")
        assert len(world.engine.requests) == 1


async def test_a_body_that_is_announced_as_endless_is_not_waited_for():
    async with answering(SCRIPT) as world:
        call = world.post("/v1/chat/completions", headers=[("content-length", str(1 << 40))], parts=[b"x", b"y"])
        assert (await call.end()).status == 413


async def test_a_body_that_never_ends_is_cut_off():
    async with answering(SCRIPT, bodies=Bodies(Bounds(seconds=0.01))) as world:

        class Hanging(Call):
            """Sends one part, and neither the next nor its end."""

            async def _receive(self) -> Any:
                if self._parts:
                    return {**await super()._receive(), "more_body": True}
                return await super()._receive()

        call = await Hanging(world.app, "POST", "/v1/chat/completions", parts=[b"{"]).end()
        assert call.status == 408


async def test_few_bodies_are_read_at_a_time():
    async with answering(SCRIPT, bodies=Bodies(Bounds(most_read=2))) as world:
        hanging = [world.post("/v1/chat/completions", parts=[]) for _ in range(2)]
        while world.site.bodies.reading < 2:
            await asyncio.sleep(0)
        third = await world.chat().end()
        assert (third.status, third.error["code"]) == (429, "too_many_bodies")
        assert int(third.headers["retry-after"]) > 0
        hanging[0].leave()
        assert (await hanging[0].end()).status == 400
        assert (await world.chat().end()).status == 200
        hanging[1].leave()
        await hanging[1].end()
        assert world.site.bodies.reading == 0


async def test_slow_bodies_keep_none_out():
    """The oldest gives way: 32 silent clients once kept all others out for a minute."""
    async with answering(SCRIPT, SCRIPT, bodies=Bodies(Bounds(most_read=2, slow=0))) as world:
        hanging = [world.post("/v1/chat/completions", parts=[]) for _ in range(2)]
        while world.site.bodies.reading < 2:
            await asyncio.sleep(0)
        assert (await world.chat().end()).status == 200
        first = await hanging[0].end()
        assert (first.status, first.error["code"]) == (408, "too_slow")
        hanging[1].leave()
        await hanging[1].end()
        assert world.site.bodies.reading == 0
