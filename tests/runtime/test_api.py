"""The Python interface on models made here: events, turns, stops, cancels, and every refusal."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from localspec.core import processor
from localspec.core.drain import drain
from localspec.core.errors import (
    CheckpointError,
    ContextOverflow,
    DoesNotFit,
    EngineError,
    IncompatiblePair,
    LocalspecError,
    NoChatTemplate,
    NotDownloaded,
    UsageError,
)
from localspec.core.events import AnyEvent, Done, Loading, Notice, Prefill, Ready, Step
from localspec.core.requests import DraftModel, EarlyExit, LoadRequest, Message, SamplingOptions, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine.arch import LEFT_OUT, read_arch
from localspec.engine.cache import Cache, kv_dtype
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.session import Session
from localspec.loading.footprint import footprint
from localspec.loading.plan import make_plan
from localspec.loading.plan_request import PlanRequest
from localspec.loading.resident_decoder import choose_threads
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import LLM, load, load_events, request_of
from localspec.runtime.chat import Chat
from localspec.runtime.result import Result
from localspec.runtime.sampling_defaults import from_generation_config, resolve_sampling
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like, wordpiece_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

HI = [{"role": "user", "content": "hello there general"}]
STORY = "The quick brown fox jumps over"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a draft for it, a base model and one with another tokenizer."""
    top = tmp_path_factory.mktemp("models")
    save_snapshot(top / "target", gpt2_like(), template=CHATML, eos="<|im_end|>")
    save_snapshot(top / "draft", gpt2_like(), seed=1, num_hidden_layers=1)
    save_snapshot(top / "base", gpt2_like(), seed=2)
    save_snapshot(top / "stranger", wordpiece_like(), seed=3)
    return top


def open_target(models: Path, **options: Any) -> LLM:
    return load(str(models / "target"), **{"draft": "off", "quant": "fp64", "threads": 1, **options})


@pytest.fixture
def llm(models: Path) -> Iterator[LLM]:
    with open_target(models, draft="early-exit:2") as opened:
        yield opened


def kinds(events: list[AnyEvent]) -> list[str]:
    return [event.type for event in events]


def cached(events: list[AnyEvent]) -> int:
    return next(event.cached for event in events if isinstance(event, Prefill))


def total(events: list[AnyEvent]) -> int:
    return next(event.total for event in events if isinstance(event, Prefill))


def test_a_folder_is_loaded_with_progress_then_ready(models: Path):
    request = LoadRequest.of(str(models / "target"), draft="early-exit:1", quant="fp32", threads=1)
    events: list[AnyEvent] = []
    llm = drain(load_events(request), events.append)
    loading = [event for event in events if isinstance(event, Loading)]
    assert [event.done for event in loading] == sorted(event.done for event in loading)
    assert all(0 <= event.done <= event.total for event in loading)
    assert isinstance(events[-1], Ready)
    assert llm.ready == events[-1]
    ready = llm.ready
    assert (ready.model.name, ready.model.quant, ready.model.device, ready.model.chat) == (
        "target",
        "fp32",
        "cpu",
        True,
    )
    assert (ready.spec.kind, ready.model.context_max) == ("early-exit", 512)
    assert ready.memory.target_bytes > 0
    assert ready.memory.drafter_bytes == 0  # early exit owns no memory
    assert ready.memory.kv_bytes == 2 * 4 * 512 * 2 * 8 * 4


def test_an_answer_is_prefills_then_steps_then_done(llm: LLM):
    events = list(llm.stream(STORY, max_tokens=20, temperature=0))
    names = kinds(events)
    first_step = names.index("step")
    assert set(names[:first_step]) == {"prefill"}
    assert set(names[first_step:-1]) <= {"step", "notice"}
    assert names[-1] == "done"
    prefills = [event for event in events if isinstance(event, Prefill)]
    assert prefills[-1].cached + prefills[-1].done == prefills[-1].total
    assert len({event.done for event in prefills}) == len(prefills), "nothing is told twice"
    done = events[-1]
    assert isinstance(done, Done)
    assert done.finish_reason == done.stats.finish_reason == "length"
    assert done.stats.predicted_n == sum(len(event.tokens) for event in events if isinstance(event, Step)) == 20


def test_generate_gives_text_tokens_stats_and_the_reason(llm: LLM):
    result = llm.generate(STORY, max_tokens=30, temperature=0)
    stats = result.stats
    assert result.text == "".join(token.text for token in result.tokens)
    assert len(result.tokens) == stats.predicted_n == 30
    assert result.finish_reason == "length"
    assert stats.draft_n == stats.draft_n_accepted + stats.draft_n_rejected + stats.draft_n_ignored
    assert stats.predicted_n == stats.draft_n_accepted + sum(token.source != "draft" for token in result.tokens)
    assert stats.prompt_n + stats.predicted_n == stats.context_used
    assert stats.predicted_ms > 0
    assert stats.ttft_ms >= stats.prompt_ms
    assert stats.peak_bytes > 0
    assert stats.read_bytes > 0


def test_a_result_can_be_asked_for_twice_and_after_iterating(llm: LLM):
    stream = llm.stream(STORY, max_tokens=8, temperature=0)
    text = "".join(event.text for event in stream if isinstance(event, Step))
    assert stream.result() == stream.result()
    assert stream.result().text == text


