"""C2: memory that runs out in an answer costs the drafter first; only then the answer, and never what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import msgspec
import pytest
import torch

from localspec.core.errors import EngineError
from localspec.core.events import AnyEvent, Done, Notice, Prefill, Step
from localspec.core.requests import SpecOptions
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.model import ModelDrafter
from localspec.runtime.api import LLM, load, request_of
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

FULL = 20
FEW = (1, 7)
PROMPT = "the quick brown fox"
LONG = PROMPT * 6
GREEDY: dict[str, Any] = {"max_tokens": 90, "temperature": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "draft", gpt2_like(), seed=1, num_hidden_layers=1)


@pytest.fixture
def opened(folder: Path) -> Iterator[Callable[[str], LLM]]:
    """All of them closed at the end."""
    models = []

    def opened(drafter: str) -> LLM:
        models.append(load(str(folder), draft=drafter, k=2, quant="fp64"))
        return models[-1]

    yield opened
    for model in models:
        model.close()


@pytest.fixture
def llm(opened: Callable[[str], LLM]) -> LLM:
    return opened("early-exit:2")


class Failing:
    """So many calls go through; then `times` of them find no memory. `watch` is called before each that comes later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
        self.real, self.left, self.times = getattr(kind, name), 10**9, 1
        self.of: Any = None  # only this one's calls
        self.watch: Callable[[], object] = lambda: None
        monkeypatch.setattr(kind, name, lambda *given, **named: self(*given, **named))  # noqa: PLW0108 - a method

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self.of is None or given[0] is self.of:
            self.left -= 1
            if 0 <= -1 - self.left < self.times:
                raise torch.OutOfMemoryError("CUDA out of memory")
            if self.left < 0:
                self.watch()
        return self.real(*given, **named)


def rounds() -> Any:
    return pytest.mark.parametrize(
        "round", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in range(1, FULL + 1)]
    )


def text(events: list[AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Step))


def notices(events: list[AnyEvent]) -> list[str]:
    return [event.code for event in events if isinstance(event, Notice)]


def until_it_fails(llm: LLM) -> list[AnyEvent]:
    events: list[AnyEvent] = []
    with pytest.raises(EngineError) as met:
        events.extend(llm.stream(PROMPT, **GREEDY))
    assert (met.value.message, "--ctx" in met.value.hint) == ("Memory ran out while answering.", True)
    return events


@pytest.mark.sampled(2)
@rounds()
def test_no_memory_to_verify_in_any_round_costs_the_drafter_and_no_token(
    llm: LLM, round: int, monkeypatch: pytest.MonkeyPatch
):
    whole = llm.generate(PROMPT, **GREEDY).text
    forward = Failing(monkeypatch, Decoder, "forward")
    llm.generate("another text", max_tokens=2)  # so that the prompt is read again
    forward.left = round
    events = list(llm.stream(PROMPT, **GREEDY))
    assert text(events) == whole
    assert notices(events) == ["drafter_failed"]
    steps = [event for event in events if isinstance(event, Step)]
    assert [step.drafted > 0 for step in steps if steps.index(step) >= round - 1] == [False] * (len(steps) - round + 1)
    again = list(llm.stream(PROMPT, **GREEDY))
    assert (text(again), notices(again)) == (whole, [])


@rounds()
def test_no_memory_even_without_a_drafter_ends_the_answer_and_keeps_its_text(
    llm: LLM, round: int, monkeypatch: pytest.MonkeyPatch
):
    whole = llm.generate(PROMPT, **GREEDY).text
    forward = Failing(monkeypatch, Decoder, "forward")
    llm.generate("another text", max_tokens=2)
    forward.left, forward.times = round, 2
    said = text(until_it_fails(llm))
    assert said or round == 1
    assert whole.startswith(said)
    assert llm.generate(PROMPT, **GREEDY).text == whole


@pytest.mark.sampled(2)
@rounds()
def test_no_memory_to_draft_in_any_round_costs_the_drafter_and_nothing_else(
    llm: LLM, round: int, monkeypatch: pytest.MonkeyPatch
):
    whole = llm.generate(PROMPT, **GREEDY).text
    drafted = Failing(monkeypatch, EarlyExitDrafter, "draft")
    drafted.left = round - 1
    events = list(llm.stream(PROMPT, **GREEDY))
    assert text(events) == whole
    assert notices(events) == ["drafter_failed"]
    assert llm.generate(PROMPT, **GREEDY).text == whole


