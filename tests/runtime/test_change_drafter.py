"""Another drafter for a model that is loaded: no weight of the target is read again, and the conversation stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.core.events import AnyEvent, Done, Failure, Loading, Notice, Prefill, Ready, Step
from localspec.core.requests import ChangeDrafter, GenerateRequest, LoadRequest, Message, SamplingOptions
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.model import ModelDrafter
from localspec.runtime import load_marks
from localspec.runtime.api import LLM, load
from localspec.runtime.worker import EngineProcess
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like, wordpiece_like

pytestmark = pytest.mark.heavy

QUESTIONS = ("hello there", "what is the quick brown fox?", "and then?", "who", "why is that so?", "tell me more")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a draft for it and one with another tokenizer."""
    top = tmp_path_factory.mktemp("models")
    save_snapshot(top / "target", gpt2_like(), template=CHATML, eos="<|im_end|>")
    save_snapshot(top / "draft", gpt2_like(), seed=1, num_hidden_layers=1)
    save_snapshot(top / "stranger", wordpiece_like(), seed=3)
    return top


def opened(models: Path, **options: Any) -> LLM:
    return load(str(models / "target"), **{"draft": "off", "k": 3, "quant": "fp64", "threads": 1, **options})


def change(llm: LLM, draft: str) -> list[AnyEvent]:
    return list(llm._model.change_drafter(ChangeDrafter(draft, 3)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.9, "seed": 5}], ids=["greedy", "seeded"])
def test_a_conversation_has_the_text_of_plain_decoding_whoever_drafts_next(models: Path, sampling: dict[str, Any]):
    """In float64, where it must be exact, token for token; each turn is drafted by another, and none is read again."""
    drafts = ("off", "early-exit:1", str(models / "draft"), "early-exit:3", "off", str(models / "draft"))
    with opened(models) as plain, opened(models) as llm:
        expected, changed = plain.chat(max_tokens=24, **sampling), llm.chat(max_tokens=24, **sampling)
        for place, (question, draft) in enumerate(zip(QUESTIONS, drafts, strict=True)):
            card = llm.change_drafter(draft, k=3)
            assert card == llm.ready.spec
            assert card.kind == {"off": "off", str(models / "draft"): "model"}.get(draft, "early-exit")
            result, wanted = changed.send(question), expected.send(question)
            assert [token.id for token in result.tokens] == [token.id for token in wanted.tokens]
            assert (result.stats.draft_n > 0) == (draft != "off")
            assert result.stats.cached_n == wanted.stats.cached_n, "the conversation stays in the cache"
            assert (result.stats.cached_n > 0) == (place > 0)


def test_only_a_draft_models_own_weights_are_read_and_they_are_freed(models: Path):
    with opened(models, draft="early-exit:2") as llm:
        before = llm.ready.memory
        target = llm._model.state.parts.target

        *progress, ready = change(llm, str(models / "draft"))
        assert isinstance(ready, Ready)
        stages = {event.stage for event in progress if isinstance(event, Loading)}
        assert "loading draft weights" in stages
        assert "loading weights" not in stages
        assert ready.memory.drafter_bytes > 0
        assert ready.memory.kv_bytes > before.kv_bytes
        assert ready.memory.bandwidth_peak_gbs == before.bandwidth_peak_gbs
        assert models / "draft" in load_marks.loaded()
        guarded = llm._model.state.session.drafter
        assert isinstance(guarded, Guarded)
        assert isinstance(guarded.drafter, ModelDrafter)

        *progress, ready = change(llm, "early-exit:1")
        assert isinstance(ready, Ready)
        assert not [event for event in progress if isinstance(event, Loading)]
        assert ready.memory == before
        assert models / "draft" not in load_marks.loaded()
        assert llm._model.state.parts.decoders == (target,)


def test_what_was_measured_and_steered_of_the_drafter_before_is_forgotten(models: Path):
    with opened(models, draft="early-exit:2", k="auto") as llm:
        llm.generate("The quick brown fox", max_tokens=30, temperature=0)
        policy = llm._model.state.parts.drafting.policy
        assert policy.auto.explorer.rounds > 0
        change(llm, "early-exit:1")
        assert llm._model.state.parts.drafting.policy is not policy
        assert llm._model.state.parts.drafting.policy.auto.explorer.rounds == 0
        assert llm.ready.spec.exit_layer == 1
        assert llm._model.state.tally.stats.draft_n == 0


def test_an_exit_that_nobody_trained_is_said_and_one_that_is_none_refused_before_plain_goes_on(models: Path):
    with opened(models, draft="early-exit:2") as llm:
        wanted = llm.generate("Once", max_tokens=8, temperature=0).text
        notice, ready = change(llm, "early-exit:1")
        assert isinstance(notice, Notice)
        assert notice.code == "untrained_exit"
        assert isinstance(ready, Ready)

        for draft, words in (("early-exit:99", "layer 99"), (str(models / "stranger"), "tokenizers differ")):
            ready, failed = change(llm, draft)
            assert isinstance(ready, Ready)
            assert (ready.spec.kind, ready.spec.reason) == ("off", "it failed")
            assert isinstance(failed, Notice)
            assert (failed.code, words in failed.message) == ("drafter_failed", True)
            assert llm.generate("Once", max_tokens=8, temperature=0).text == wanted


def until(events: Iterator[AnyEvent], *kinds: type[AnyEvent]) -> list[AnyEvent]:
    seen: list[AnyEvent] = []
    for event in events:
        seen.append(event)
        if isinstance(event, kinds):
            break
    return seen


def text(events: list[AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Step))


def test_another_drafter_comes_with_its_own_format(models: Path):
    """What was loaded in a format of its own does not forbid an early exit, which has none."""
    with opened(models, draft=str(models / "draft"), draft_quant="int4") as llm:
        narrow = llm.ready.memory.drafter_bytes
        assert llm.change_drafter("early-exit:1").exit_layer == 1
        llm.change_drafter(str(models / "draft"), draft_quant="int4")
        assert llm.ready.memory.drafter_bytes == narrow
        llm.change_drafter(str(models / "draft"))
        assert llm.ready.memory.drafter_bytes > narrow


@pytest.mark.usefixtures("warm_engines")
def test_the_engines_process_stays_and_answers_in_order(models: Path):
    """Asked for in the middle of an answer it waits for its end; the process is the same, and so is the cache."""
    request = LoadRequest.of(str(models / "target"), draft="early-exit:2", k=2, quant="fp64", threads=1)
    engine = EngineProcess(request, "tests.support.warm:open_verified")
    engine.start()
    events = engine.events()
    until(events, Ready)
    pid, ask = (
        engine.pid,
        GenerateRequest(
            messages=(Message("user", "hello there"),), max_tokens=40, sampling=SamplingOptions(temperature=0)
        ),
    )
    engine.ask(ask)
    engine.change_drafter(ChangeDrafter("early-exit:1", 4, "on"))
    engine.ask(ask)
    first = until(events, Done)
    between = until(events, Ready)
    again = until(events, Done)
    engine.close()
    assert not any(isinstance(event, Failure | Loading) for event in between)
    assert isinstance(between[-1], Ready)
    assert (between[-1].spec.exit_layer, between[-1].spec.k, between[-1].spec.mode) == (1, 4, "on")
    assert text(again) == text(first)
    prefill = next(event for event in again if isinstance(event, Prefill))
    assert prefill.cached > 0
    assert pid not in (None, os.getpid())