DRAFTS: list[tuple[Any, str | int]] = [
    ("off", "auto"),
    ("early-exit:1", "auto"),
    ("early-exit:3", 4),
    ("early-exit", 1),
    (EarlyExit(2), "heuristic"),
    (EarlyExit(2, greedy=True), 16),
    ("MODEL", 1),
    ("MODEL", 5),
    ("MODEL", "auto"),
    ("MODEL greedy", 3),
    ("early-exit:2", 0),
]


WAYS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 1.0, "seed": 7},
    {"temperature": 0.7, "seed": 8, "top_p": 0.9, "top_k": 40, "min_p": 0.01},
]


@cache
def said_plain(models: Path) -> list[Result]:
    """The story in each way, without a drafter."""
    with open_target(models) as llm:
        return [llm.generate(STORY, max_tokens=48, **way) for way in WAYS]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("draft", "k"), DRAFTS, ids=str)
def test_the_text_is_the_same_whoever_drafts(draft: Any, k: str | int, models: Path):
    """Greedy, and random under a seed, with penalties and cuts; in float64, where it must be exact."""
    if str(draft).startswith("MODEL"):
        name = str(models / "draft")
        draft = DraftModel(name, greedy=True) if "greedy" in draft else name
    with open_target(models, draft=draft, k=k) as drafted:
        for way, expected in zip(WAYS, said_plain(models), strict=True):
            got = drafted.generate(STORY, max_tokens=48, **way)
            assert got.text == expected.text
            assert [token.id for token in got.tokens] == [token.id for token in expected.tokens]
            assert {token.source for token in expected.tokens} == {"plain"}


def test_a_draft_that_is_the_target_itself_is_accepted_whole(models: Path):
    with open_target(models, draft=str(models / "target"), k=3) as llm:
        stats = llm.generate(STORY, max_tokens=40, temperature=0).stats
    assert stats.acceptance_rate == 1.0
    assert stats.draft_n_accepted >= 20


def test_the_same_seed_repeats_and_another_does_not(llm: LLM):
    first = llm.generate(STORY, max_tokens=24, temperature=1.0, seed=1).text
    assert llm.generate(STORY, max_tokens=24, temperature=1.0, seed=1).text == first
    assert llm.generate(STORY, max_tokens=24, temperature=1.0, seed=2).text != first


@pytest.mark.parametrize("draft", ["off", "early-exit:2", "MODEL"])
def test_random_without_a_seed_runs_and_differs(draft: str, models: Path):
    draft = str(models / "draft") if draft == "MODEL" else draft
    with open_target(models, draft=draft, quant="auto", k=3) as llm:
        texts = {llm.generate(STORY, max_tokens=24, temperature=1.5, top_p=0.95).text for _ in range(4)}
    assert len(texts) > 1


def test_a_seed_of_minus_one_is_another_every_time_whatever_the_model_has(llm: LLM):
    texts = {llm.generate(STORY, max_tokens=24, temperature=1.5, seed=-1).text for _ in range(4)}
    assert len(texts) > 1
    assert resolve_sampling(SamplingOptions(seed=-1), SamplingOptions(seed=5), usable=9).seed is None
    assert resolve_sampling(SamplingOptions(), SamplingOptions(seed=5), usable=9).seed == 5


def test_of_what_a_model_says_of_sampling_only_what_can_be_is_heard():
    said = {"top_k": 50.0, "top_p": 2, "min_p": True, "temperature": "hot", "repetition_penalty": 1.1, "seed": 3}
    assert from_generation_config({**said, "do_sample": True}) == SamplingOptions(1.0, repetition_penalty=1.1)
    assert from_generation_config({"do_sample": True, "top_k": 50}) == SamplingOptions(1.0, top_k=50)
    assert from_generation_config({"repetition_penalty": 0}) == SamplingOptions(), "it names no temperature"
    assert from_generation_config({"do_sample": False, "temperature": 2}) == SamplingOptions(0.0), "greedy by its word"
    assert resolve_sampling(SamplingOptions(), SamplingOptions(), usable=9).is_greedy, "from Python"


@pytest.mark.parametrize(("name", "value"), [("top_k", 2.5), ("top_k", -1), ("seed", -2), ("top_p", 2)])
def test_an_option_that_cannot_be_is_refused_with_what_can(name: str, value: Any, llm: LLM):
    with pytest.raises(UsageError, match=f"{name} {value} is out of range") as met:
        llm.generate(STORY, **{name: value})
    assert met.value.hint.startswith("Use a number from" if name == "top_p" else "Use a whole number from")


def test_what_a_draft_model_reads_of_the_prompt_is_time_of_the_prompt(models: Path, monkeypatch: pytest.MonkeyPatch):
    """On a clock that goes only while it does."""
    real, now = ModelDrafter.prefill, 0.0

    def prefill(drafter: ModelDrafter, session: Session) -> None:
        nonlocal now
        now += 5
        real(drafter, session)

    monkeypatch.setattr(ModelDrafter, "prefill", prefill)
    monkeypatch.setattr("localspec.runtime.answer.perf_counter", lambda: now)
    with open_target(models, draft=str(models / "draft"), k=2) as llm:
        stats = llm.generate(STORY, max_tokens=4, temperature=0).stats
    assert (stats.prompt_ms, stats.ttft_ms) == (5000, 5000)