@pytest.mark.sampled(3)
@rounds()
@pytest.mark.parametrize("times", [1, 2])
def test_no_memory_to_read_the_prompt_of_any_turn(llm: LLM, round: int, times: int, monkeypatch: pytest.MonkeyPatch):
    forward = Failing(monkeypatch, Decoder, "forward")
    chat, alone = llm.chat(max_tokens=3, temperature=0), llm.chat(max_tokens=3, temperature=0)
    for turn in range(1, round):
        chat.send(str(turn))
    said = list(chat.messages)
    forward.left, forward.times = 0, times
    if times == 2:
        with pytest.raises(EngineError):
            chat.send(str(round))
        assert chat.messages == said, "the turn that failed is taken back"
    answered = chat.send(str(round)).text
    for turn in range(1, round):
        alone.send(str(turn))
    assert alone.send(str(round)).text == answered


def test_a_prompt_that_is_read_on_counts_as_read_and_not_as_cached(llm: LLM, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.engine.session.PREFILL_CHUNK", 16)
    expected = llm.generate(LONG, **GREEDY)
    llm.generate("another text", max_tokens=2)
    forward = Failing(monkeypatch, Decoder, "forward")
    forward.left = 1  # the first chunk goes through
    events = list(llm.stream(LONG, **GREEDY))
    read = [event for event in events if isinstance(event, Prefill)]
    assert {event.cached for event in read} == {0}
    assert [event.done for event in read] == sorted(event.done for event in read)
    assert (text(events), notices(events)) == (expected.text, ["drafter_failed"])


def held(llm: LLM) -> list[ref[Any]]:
    """What a draft model has in memory."""
    drafter = llm._model.state.session.drafter
    assert isinstance(drafter, Guarded)
    assert isinstance(drafter.drafter, ModelDrafter)
    decoder = drafter.drafter.decoder
    assert isinstance(decoder, Decoder)
    weights = decoder.weights
    return [ref(one) for one in (decoder, decoder.cache.store, weights.embedding, weights.layers[0].attention_norm)]


def alive(refs: list[ref[Any]]) -> list[bool]:
    return [one() is not None for one in refs]


@pytest.mark.parametrize("name", ["forward", "draft"])
def test_the_memory_of_a_draft_model_is_free_before_its_target_tries_again(
    opened: Callable[[str], LLM], draft: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    """It fails in the target, or in the draft model itself and then in the target: in the same round."""
    llm = opened(str(draft))
    whole, gone = llm.generate(PROMPT, **GREEDY).text, held(llm)
    assert all(alive(gone))
    at_retry: list[list[bool]] = []
    forward = Failing(monkeypatch, Decoder, "forward")
    forward.of, forward.left = llm._model.state.parts.decoders[0], 2
    forward.watch = lambda: at_retry.append(alive(gone))
    if name == "draft":
        Failing(monkeypatch, ModelDrafter, "draft").left = 2
    events = list(llm.stream(PROMPT, **GREEDY))
    assert (text(events), notices(events)) == (whole, ["drafter_failed"])
    assert at_retry[0] == [False] * 4
    done = events[-1]
    assert isinstance(done, Done)
    assert done.stats.drafter_bytes == 0
    assert done.stats.read_bytes > 0
    llm.close()


def test_the_memory_of_a_draft_model_that_failed_is_free_after_the_round(
    opened: Callable[[str], LLM], draft: Path, monkeypatch: pytest.MonkeyPatch
):
    llm = opened(str(draft))
    whole, gone = llm.generate(PROMPT, **GREEDY).text, held(llm)
    Failing(monkeypatch, ModelDrafter, "read").left = 3
    told = None
    for event in llm.stream(PROMPT, **GREEDY):
        if isinstance(event, Notice):
            told = alive(gone)
    assert told == [False] * 4
    assert llm.generate(PROMPT, **GREEDY).text == whole


def test_a_drafter_that_only_rests_goes_too(opened: Callable[[str], LLM], draft: Path, monkeypatch: pytest.MonkeyPatch):
    """For this answer another drafts."""
    llm = opened(str(draft))
    whole, gone = llm.generate(PROMPT, **GREEDY).text, held(llm)
    asked = msgspec.structs.replace(request_of(PROMPT, max_tokens=90, temperature=0), exit_layer=2)
    forward = Failing(monkeypatch, Decoder, "forward")
    forward.of, forward.left = llm._model.state.parts.decoders[0], 2
    events = list(llm.answer(asked))
    assert (text(events), notices(events)) == (whole, ["drafter_failed"])
    assert alive(gone) == [False] * 4
    assert isinstance(llm._model.state.session.drafter, NoDrafter)
    assert llm.steer(SpecOptions("on")).switch == "off"
    again = list(llm.answer(asked))
    assert (text(again), notices(again)) == (whole, [])
