"""What clients read: chunks and objects in OpenAI's shape, llama-server's timings, and localspec's own figures."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from localspec.core.events import Failure, Notice, Ready, Stats, Step
from localspec.core.requests import SamplingOptions, SpecOptions
from localspec.runtime.stats import to_dict
from localspec.serve.app import Served
from tests.support.scripted_engine import READY, ScriptedEngine, answer, step
from tests.support.site import answering, stage

ROUNDS = step("Hello", " there"), step(" you", "."), step("!", accepted=0)
SCRIPT = answer(*ROUNDS)
TEXT = "Hello there you.!"
OVERFLOW = Failure("context_overflow", "The prompt is 9,000 tokens and the context holds 8,192.", "Shorten it.")
THEIRS = (  # llama.cpp, tools/server: result_timings::to_json
    "cache_n prompt_n prompt_ms prompt_per_token_ms prompt_per_second "
    "predicted_n predicted_ms predicted_per_token_ms predicted_per_second draft_n draft_n_accepted"
)


@pytest.mark.parametrize("at", ["", "/v1"])
async def test_a_chat_is_answered_whole_under_both_spellings(at: str):
    async with answering(SCRIPT) as world:
        call = await world.post(f"{at}/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}).end()
    assert (call.status, call.headers["content-type"]) == (200, "application/json")
    found = call.json
    assert (found["object"], found["model"]) == ("chat.completion", "guide")
    assert found["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": TEXT},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert found["id"].startswith("chatcmpl-")


async def test_a_stream_opens_with_the_role_and_ends_with_the_reason_the_figures_and_done():
    async with answering(SCRIPT) as world:
        call = await world.chat(stream=True).end()
    assert call.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, last, done = call.events
    assert done == "[DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert call.text == TEXT
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * len(chunks)
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    assert {chunk["id"] for chunk in [*chunks, last]} == {last["id"]}
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in [*chunks, last])
    assert "timings" in last
    assert not any("timings" in chunk or "usage" in chunk for chunk in chunks)
    assert "usage" not in last


async def test_usage_comes_in_a_last_chunk_without_choices_where_it_was_asked_for():
    async with answering(SCRIPT) as world:
        call = await world.chat(stream=True, stream_options={"include_usage": True}).end()
    *_, ended, last, done = call.events
    assert (ended["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 12,
        "completion_tokens": 5,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"accepted_prediction_tokens": 2},
    }
    assert "timings" in last
    assert "timings" not in ended


async def test_completion_tokens_count_no_rejected_draft():
    """A drafted token that the model rejected was never written: the client is not to count it."""
    async with answering(SCRIPT) as world:
        found = (await world.chat().end()).json
    stats = found["localspec"]["stats"]
    assert stats["draft_n_rejected"] == 2
    assert found["usage"]["completion_tokens"] == stats["predicted_n"] == 5
    assert "rejected_prediction_tokens" not in found["usage"]["completion_tokens_details"]


async def test_timings_have_llama_servers_names_and_no_others():
    async with answering(SCRIPT) as world:
        timings = (await world.chat().end()).json["timings"]
    assert list(timings) == THEIRS.split()
    assert timings["draft_n"] >= timings["draft_n_accepted"] == 2
    assert timings["predicted_per_second"] == pytest.approx(1000 * 5 / timings["predicted_ms"])


async def test_without_a_draft_there_are_no_figures_of_drafts():
    async with answering(answer(step("a", accepted=0))) as world:
        timings = (await world.chat().end()).json["timings"]
    assert not {"draft_n", "draft_n_accepted"} & timings.keys()


async def test_what_the_cache_held_is_no_part_of_the_prompt_that_was_read():
    done = answer(*ROUNDS)[-1]
    stats = msgspec.structs.replace(done.stats, prompt_n=12, cached_n=10, prompt_ms=4.0)
    async with answering([*SCRIPT[:-1], msgspec.structs.replace(done, stats=stats)]) as world:
        found = (await world.chat().end()).json
    assert (found["timings"]["cache_n"], found["timings"]["prompt_n"]) == (10, 2)
    assert found["timings"]["prompt_per_second"] == pytest.approx(500)
    assert found["usage"]["prompt_tokens"] == 12
    assert found["usage"]["prompt_tokens_details"] == {"cached_tokens": 10}


async def test_every_chunk_has_timings_where_they_were_asked_for():
    async with answering(SCRIPT) as world:
        call = await world.chat(stream=True, timings_per_token=True).end()
    written = [event["timings"]["predicted_n"] for event in call.events[1:-2]]
    assert written == [2, 4, 5]


async def test_localspec_has_the_drafter_all_sums_and_their_rates():
    async with answering(SCRIPT) as world:
        own = (await world.chat().end()).json["localspec"]
    assert own["spec"]["kind"] == "model"
    assert own["spec"]["mode"] == "auto"
    stats = msgspec.convert(own["stats"], Stats)
    assert own["stats"] == json.loads(json.dumps(to_dict(stats)))
    assert (stats.draft_rounds, stats.plain_rounds) == (2, 1)


async def test_tokens_say_who_wrote_each():
    async with answering(SCRIPT, SCRIPT) as world:
        stream = await world.chat(stream=True, localspec={"tokens": True}).end()
        whole = (await world.chat(localspec={"tokens": True}).end()).json
    rounds = [event["choices"][0]["delta"].get("localspec") for event in stream.events[1:-2]]
    assert [msgspec.convert(one, Step) for one in rounds] == list(ROUNDS)
    tokens = whole["choices"][0]["message"]["localspec"]["tokens"]
    assert [token["source"] for token in tokens] == ["draft", "fix", "draft", "fix", "plain"]
    assert "".join(token["text"] for token in tokens) == TEXT


async def test_a_completion_has_text_where_a_chat_has_a_message():
    async with answering(SCRIPT, SCRIPT) as world:
        whole = (await world.post("/v1/completions", {"prompt": "Once"}).end()).json
        stream = await world.post("/completions", {"prompt": ["Once"], "stream": True}).end()
        assert [request.prompt for request in world.engine.requests] == ["Once", "Once"]
    assert whole["object"] == "text_completion"
    assert whole["choices"] == [{"index": 0, "text": TEXT, "logprobs": None, "finish_reason": "stop"}]
    *chunks, last, _ = stream.events
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == TEXT
    assert last["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(("reason", "theirs"), [("length", "length"), ("context", "length"), ("stop", "stop")])
async def test_a_full_context_is_a_length(reason: str, theirs: str):
    async with answering(answer(*ROUNDS, finish=reason)) as world:
        assert (await world.chat().end()).json["choices"][0]["finish_reason"] == theirs


async def test_what_the_user_should_read_comes_with_the_figures():
    notice = Notice("warning", "drafter_failed", "The drafter failed.", "")
    async with answering([SCRIPT[0], notice, *SCRIPT[1:]]) as world:
        own = (await world.chat().end()).json["localspec"]
    assert own["notices"][0]["message"] == "The drafter failed."


async def test_an_error_before_the_first_word_is_a_status_in_a_stream_too():
    async with answering([OVERFLOW], [OVERFLOW]) as world:
        for stream in (False, True):
            call = await world.chat(stream=stream).end()
            assert call.status == 400
            assert call.error["code"] == "context_length_exceeded"
            assert call.error["type"] == "invalid_request_error"
            assert "8,192" in call.error["message"]


async def test_an_error_in_the_middle_is_the_last_event_of_a_stream():
    failure = Failure("engine", "Memory ran out while answering.", "Close other programs.")
    async with answering([*SCRIPT[:2], failure], SCRIPT) as world:
        call = await world.chat(stream=True).end()
        assert call.status == 200
        assert call.events[-1]["error"]["message"].startswith("Memory ran out")
        assert call.events[-1]["error"]["type"] == "server_error"
        assert (await world.chat().end()).status == 200


async def test_a_request_samples_as_it_says_and_as_the_server_does_where_it_says_nothing():
    def complete(asked: SamplingOptions, own: SamplingOptions) -> SamplingOptions:
        return asked.over(SamplingOptions(temperature=0.5, top_k=40)).over(own)

    ready = msgspec.structs.replace(READY, model=msgspec.structs.replace(READY.model, sampling={"min_p": 0.25}))
    engine = ScriptedEngine(SCRIPT, opening=[ready])
    async with stage(engine, served=Served("guide", sampling=complete)) as world:
        await world.chat(temperature=0, seed=7, stop=["###", ""], max_completion_tokens=9).end()
    (request,) = engine.requests
    assert request.sampling == SamplingOptions(temperature=0, seed=7, top_k=40, min_p=0.25)
    assert (request.stop, request.max_tokens) == (("###",), 9)


async def test_one_requests_way_of_speculating_is_its_own():
    ready = msgspec.structs.replace(READY, spec=msgspec.structs.replace(READY.spec, mode="on", k=4))
    async with stage(ScriptedEngine(SCRIPT, SCRIPT, SCRIPT, opening=[ready])) as world:
        for asked in ({"spec": "off"}, None, {"spec": "on", "k": 2}):
            await world.chat(**({"localspec": asked} if asked else {})).end()
        assert [one.spec for one in world.engine.requests] == [SpecOptions("off"), None, SpecOptions("on", 2)]
        assert world.engine.steered == []


@pytest.mark.parametrize(
    ("usual", "asked", "expected"),
    [
        (SpecOptions("on", 3), {}, None),
        (SpecOptions("on", 3), {"spec": "on"}, SpecOptions("on", 3)),
        (SpecOptions("on", 3), {"spec": "auto"}, SpecOptions("auto", 3)),
        (SpecOptions("on", 3), {"spec": "off", "k": 2}, SpecOptions("off")),
        (SpecOptions("on", 3), {"k": "auto"}, SpecOptions()),
        (SpecOptions("auto", 3), {"spec": "on"}, SpecOptions("on", 3)),
        (SpecOptions("off", 0), {"spec": "on"}, SpecOptions("on")),
    ],
)
async def test_what_a_request_does_not_say_of_speculation_is_the_servers(
    usual: SpecOptions, asked: dict[str, Any], expected: SpecOptions | None
):
    ready = msgspec.structs.replace(READY, spec=msgspec.structs.replace(READY.spec, mode=usual.mode, k=usual.k))
    async with stage(ScriptedEngine(SCRIPT, opening=[ready])) as world:
        await world.chat(localspec=asked).end()
        assert world.engine.requests[0].spec == expected


async def test_a_last_message_of_the_assistants_goes_on():
    async with answering(SCRIPT) as world:
        turns = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
        ]
        await world.post("/v1/chat/completions", {"messages": [*turns, {"role": "assistant", "content": "So"}]}).end()
    (request,) = world.engine.requests
    assert request.continues
    assert [message.role for message in request.messages or ()] == ["system", "user", "assistant"]


async def test_a_base_model_is_not_chatted_with():
    card = msgspec.structs.replace(READY.model, chat=False)
    async with stage(ScriptedEngine(SCRIPT, opening=[Ready(card, READY.spec, READY.memory)])) as world:
        call = await world.chat().end()
        assert (call.status, call.error["code"]) == (400, "no_chat_template")
        assert "/v1/completions" in call.error["message"]
        assert (await world.post("/v1/completions", {"prompt": "Once"}).end()).status == 200