@pytest.mark.parametrize("content", [None, 3, [{"type": "text", "text": "hi"}]])
def test_a_message_that_is_no_text_is_refused(content: object, llm: LLM):
    """Nobody means Python's way of writing it."""
    with pytest.raises(UsageError, match="A message's content must be text") as met:
        llm.generate([{"role": "user", "content": content}])
    assert met.value.hint


def test_no_more_threads_than_may_run_at_once_are_tried(monkeypatch: pytest.MonkeyPatch):
    """taskset or a container leaves two of eight cores."""
    monkeypatch.setattr("psutil.cpu_count", lambda **_: 8)
    monkeypatch.setattr(processor, "usable_threads", lambda: 2)
    tried: list[int] = []
    target: Any = SimpleNamespace(set_threads=tried.append, forward=lambda _: None, crop=lambda _: None, length=0)
    assert choose_threads(target, None) in (1, 2)
    assert set(tried) == {1, 2}
    assert choose_threads(target, None, every=True) == 2
    assert choose_threads(target, 5) == 5  # asked for


class Threaded:
    """Rows take what `seconds` says of a count of threads, and of every which row of that count it is."""

    length = 0

    def __init__(self, seconds: Callable[[int, int], float]) -> None:
        self.clock, self.threads, self.seconds = 0.0, 1, seconds
        self.rows: Counter[int] = Counter()

    def set_threads(self, threads: int) -> None:
        self.threads = threads

    def forward(self, _: torch.Tensor) -> None:
        self.rows[self.threads] += 1
        self.clock += self.seconds(self.threads, self.rows[self.threads])

    def crop(self, _: int) -> None: ...


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        (lambda threads, _: 0.2 / threads, 4),
        (lambda threads, _: {1: 0.2, 2: 0.11, 4: 0.105}[threads], 2),  # as good as: fewer
        (lambda threads, row: 0.0003 / threads + 0.004 * (threads > 1 and row % 9 == 0), 1),  # it waits now and then
        (lambda threads, row: 0.2 / threads + (5.0 if threads == 4 and row == 3 else 0.0), 4),  # once
    ],
    ids=["more are faster", "hardly", "stalls", "a hiccup"],
)
def test_threads_are_as_many_as_pay(seconds: Callable[[int, int], float], best: int, monkeypatch: pytest.MonkeyPatch):
    target: Any = Threaded(seconds)
    monkeypatch.setattr(processor, "physical_cores", lambda: 4)
    monkeypatch.setattr(processor, "usable_threads", lambda: 4)
    monkeypatch.setattr("localspec.loading.resident_decoder.perf_counter", lambda: target.clock)
    assert choose_threads(target, None) == target.threads == best


def test_a_second_turn_reads_only_what_is_new(llm: LLM):
    """All but the new text: the pending token and what follows the answer."""
    chat = llm.chat(system="Be brief.", max_tokens=12, temperature=0)
    chat.send("hello there")
    known = len(llm._model.state.session.tokens)
    stopped = llm._model.state.session.tokens[-1] in llm._model.state.parts.stop_ids
    events = list(chat.stream("user system"))
    assert known - 1 <= cached(events) <= known
    assert 0 < total(events) - cached(events) <= known + 20
    assert total(events) > known + (not stopped)
    assert [message.role for message in chat.messages] == ["system", "user", "assistant", "user", "assistant"]


def test_a_turn_read_from_the_cache_answers_as_one_read_from_the_start(models: Path, monkeypatch: pytest.MonkeyPatch):
    with open_target(models, draft="early-exit:2", k=3) as warm, open_target(models) as cold:
        chat = warm.chat(max_tokens=12, temperature=0)
        for text in ("hello there", "the quick brown fox", "Il était une fois"):
            got = chat.send(text)
        assert got.stats.cached_n > 20
        prompt = warm._model.state.session.tokens[: got.stats.prompt_n]
        monkeypatch.setattr("localspec.runtime.answer.keep_spelling", lambda *_: prompt)
        expected = cold.generate(chat.messages[:-1], max_tokens=12, temperature=0)
        assert (expected.stats.cached_n, expected.stats.prompt_n) == (0, len(prompt))
        assert got.text == expected.text


def test_an_answer_that_the_user_has_rewritten_is_read_as_it_stands_now(models: Path):
    """The cache holds the model's own words, which nobody may go on from (issue 21, 12)."""
    with open_target(models, draft="early-exit:2", k=3) as warm, open_target(models) as cold:
        first = warm.generate([Message("user", "hello there")], max_tokens=12, temperature=0)
        tokenizer = warm._model.state.parts.prompter.tokenizer
        for text in ("the quick", f"{first.text[:3]} brown fox", f"{first.text} jumps"):
            messages = [Message("user", "hello there"), Message("assistant", text), Message("user", "and then?")]
            got = warm.generate(messages, max_tokens=12, temperature=0)
            cold.generate([Message("user", "something else")], max_tokens=1)  # what it held before is of no use
            expected = cold.generate(messages, max_tokens=12, temperature=0)
            assert got.stats.cached_n > 0
            assert (got.text, got.stats.prompt_n) == (expected.text, expected.stats.prompt_n)
            assert text in tokenizer.decode(warm._model.state.session.tokens)


def test_an_answer_cut_by_the_limit_counts_as_said(llm: LLM):
    chat = llm.chat(max_tokens=5, temperature=0)
    answer = chat.send("hello").text
    assert chat.messages[-1] == Message("assistant", answer)


