"""The client that most programs use, openai's own package, against `localspec serve guide` in processes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.support.served import PATIENCE, TRAP, Server

pytestmark = pytest.mark.heavy

HELLO: Any = [{"role": "user", "content": "Hello"}]
CHAT: dict[str, Any] = {"model": "guide", "messages": HELLO, "temperature": 0}
A_TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
A_PICTURE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]


@pytest.fixture(scope="module")
def client(served: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{served.address}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as made:
        yield made


@pytest.fixture(scope="module")
def hello(client: OpenAI) -> Any:
    """The greedy answer to Hello, whole."""
    return client.chat.completions.create(**CHAT)


# --- what it reads


def test_the_list_has_the_model_and_the_model_can_be_asked_for(client):
    assert [model.id for model in client.models.list()] == ["guide"]
    model = client.models.retrieve("guide")
    assert (model.object, model.owned_by) == ("model", "localspec")
    assert model.created > 0


def test_an_answer_has_all_fields_of_the_type(hello):
    (choice,) = hello.choices
    assert (hello.object, hello.model) == ("chat.completion", "guide")
    assert (choice.index, choice.finish_reason, choice.message.role) == (0, "stop", "assistant")
    assert "guide" in choice.message.content
    assert choice.message.tool_calls is None
    assert choice.logprobs is None
    usage = hello.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert min(usage.prompt_tokens, usage.completion_tokens) > 0


def test_a_stream_is_the_same_answer(client, hello):
    chunks = list(client.chat.completions.create(**CHAT, stream=True))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [delta.role for delta in deltas if delta.role] == ["assistant"]
    assert "".join(delta.content or "" for delta in deltas) == hello.choices[0].message.content
    assert len(deltas) > 3, "it came in one piece"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)


def test_usage_comes_last_and_with_no_choice_where_it_is_asked_for(client, hello):
    *others, last = client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True})
    assert last.choices == []
    assert all(chunk.choices and chunk.usage is None for chunk in others)
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (
        hello.usage.prompt_tokens,
        hello.usage.completion_tokens,
    )


async def test_the_async_client_reads_the_same(served, hello):
    async with AsyncOpenAI(base_url=f"{served.address}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as client:
        whole = await client.chat.completions.create(**CHAT)
        streamed = [chunk async for chunk in await client.chat.completions.create(**CHAT, stream=True)]
    text = hello.choices[0].message.content
    assert whole.choices[0].message.content == text
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == text


def test_an_address_without_v1_does_as_well(served, hello):
    with OpenAI(base_url=served.address, api_key="none", max_retries=0, timeout=PATIENCE) as client:
        assert client.chat.completions.create(**CHAT).choices[0].message == hello.choices[0].message


# --- what it may ask for


def test_a_stop_text_ends_the_answer_before_it(client, hello):
    text = hello.choices[0].message.content
    stop = text.split()[4]
    whole = client.chat.completions.create(**CHAT, stop=stop)
    streamed = client.chat.completions.create(**CHAT, stop=["never written", stop], stream=True)
    assert whole.choices[0].message.content == text.partition(stop)[0]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == text.partition(stop)[0]
    assert whole.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_limit_is_kept(client, name):
    answer = client.chat.completions.create(**CHAT, **{name: 5})
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (5, "length")


def test_one_seed_is_one_text_and_others_are_others(client):
    def text(seed: int) -> str:
        asked = {**CHAT, "temperature": 1.5, "max_tokens": 24}
        return client.chat.completions.create(**asked, seed=seed).choices[0].message.content

    assert text(7) == text(7)
    assert len({text(seed) for seed in range(4)}) > 1


def test_completions_whole_and_streamed(client):
    asked: dict[str, Any] = {"model": "guide", "prompt": "To stop a model,", "max_tokens": 12, "temperature": 0}
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True))
    assert (whole.object, whole.choices[0].finish_reason) == ("text_completion", "length")
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text != ""
    assert whole.usage.completion_tokens == 12


def test_fields_of_our_own_go_through_extra_body(client, hello):
    answer = client.chat.completions.create(**CHAT, extra_body={"localspec": {"spec": "off", "tokens": True}})
    assert answer.choices[0].message.content == hello.choices[0].message.content
    assert answer.localspec["spec"]["mode"] == "off"
    assert "draft_n" not in answer.timings
    tokens = answer.choices[0].message.localspec["tokens"]
    assert "".join(token["text"] for token in tokens) == answer.choices[0].message.content


def test_log_probabilities_are_those_of_the_tokens_whole_and_streamed(client, hello):
    whole = client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=3)
    assert whole.choices[0].message.content == hello.choices[0].message.content
    content = whole.choices[0].logprobs.content
    assert len(content) == whole.usage.completion_tokens
    assert all(one.logprob <= 0 and len(one.top_logprobs) == 3 for one in content)
    assert [one.token for one in content] == [one.top_logprobs[0].token for one in content]  # it is greedy
    assert bytes(content[0].bytes).decode() == content[0].token
    chunks = list(client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=3, stream=True))
    streamed = [one for chunk in chunks if (found := chunk.choices[0].logprobs) for one in found.content]
    assert [(one.token, round(one.logprob, 3)) for one in streamed] == [
        (one.token, round(one.logprob, 3)) for one in content
    ]


def test_log_probabilities_of_a_completion(client):
    found = client.completions.create(model="guide", prompt="A drafter", max_tokens=8, temperature=0, logprobs=2)
    (choice,) = found.choices
    known = choice.logprobs
    assert len(known.tokens) == len(known.token_logprobs) == len(known.top_logprobs) == len(known.text_offset) == 8
    assert all(len(one) == 2 for one in known.top_logprobs)
    assert known.text_offset[0] == 0
    assert choice.text[known.text_offset[3] :].startswith(known.tokens[3])


# --- what is refused


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [A_TOOL]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"n": 2}, "n"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 10}}, "logit_bias"),
        ({"frequency_penalty": 1.0}, "frequency_penalty"),
        ({"messages": A_PICTURE}, "messages[0].content[0].type"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "4", "tool_call_id": "1"}]}, "messages[0].role"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 100_000}, "max_tokens"),
        ({"stop": [str(n) for n in range(17)]}, "stop"),
        ({"seed": "seven"}, "seed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_a_bad_request_that_names_the_field(client, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**{**CHAT, **fields})
    assert refused.value.param == param
    assert param in refused.value.message
    assert refused.value.type == "invalid_request_error"


@pytest.mark.parametrize(("fields", "param"), [({"echo": True}, "echo"), ({"suffix": "!"}, "suffix"), ({"n": 3}, "n")])
def test_completions_refuse_as_well(client, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="guide", prompt="a", **fields)
    assert refused.value.param == param


def test_several_prompts_and_token_ids_are_refused(client):
    for prompt in (["a", "b"], [1, 2, 3]):
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(model="guide", prompt=prompt)
        assert refused.value.param == "prompt"


def test_another_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError, match="guide") as refused:
        client.chat.completions.create(**{**CHAT, "model": "gpt-4o"})
    assert (refused.value.param, refused.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


def test_a_prompt_that_is_too_long_says_so_in_openais_word(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="guide", prompt="one two three " * 3000)
    assert refused.value.code == "context_length_exceeded"


def test_protocols_that_are_not_here_are_not_found_and_what_there_is_is_named(client):
    with pytest.raises(openai.NotFoundError, match=r"Responses.*/v1/chat/completions"):
        client.responses.create(model="guide", input="Hello")
    with pytest.raises(openai.NotFoundError, match="/v1/chat/completions"):
        client.embeddings.create(model="guide", input="Hello")


# --- what goes wrong


def test_a_stream_that_is_closed_frees_the_engine(served, client):
    """Without speculation the answer is some 2,000 rounds; that it was cut shows in what was written."""
    cancelled, predicted = served.ended("cancelled"), served.predicted()
    stream = client.completions.create(
        model="guide", prompt=TRAP, stream=True, temperature=0, extra_body={"localspec": {"spec": "off"}}
    )
    next(iter(stream))
    stream.close()
    served.wait_until_idle()
    assert served.ended("cancelled") == cancelled + 1
    assert served.predicted() - predicted < 1500


def test_one_too_many_is_a_rate_limit_that_says_when(served, client):
    with served.frozen(), served.crowd(5):
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(**CHAT)
        assert int(refused.value.response.headers["retry-after"]) >= 1
    served.wait_until_idle()


def test_the_client_tries_again_as_late_as_it_was_asked_to(served, client, hello, monkeypatch):
    waited: list[float] = []
    patient = client.with_options(max_retries=1)
    with served.frozen():
        crowd = served.crowd(5)
        crowd.__enter__()

        def leave(seconds: float) -> None:
            waited.append(seconds)
            crowd.__exit__(None, None, None)
            served.engine.resume()
            served.wait_until_idle()

        monkeypatch.setattr("openai._base_client.time", SimpleNamespace(sleep=leave))
        answer = patient.chat.completions.create(**CHAT)
    assert waited == [5.0]
    assert answer.choices[0].message.content == hello.choices[0].message.content


def test_a_client_that_loses_patience_leaves_no_one_in_the_queue(served, client):
    with served.frozen(), pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(**CHAT)
    served.wait_until_idle()