def test_retry_answers_the_last_turn_again_from_the_cache(llm: LLM):
    chat = llm.chat(max_tokens=8, temperature=0)
    first = chat.send("hello there")
    again = chat.retry()
    assert again.text == first.text
    assert again.stats.prompt_n - again.stats.cached_n <= 1
    assert [message.role for message in chat.messages] == ["user", "assistant"]
    with pytest.raises(UsageError, match="no answer to regenerate"):
        llm.chat().retry()


def test_a_branch_goes_its_own_way(llm: LLM):
    chat = llm.chat(system="Be brief.", max_tokens=6, temperature=0)
    chat.send("hello")
    branch = chat.branch()
    branch.send("other")
    chat.send("more")
    assert [message.content for message in chat.messages[:3]] == [message.content for message in branch.messages[:3]]
    assert chat.messages[3].content == "more"
    assert branch.messages[3].content == "other"


def test_saved_turns_are_json_that_can_be_sent_again(llm: LLM, tmp_path: Path):
    chat = llm.chat(system="Sei knapp: ä😀", max_tokens=6, temperature=0)
    chat.send("hello")
    chat.save(tmp_path / "story.json")
    turns = json.loads((tmp_path / "story.json").read_text(encoding="utf-8"))
    assert [Message(**turn) for turn in turns] == chat.messages
    assert llm.generate(turns[:2], max_tokens=6, temperature=0).text == turns[2]["content"]


def test_cancel_from_another_thread_keeps_the_text_so_far(llm: LLM):
    whole = llm.generate(STORY, max_tokens=400, temperature=0).text
    stream, seen, enough = llm.stream(STORY, max_tokens=400, temperature=0), [], threading.Event()

    def stop() -> None:
        enough.wait(30)
        stream.cancel()

    stopper = threading.Thread(target=stop)
    stopper.start()
    for event in stream:
        seen.append(event)
        if kinds(seen).count("step") == 3:
            enough.set()
            stopper.join()
    result = stream.result()
    assert result.finish_reason == "cancelled"
    assert kinds(seen).count("step") == 3  # nothing after the cancel
    assert result.text
    assert whole.startswith(result.text)
    assert result.stats.predicted_n == len(result.tokens)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("draft", ["off", "early-exit:2", "MODEL"])
def test_after_a_cancel_anywhere_the_next_answer_is_that_of_a_fresh_session(draft: str, models: Path):
    draft = str(models / "draft") if draft == "MODEL" else draft
    with open_target(models, draft=draft, k=3) as llm, open_target(models) as fresh:
        expected = fresh.generate(STORY, max_tokens=30, temperature=0).text
        for forwards in range(12):
            checks = iter(range(1000))
            request = request_of(STORY + " the lazy dog" * (forwards % 3), max_tokens=30, temperature=0)
            *_, done = llm._model.answer(request, lambda checks=checks, last=forwards: next(checks) >= last)
            assert isinstance(done, Done)
            assert done.finish_reason == "cancelled"
            session = llm._model.state.session
            assert session.target.length == max(len(session.tokens) - 1, 0)
            assert llm.generate(STORY, max_tokens=30, temperature=0).text == expected


def test_cancel_before_the_first_event_gives_an_empty_answer(llm: LLM):
    stream = llm.stream(STORY, max_tokens=9)
    stream.cancel()
    result = stream.result()
    assert (result.text, result.finish_reason, result.tokens) == ("", "cancelled", ())


def test_a_cancelled_turn_stays_in_the_conversation_with_what_was_said(llm: LLM):
    chat = llm.chat(max_tokens=200, temperature=0)
    stream = chat.stream("hello there")
    for event in stream:
        if isinstance(event, Step) and event.text:
            stream.cancel()
    said = stream.result().text
    assert said
    assert chat.messages == [Message("user", "hello there"), Message("assistant", said)]


def test_stop_strings_end_the_text_before_them(llm: LLM):
    whole = llm.generate(STORY, max_tokens=60, temperature=0).text
    for at in (3, len(whole) // 3, len(whole) // 2):
        for length in (1, 2, 5):
            stop = whole[at : at + length]
            result = llm.generate(STORY, max_tokens=60, temperature=0, stop=stop)
            assert result.text == whole.split(stop, 1)[0]
            assert (result.finish_reason, result.stats.stop_text) == ("stop", stop)
            assert result.stats.predicted_n == len(result.tokens)
    unstopped = llm.generate(STORY, max_tokens=60, temperature=0, stop=["never this", ""])
    assert (unstopped.text, unstopped.stats.stop_text) == (whole, "")


def test_after_a_stop_string_the_cache_holds_what_was_kept(llm: LLM):
    whole = llm.generate(STORY, max_tokens=60, temperature=0).text
    result = llm.generate(STORY, max_tokens=60, temperature=0, stop=whole[20:23])
    session = llm._model.state.session
    assert session.tokens[-len(result.tokens) :] == [token.id for token in result.tokens]
    assert session.target.length == len(session.tokens) - 1
    assert llm.generate(STORY, max_tokens=60, temperature=0).text == whole


def test_one_token_is_one_token(llm: LLM):
    for _ in range(3):
        result = llm.generate(STORY, max_tokens=1, temperature=0)
        assert (len(result.tokens), result.finish_reason, result.stats.draft_n) == (1, "length", 0)


def test_the_context_ends_an_answer_and_is_never_passed(models: Path):
    with open_target(models, draft="early-exit:2", k=8, ctx=48) as llm:
        prompt = llm._model.state.parts.prompter.tokenizer.encode(STORY).ids
        for limit in (None, 1000):
            result = llm.generate(STORY, temperature=0, max_tokens=limit)
            assert result.finish_reason == "context"
            assert result.stats.context_used == 48
            assert len(prompt) + len(result.tokens) == 48


def test_a_prompt_of_any_length_around_the_context_is_answered_or_refused(models: Path):
    with open_target(models, draft="early-exit:2", k=4, ctx=32) as llm, open_target(models, ctx=32) as plain:
        for length in range(20, 38):
            prompt = "a" + " a" * 100
            ids = llm._model.state.parts.prompter.tokenizer.encode(prompt).ids
            text = llm._model.state.parts.prompter.tokenizer.decode(ids[:length])
            if length >= 32:
                with pytest.raises(ContextOverflow, match="32"):
                    llm.generate(text)
                continue
            got, expected = llm.generate(text, temperature=0), plain.generate(text, temperature=0)
            assert got.text == expected.text
            assert got.finish_reason == expected.finish_reason
            assert got.stats.context_used <= 32


def test_the_models_end_token_ends_the_answer(models: Path, tmp_path: Path):
    """Every token the model writes in turn is made the end token once."""
    with open_target(models) as plain:
        written = [token.id for token in plain.generate(STORY, max_tokens=10, temperature=0).tokens]
    for id in dict.fromkeys(written):
        copy = tmp_path / str(id)
        shutil.copytree(models / "target", copy)
        (copy / "generation_config.json").write_text(json.dumps({"eos_token_id": [id]}))
        for draft in ("off", "early-exit:3"):
            with load(str(copy), draft=draft, k=4, quant="fp64", threads=1) as llm:
                result = llm.generate(STORY, max_tokens=10, temperature=0)
            assert result.finish_reason == "stop"
            assert [token.id for token in result.tokens] == written[: written.index(id) + 1]


def refused(kind: type[LocalspecError], call: Any, *args: Any, **options: Any) -> LocalspecError:
    with pytest.raises(kind) as met:
        call(*args, **options)
    error = met.value
    assert error.code
    assert error.exit_code
    assert error.message.endswith((".", "?"))
    assert error.hint
    assert "\n" not in str(error)
    return error


@pytest.mark.parametrize(
    "options",
    [
        {"quant": "int3"},
        {"device": "tpu"},
        {"ctx": 0},
        {"ctx": 1},
        {"ctx": -5},
        {"ctx": 10**9},
        {"k": "many"},
        {"k": -1},
        {"k": 17},
        {"k": "1.5"},
        {"draft": "early-exit:0"},
        {"draft": "early-exit:4"},
        {"draft": "early-exit:99"},
        {"draft": "early-exit:x"},
        {"draft": EarlyExit(4)},
        {"draft": EarlyExit(-1)},
    ],
    ids=str,
)
def test_a_bad_option_of_loading_is_a_usage_error(options: dict[str, Any], models: Path):
    assert refused(UsageError, open_target, models, **options).exit_code == 2


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"min_p": 2},
        {"repetition_penalty": 0},
        {"seed": -2},
        {"max_tokens": 0},
        {"max_tokens": -3},
        {"temprature": 1},
        {"max_new_tokens": 5},
    ],
    ids=str,
)
def test_a_bad_option_of_an_answer_is_a_usage_error_and_the_next_answer_works(options: dict[str, Any], llm: LLM):
    refused(UsageError, llm.generate, STORY, **options)
    assert llm.generate(STORY, max_tokens=2).text


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "robot", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": "x", "name": "y"}],
    ],
)
def test_a_bad_message_is_a_usage_error(messages: list[dict[str, str]], llm: LLM):
    with pytest.raises(UsageError):
        llm.generate(messages)


def test_an_empty_prompt_is_a_usage_error(llm: LLM):
    refused(UsageError, llm.generate, "")


def test_a_name_nobody_knows_is_not_downloaded(tmp_path: Path):
    assert refused(NotDownloaded, load, "giude").exit_code == 3
    assert refused(NotDownloaded, load, str(tmp_path / "nothing")).exit_code == 3
    assert refused(NotDownloaded, load, "somebody/model").exit_code == 3
    assert "'Qwen/Qwen3-8B' is not" in refused(NotDownloaded, load, "https://huggingface.co/qwen/QWEN3-8B/").message


def test_a_draft_with_another_tokenizer_is_an_incompatible_pair(models: Path):
    error = refused(IncompatiblePair, open_target, models, draft=str(models / "stranger"))
    assert error.exit_code == 6
    assert "stranger" in error.message


def test_a_base_model_completes_and_does_not_chat(models: Path):
    with load(str(models / "base"), draft="off", threads=1) as llm:
        assert not llm.ready.model.chat
        assert refused(NoChatTemplate, llm.generate, HI).exit_code == 1
        assert llm.generate(STORY, max_tokens=3).text


def told(request: LoadRequest) -> list[AnyEvent]:
    return list(load_events(request))


def test_models_and_drafts_may_be_given_as_paths(models: Path):
    with load(models / "target", draft=models / "draft", quant="fp32", threads=1) as llm:
        assert (llm.ready.model.name, llm.ready.spec.name) == ("target", str(models / "draft"))


def test_auto_for_a_folder_is_a_look_up(models: Path):
    events = told(LoadRequest.of(str(models / "target"), quant="fp32", threads=1))
    assert not [event for event in events if isinstance(event, Notice)]
    ready = events[-1]
    assert isinstance(ready, Ready)
    assert (ready.spec.kind, ready.spec.name, ready.spec.lookup) == ("lookup", "look-up", False)


def test_exits_nobody_trained_are_told_of(models: Path):
    notices = [
        event
        for event in told(LoadRequest.of(str(models / "target"), draft="early-exit:1", quant="fp32"))
        if event.type == "notice"
    ]
    assert [notice.code for notice in notices] == ["untrained_exit"]  # type: ignore[union-attr]


@pytest.mark.parametrize("round", [0, 1, 5, 12])
def test_a_drafter_that_crashes_costs_one_notice_and_no_text(round: int, models: Path, monkeypatch: pytest.MonkeyPatch):
    real, calls = EarlyExitDrafter.draft, iter(range(10**6))

    def draft(self: EarlyExitDrafter, session: Any, choice: Any) -> Any:
        if next(calls) >= round:
            raise RuntimeError("a kernel went wrong\nwith details")
        return real(self, session, choice)

    monkeypatch.setattr(EarlyExitDrafter, "draft", draft)
    with open_target(models) as plain, open_target(models, draft="early-exit:2", k=3) as llm:
        expected = plain.generate(STORY, max_tokens=40, temperature=0).text
        first = list(llm.stream(STORY, max_tokens=40, temperature=0))
        notices = [event for event in first if isinstance(event, Notice)]
        assert "".join(event.text for event in first if isinstance(event, Step)) == expected
        assert [(notice.level, notice.code) for notice in notices] == [("warning", "drafter_failed")]
        assert "a kernel went wrong" in notices[0].message
        assert "with details" not in notices[0].message
        assert kinds(list(llm.stream(STORY, max_tokens=40, temperature=0))).count("notice") == 0


def with_weights(models: Path, folder: Path, change: Any, name: str = "target") -> Path:
    shutil.copytree(models / name, folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_weights_that_are_no_numbers_are_an_engine_error(models: Path, tmp_path: Path):
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.layers.3.mlp.down_proj.weight"][0, 0] = float("nan")

    folder = with_weights(models, tmp_path / "nan", spoil)
    with load(str(folder), draft="off", quant="fp32", threads=1) as llm:
        error = refused(EngineError, llm.generate, STORY)
        assert "NaN" in error.message
        refused(EngineError, llm.generate, STORY, temperature=1.0)


def test_a_drafter_of_no_numbers_is_dropped_and_the_text_is_plain(models: Path, tmp_path: Path):
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        tensors["model.norm.weight"][3] = float("inf")

    folder = with_weights(models, tmp_path / "nan", spoil, "draft")
    with open_target(models) as plain, open_target(models, draft=str(folder), k=3) as llm:
        for way in ({"temperature": 0}, {"temperature": 1.0, "seed": 3}):
            assert llm.generate(STORY, max_tokens=20, **way).text == plain.generate(STORY, max_tokens=20, **way).text


@pytest.mark.parametrize("name", ["model.layers.2.self_attn.k_proj.weight", "model.norm.weight"])
def test_a_missing_tensor_is_a_checkpoint_error_that_names_it(name: str, models: Path, tmp_path: Path):
    folder = with_weights(models, tmp_path / "hole", lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointError, match=name):
        load(str(folder), draft="off")


def test_a_tensor_nobody_reads_is_a_checkpoint_error_that_names_it(models: Path, tmp_path: Path):
    folder = with_weights(
        models, tmp_path / "more", lambda tensors: tensors.update({"model.layers.0.extra": torch.zeros(2)})
    )
    with pytest.raises(CheckpointError, match="extra"):
        load(str(folder), draft="off")


def test_a_tensor_of_another_shape_is_a_checkpoint_error_that_names_it(models: Path, tmp_path: Path):
    name = "model.layers.1.mlp.up_proj.weight"
    folder = with_weights(models, tmp_path / "shape", lambda tensors: tensors.update({name: torch.zeros(3, 32)}))
    with pytest.raises(CheckpointError, match="up_proj"):
        load(str(folder), draft="off")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_truncated_weights_are_a_checkpoint_error(share: float, models: Path, tmp_path: Path):
    folder = tmp_path / "short"
    shutil.copytree(models / "target", folder)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    refused(CheckpointError, load, str(folder), draft="off")


async def test_astream_gives_the_same_events(llm: LLM):
    events = [event async for event in llm.astream(STORY, max_tokens=10, temperature=0)]
    assert events[-1].type == "done"
    text = "".join(event.text for event in events if isinstance(event, Step))
    assert text == llm.generate(STORY, max_tokens=10, temperature=0).text


async def test_astream_raises_what_stream_raises(llm: LLM):
    with pytest.raises(ContextOverflow):
        [event async for event in llm.astream("word " * 5000)]


def test_a_prompt_that_is_too_long_is_told_what_helps_and_nothing_else(llm: LLM, models: Path):
    def hint(llm: LLM, *roles: str, last: str = "word " * 5000) -> str:
        turns = [{"role": role, "content": "word " * 5000} for role in roles]
        turns[-1]["content"] = last
        with pytest.raises(ContextOverflow) as met:
            llm.generate(turns)
        return met.value.hint

    assert hint(llm, "user") == "Shorten it."
    assert hint(llm, "user", "assistant", "user", last="and?") == "Shorten it, or start a new chat."
    assert hint(llm, "user", "assistant", "user") == "Shorten it.", "in a new chat it would be as long"
    assert hint(llm, "system", "user", "assistant", "user", last="and?") == "Shorten it.", "the system prompt stays"
    with open_target(models, ctx=32) as small:
        assert hint(small, "user", last="word " * 60) == "Shorten it, or raise --ctx, up to 512."
        assert hint(small, "user") == "Shorten it.", "it would not fit there either"


def test_a_conversation_that_is_too_long_says_how_many_turns_must_go(llm: LLM):
    def turns_over(*contents: str, continues: bool = False) -> int:
        roles = itertools.cycle(("user", "assistant"))
        with pytest.raises(ContextOverflow) as met:
            llm.generate([{"role": next(roles), "content": content} for content in contents], continues=continues)
        return met.value.turns_over

    assert turns_over("word " * 5000, "yes", "and?") == 1
    assert turns_over("a", "b", "word " * 5000, "yes", "and?") == 2
    assert turns_over("a", "b", "word " * 5000) == 0
    assert turns_over("word " * 5000, "yes", "a tale", "once upon", continues=True) == 1
    assert turns_over("a", "b", "a tale", "word " * 5000, continues=True) == 0


def test_after_an_error_the_result_says_so(llm: LLM):
    stream = llm.stream("word " * 5000)
    with pytest.raises(ContextOverflow):
        stream.result()
    with pytest.raises(UsageError, match="The answer was not completed"):
        stream.result()


def test_options_of_a_chat_are_those_of_every_turn(llm: LLM):
    chat: Chat = llm.chat(max_tokens=3, temperature=0)
    assert len(chat.send("hello").tokens) <= 3
    assert len(chat.send("there").tokens) <= 3


def test_the_baseline_is_kept_over_turns_and_is_another_starts_affair(models: Path, monkeypatch: pytest.MonkeyPatch):
    """Ten probes give a figure; the next start has none before its own ten. A clock of the test's own: on a busy
    machine times are too uneven for a speed-up, and it is not shown."""
    ticks = itertools.count()
    monkeypatch.setattr("localspec.engine.decode.perf_counter", lambda: next(ticks) / 1000)
    monkeypatch.setattr("localspec.engine.policy.probes.FIRST_PROBES", range(2, 12))
    with open_target(models, draft="early-exit:2", k=3) as llm:
        assert llm.generate(STORY, max_tokens=2, temperature=0).stats.speedup is None
        stats = llm.generate(STORY, max_tokens=60, temperature=0).stats
        assert stats.baseline_tps
        assert stats.speedup
    with open_target(models, draft="early-exit:2", k=3) as llm:
        stats = llm.generate(STORY, max_tokens=4, temperature=0).stats
        assert (stats.baseline_tps, stats.speedup) == (None, None)


def test_eight_bits_are_the_default_on_a_cpu(models: Path):
    with load(str(models / "target"), draft="off", device="cpu", threads=1) as llm:
        assert llm.ready.model.quant == "int8"


def test_a_tokenizer_with_more_ids_than_the_model_has_rows_is_refused_at_open(models: Path, tmp_path: Path):
    small = save_snapshot(tmp_path / "small", gpt2_like(), template=CHATML, vocab_size=390)
    error = refused(CheckpointError, load, str(small), draft="off")
    assert "tokenizer.json has ids up to 399 and the model 390 rows" in error.message
    refused(CheckpointError, open_target, models, draft=str(small))


def test_a_turn_without_an_answer_is_taken_back(llm: LLM):
    chat = llm.chat(max_tokens=6, temperature=0)
    first = chat.send("hello there")
    turns = list(chat.messages)
    with pytest.raises(ContextOverflow):
        chat.send("word " * 5000)
    assert chat.messages == turns
    chat._options = {"temperature": -1}
    with pytest.raises(UsageError):
        chat.retry()
    assert chat.messages == turns
    chat._options = {"max_tokens": 6, "temperature": 0}
    assert chat.retry().text == first.text
    assert chat.messages == turns
    assert chat.send("again").text


def test_an_old_answers_result_does_not_take_later_turns_back(llm: LLM):
    chat = llm.chat(max_tokens=4, temperature=0)
    stream = chat.stream("hello")
    said = stream.result()
    chat.send("more")
    assert stream.result() == said
    assert len(chat.messages) == 4


def test_closing_twice_does_no_harm_and_all_else_is_refused(models: Path):
    llm = open_target(models)
    chat, begun = llm.chat(), llm.stream(STORY, max_tokens=9)
    next(iter(begun))
    llm.close()
    llm.close()
    assert llm.ready.model.name == "target"
    for call in (lambda: llm.stream(STORY), lambda: llm.generate(STORY), lambda: chat.send("x"), llm.chat):
        assert "closed" in refused(UsageError, call).message
    with pytest.raises(UsageError, match="closed"):
        begun.result()


def test_two_answers_at_once_are_refused_and_the_first_is_not_disturbed(llm: LLM):
    whole = llm.generate(STORY, max_tokens=20, temperature=0).text
    first = llm.stream(STORY, max_tokens=20, temperature=0)
    never_begun = llm.stream("something else")
    events = iter(first)
    while not isinstance(next(events), Step):
        pass
    for _ in range(2):
        refused(UsageError, llm.generate, "something else", max_tokens=3)
    with pytest.raises(UsageError, match="another answer"):
        never_begun.result()
    assert first.result().text == whole
    assert llm.generate(STORY, max_tokens=20, temperature=0).text == whole


@pytest.mark.parametrize("way", ["closed", "dropped", "failed"])
def test_an_answer_that_is_given_up_frees_the_model(way: str, llm: LLM):
    whole = llm.generate(STORY, max_tokens=20, temperature=0).text
    stream = llm.stream("word " * 5000 if way == "failed" else STORY, max_tokens=20, temperature=0)
    if way == "failed":
        refused(ContextOverflow, stream.result)
    else:
        next(iter(stream))
    if way == "closed":
        stream.close()
        assert refused(UsageError, stream.result).message == "The answer was not completed."
    del stream
    assert llm.generate(STORY, max_tokens=20, temperature=0).text == whole


def test_with_no_folder_for_the_state_a_model_answers_all_the_same(models: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_STATE_DIR", "/dev/null/x")
    monkeypatch.setattr("localspec.engine.policy.probes.FIRST_PROBES", range(2, 12))
    with open_target(models, draft="early-exit:2", k=3) as llm:
        assert llm.generate(STORY, max_tokens=60, temperature=0).stats.speedup


def known_as(models: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, draft: str) -> None:
    """A models.toml in which `known` is the target with this draft."""
    file = folder / "models.toml"
    file.write_text(f"schema_version = 1\n[models.known]\npath = '{models / 'target'}'\n{draft}")
    monkeypatch.setattr(
        "localspec.models.catalog.paths.packaged", lambda name: file if name == "models.toml" else Path(name)
    )


@pytest.mark.parametrize(("asked", "k", "expected"), [("auto", "auto", 3), ("auto", 5, 5), ("small", "auto", 2)])
def test_the_catalogues_draft_length_counts_where_the_user_says_nothing(
    asked: str, k: str | int, expected: int, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drafts = "[models.known.draft]\nkind = 'early-exit'\nexit_layer = 2\nk = 3\n"
    drafts += f"[models.known.drafts.small]\nkind = 'model'\nmodel = '{models / 'draft'}'\nk = 2"
    known_as(models, tmp_path, monkeypatch, drafts)
    with load("known", draft=asked, k=k, threads=1) as llm:
        assert llm.ready.spec.k == expected


def test_a_draft_of_the_catalogue_that_is_not_here_costs_a_notice(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    known_as(models, tmp_path, monkeypatch, "[models.known.draft]\nkind = 'model'\nmodel = '/no/such'")
    events = told(LoadRequest.of("known", quant="fp32", threads=1))
    assert [(event.level, event.code) for event in events if isinstance(event, Notice)] == [
        ("warning", "not_downloaded")
    ]
    assert isinstance(events[-1], Ready)
    assert events[-1].spec.kind == "lookup"


def test_a_gpu_does_not_need_the_hosts_memory(models: Path, monkeypatch: pytest.MonkeyPatch):
    class Full:
        available = 0

    monkeypatch.setattr("psutil.virtual_memory", Full)
    snapshot = open_snapshot(models / "target")
    assert make_plan(snapshot, PlanRequest(device="cuda")).weight_format.name == "bf16"
    for device in ("cpu", "auto"):
        refused(DoesNotFit, make_plan, snapshot, PlanRequest(device=device))


def test_a_config_without_a_context_is_planned_with_its_familys(models: Path):
    snapshot = open_snapshot(models / "target")
    del snapshot.config["max_position_embeddings"]
    assert (
        make_plan(snapshot, PlanRequest(WeightOptions("fp32"))).context == LEFT_OUT["llama"]["max_position_embeddings"]
    )


@pytest.mark.parametrize(("context", "dtype"), [(512, torch.float32), (1 << 24, torch.bfloat16)])
def test_the_plan_counts_the_kv_store_that_is_made(models: Path, context: int, dtype: torch.dtype):
    snapshot = open_snapshot(models / "target")
    arch = read_arch(snapshot.config)
    cache = Cache(arch, context, dtype=kv_dtype(arch, context, torch.float32), device="meta")
    assert cache.dtype == dtype
    assert footprint(snapshot, find_format("fp32"), context).kv == cache.num_bytes


@pytest.mark.parametrize("said", [None, "0"])
def test_nothing_asks_the_network_unless_the_user_says_so(
    said: str | None, models: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    if said:
        monkeypatch.setenv("HF_HUB_OFFLINE", said)
    with open_target(models):
        assert os.environ["HF_HUB_OFFLINE"] == (said or "1")


def test_each_token_has_its_log_probability_and_the_likeliest(llm: LLM):
    plain = llm.generate(STORY, max_tokens=12, temperature=0)
    result = llm.generate(STORY, max_tokens=12, temperature=0, logprobs=2)
    assert [token.id for token in result.tokens] == [token.id for token in plain.tokens]
    for token in result.tokens:
        own, first, second = token.logprobs
        assert (own.id, own.logprob) == (token.id, first.logprob)  # it is greedy
        assert 0 > first.logprob >= second.logprob


@pytest.mark.parametrize("count", [-1, 21])
def test_a_number_of_likeliest_tokens_out_of_range_is_refused(llm: LLM, count: int):
    with pytest.raises(UsageError, match=f"logprobs {count} is out of range"):
        llm.generate(STORY, logprobs=count)
