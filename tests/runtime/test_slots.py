"""Several answers at once: each is to the letter what it is alone, whatever happens to the others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from localspec.core.drain import drain
from localspec.core.events import AnyEvent, Done, Failure, Notice, Prefill, Ready, Step
from localspec.core.requests import ChangeDrafter, GenerateRequest, LoadRequest, Message, SamplingOptions, SpecOptions
from localspec.engine.protocols import Choice, Draft
from localspec.engine.session import Session
from localspec.runtime.model import Model
from localspec.runtime.open import open_model
from localspec.runtime.slots import Slots
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, byte_level, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

FORMATS = ["fp64", "int8"]
DRAFTS = [
    ("off", "int8"),
    *product(("early-exit:2", "{draft}"), FORMATS),
    ("lookup", "int8"),
    ("lookup+early-exit:1", "fp64"),
    *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("off", "fp64"), ("lookup", "fp64"))),
    *(pytest.param(draft, "int4", marks=pytest.mark.slow) for draft in ("early-exit:2", "{draft}", "lookup")),
]
TEXTS = (
    "The quick brown fox jumps over the lazy dog",
    "a b a b a b a b a b",
    "hello there general",
    "one",
    "Once upon a time there was a fox. " * 9,
    "x y z " * 5,
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a draft model for it, and one with another tokenizer."""
    top = tmp_path_factory.mktemp("models")
    save_snapshot(top / "target", gpt2_like(), template=CHATML, eos="<|im_end|>")
    save_snapshot(top / "draft", gpt2_like(), seed=1, num_hidden_layers=1)
    save_snapshot(top / "stranger", byte_level("<|endoftext|>", vocab_size=300), seed=3)
    return top


@pytest.fixture
def opened(models: Path) -> Iterator[Callable[..., Slots]]:
    """Opens the target; all are closed at the end."""
    made: list[Slots] = []

    def open_with(draft: str = "off", parallel: int = 3, heard: list[Any] | None = None, **options: Any) -> Slots:
        asked = {"quant": "fp64", "threads": 1, "ctx": 256, **options}
        draft = draft.format(draft=models / "draft", stranger=models / "stranger")
        request = LoadRequest.of(str(models / "target"), draft=draft, parallel=parallel, **asked)
        made.append(drain(open_model(request), [].append if heard is None else heard.append))
        return made[-1]

    yield open_with
    for slots in made:
        slots.close()


def request(number: int, *, seed: int | None = None, most: int = 0, **more: Any) -> GenerateRequest:
    """One of different length, prompt and sampling for every number."""
    sampling = SamplingOptions(temperature=0) if seed is None else SamplingOptions(temperature=0.9, seed=seed + number)
    text = f"{number} {TEXTS[number % len(TEXTS)]}"
    asked = {"prompt": text} if number % 2 else {"messages": (Message("user", text),)}
    return GenerateRequest(**asked, max_tokens=most or 5 + 7 * (number % 5), sampling=sampling, **more)


class Asked:
    """An answer under way: its events, and a switch that stops it."""

    def __init__(self, slots: Slots, asked: GenerateRequest) -> None:
        self.events: list[AnyEvent] = []
        self.is_stopped = False
        slots.start(asked, self.events.append, lambda: self.is_stopped)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Step))

    @property
    def steps(self) -> int:
        return sum(isinstance(event, Step) for event in self.events)

    @property
    def end(self) -> AnyEvent:
        return self.events[-1]

    @property
    def reason(self) -> str:
        assert isinstance(self.end, Done), self.end
        return self.end.finish_reason


def run(slots: Slots) -> None:
    while slots.step():
        pass


def alone(slots: Slots, asked: GenerateRequest) -> str:
    """The text of the request by itself."""
    answer = Asked(slots, asked)
    run(slots)
    assert isinstance(answer.end, Done), answer.end
    return answer.text


@pytest.mark.parametrize(("draft", "quant"), DRAFTS)
def test_texts_of_concurrent_requests_are_those_of_each_alone(opened: Callable[..., Slots], draft: str, quant: str):
    """Six of different lengths, greedy and with a seed; then on three slots, where others join in the middle."""
    requests = [request(number, seed=11 if number >= 3 else None) for number in range(6)]
    slots, single = opened(draft, 6, quant=quant), opened(draft, 1, quant=quant)
    expected = [alone(single, one) for one in requests]
    at_once = [Asked(slots, one) for one in requests]
    assert slots.answering == 6
    run(slots)
    assert [answer.text for answer in at_once] == expected
    slots = opened(draft, 3, quant=quant)
    waiting, answers = list(requests), list[Asked]()
    while waiting or slots.answering:
        while waiting and slots.has_free:
            answers.append(Asked(slots, waiting.pop(0)))
        slots.step()
    assert [answer.text for answer in answers] == expected
    assert {answer.reason for answer in answers} <= {"length", "stop"}


@pytest.mark.parametrize(
    ("draft", "quant"), [("off", "fp64"), ("early-exit:1", "fp64"), ("{draft}", "fp64"), ("early-exit:1", "int8")]
)
def test_offloaded_layers_are_streamed_for_two_at_once(opened: Callable[..., Slots], draft: str, quant: str):
    """Once for both: every text is the one of a model that is in memory whole, also where one of the two is stopped."""
    requests = [request(number, seed=11 if number >= 2 else None, most=12) for number in range(4)]
    whole, slots = opened(draft, 1, quant=quant), opened(draft, 2, quant=quant, device="offload")
    assert slots.ready.memory.target_bytes < whole.ready.memory.target_bytes
    assert slots.ready.parallel == 2
    expected = [alone(whole, one) for one in requests]
    for pair in ((0, 2), (1, 3)):
        at_once = [Asked(slots, requests[number]) for number in pair]
        run(slots)
        assert [answer.text for answer in at_once] == [expected[number] for number in pair]
    stopped, other = Asked(slots, requests[0]), Asked(slots, requests[1])
    while stopped.steps < 2:
        slots.step()
    stopped.is_stopped = True
    run(slots)
    assert (stopped.reason, other.text) == ("cancelled", expected[1])


def test_weights_and_prompter_are_loaded_once_and_caches_are_each_its_own(opened: Callable[..., Slots]):
    heard: list[AnyEvent] = []
    slots = opened("{draft}", 3, heard)
    single = opened("{draft}", 1)
    models = [slots.first, *slots._others]
    for position in (0, 1):
        decoders = [model.decoders[position] for model in models]
        assert len({id(decoder.weights) for decoder in decoders}) == 1
        assert len({id(decoder.cache) for decoder in decoders}) == 3
    (ready,) = [event for event in heard if isinstance(event, Ready)]
    assert ready == slots.ready
    assert (ready.parallel, single.ready.parallel) == (3, 1)
    memory, one = ready.memory, single.ready.memory
    assert memory.kv_bytes == 3 * one.kv_bytes
    assert (memory.target_bytes, memory.drafter_bytes) == (one.target_bytes, one.drafter_bytes)


@pytest.mark.parametrize("changed", [False, True])
def test_the_policies_of_all_slots_know_each_other(opened: Callable[..., Slots], changed: bool):
    slots = opened("early-exit:2", 3)
    if changed:
        list(slots.change_drafter(ChangeDrafter("early-exit:1")))
    policies = [model.state.parts.drafting.policy.auto for model in (slots.first, *slots._others)]
    assert all(policy.company is slots._batch for policy in policies)
    assert len({id(policy.shared) for policy in policies}) == 1
    assert slots._batch is not None


def test_a_request_takes_the_slot_that_has_its_conversation(opened: Callable[..., Slots]):
    slots = opened("off", 3)
    first = [Message("user", "hello there general")]
    other = [Message("user", "The quick brown fox")]

    def say(turns: list[Message]) -> Asked:
        asked = GenerateRequest(messages=tuple(turns), max_tokens=8, sampling=SamplingOptions(temperature=0))
        answer = Asked(slots, asked)
        run(slots)
        turns += [Message("assistant", answer.text), Message("user", "and then?")]
        return answer

    cached = {}
    for name, turns in (("first", first), ("other", other), ("first again", first), ("other again", other)):
        cached[name] = next(event.cached for event in say(turns).events if isinstance(event, Prefill))
    assert cached["first"] == 0
    assert cached["first again"] > 10
    assert cached["other again"] > 10


def test_a_new_conversation_takes_the_slot_that_was_not_used_for_longest(opened: Callable[..., Slots]):
    slots = opened("off", 2)
    for number in (1, 3, 5):
        alone(slots, request(number))
    assert [model.state.session.tokens[0] for model in (slots.first, *slots._others)] == [
        slots.first.prompt_ids(request(number))[0] for number in (5, 3)
    ]


def test_a_cancelled_answer_ends_before_its_next_forward_and_harms_no_other(opened: Callable[..., Slots]):
    slots = opened("early-exit:2", 3)
    expected = alone(opened("early-exit:2", 1), request(2, most=30))
    answers = [Asked(slots, request(number, most=30)) for number in (1, 2, 3)]
    while not answers[0].steps:
        slots.step()
    answers[0].is_stopped = True
    before = answers[0].steps
    run(slots)
    assert answers[0].reason == "cancelled"
    assert answers[0].steps <= before + 1  # of the forward that was computed already
    assert answers[1].text == expected
    assert [answer.reason for answer in answers[1:]] == ["length", "length"]


def test_an_answer_that_outgrows_its_context_and_a_prompt_that_does_end_alone(opened: Callable[..., Slots]):
    slots, single = opened("lookup", 3), opened("lookup", 1)
    full = GenerateRequest(prompt="a b " * 60, sampling=SamplingOptions(temperature=0.9, seed=1))
    too_long = GenerateRequest(prompt="a b " * 600)
    answers = [Asked(slots, one) for one in (full, too_long, request(3))]
    run(slots)
    assert answers[0].reason in ("context", "stop")
    assert answers[0].text == alone(single, full)
    assert isinstance(answers[1].end, Failure)
    assert answers[1].end.code == "context_overflow"
    assert answers[2].text == alone(single, request(3))


def spoiled(model: Model, forwards: int) -> None:
    """The target's logits are not numbers after so many forwards."""
    target = model.decoders[0]
    forward, left = target.forward, [forwards]

    def failing(ids: Tensor, *given: Any, **named: Any) -> Tensor:
        logits = forward(ids, *given, **named)
        left[0] -= 1
        return logits if left[0] > 0 else torch.full_like(logits, torch.nan)

    target.forward = failing  # type: ignore[method-assign]


def test_one_that_is_not_a_number_fails_alone(opened: Callable[..., Slots]):
    slots, single = opened("early-exit:2", 3), opened("early-exit:2", 1)
    spoiled(slots.first, 5)
    answers = [Asked(slots, request(number, seed=4, most=25)) for number in (1, 2, 3)]
    run(slots)
    assert isinstance(answers[0].end, Failure)
    assert answers[0].end.code == "engine"
    assert [answer.text for answer in answers[1:]] == [
        alone(single, request(number, seed=4, most=25)) for number in (2, 3)
    ]


@pytest.mark.parametrize("quant", FORMATS)
def test_a_drafter_that_raises_is_dropped_for_its_own_answer(opened: Callable[..., Slots], quant: str):
    """Also the first one's, whose weights and threads are the others'."""
    slots, single = opened("{draft}", 3, quant=quant), opened("off", 1, quant=quant)

    def fail(_: Session, __: Choice) -> Draft:
        raise IndexError("it has a fault")

    slots.first.state.session.drafter.drafter.draft = fail  # type: ignore[attr-defined]
    slots.steer(SpecOptions("on", 3))
    answers = [Asked(slots, request(number, most=25)) for number in (1, 2, 3)]
    run(slots)
    assert [answer.text for answer in answers] == [alone(single, request(number, most=25)) for number in (1, 2, 3)]
    notices = [sum(isinstance(event, Notice) for event in answer.events) for answer in answers]
    assert notices == [1, 0, 0]
    drafted = [sum(event.drafted for event in answer.events if isinstance(event, Step)) for answer in answers]
    assert drafted[0] == 0
    assert min(drafted[1:]) > 0


def test_one_requests_options_are_its_own_while_others_run_and_steering_holds_for_all_others(
    opened: Callable[..., Slots],
):
    slots = opened("early-exit:2", 3)
    slots.steer(SpecOptions("on", 4))
    asked = [SpecOptions("off"), SpecOptions("on", 1), None]
    answers = [Asked(slots, request(number, most=40, spec=options)) for number, options in enumerate(asked)]

    def drafts(answer: Asked) -> set[int]:
        return {event.drafted for event in answer.events if isinstance(event, Step) and event.kind == "draft"}

    while not drafts(answers[2]):
        slots.step()
    assert slots.steer(SpecOptions("on", 2)).k == 2
    run(slots)
    assert drafts(answers[0]) == set()
    assert drafts(answers[1]) == {1}
    assert {4, 2} <= drafts(answers[2]) <= {4, 3, 2, 1}
    after = Asked(slots, request(1, most=40))
    run(slots)
    assert max(drafts(after)) == 2


def test_another_drafter_drafts_in_all_slots_between_two_answers(opened: Callable[..., Slots]):
    slots, single = opened("early-exit:2", 3), opened("off", 1)
    busy = Asked(slots, request(1))
    with pytest.raises(Exception, match="in the middle"):
        list(slots.change_drafter(ChangeDrafter("lookup")))
    run(slots)
    assert busy.reason == "length"
    events = list(slots.change_drafter(ChangeDrafter("lookup", 4, "on")))
    assert [event for event in events if isinstance(event, Ready)] == [slots.ready]
    assert slots.ready.spec.kind == "lookup"
    asked = [GenerateRequest(prompt="zz " * 20, max_tokens=20, sampling=SamplingOptions(temperature=0))] * 3
    answers = [Asked(slots, one) for one in asked]
    run(slots)
    assert {answer.text for answer in answers} == {alone(single, asked[0])}
    for answer in answers:
        assert sum(event.drafted for event in answer.events if isinstance(event, Step)) > 0


def test_a_drafter_that_cannot_be_had_twice_leaves_one_answer_at_a_time(opened: Callable[..., Slots]):
    heard: list[Any] = []
    slots = opened("{stranger}", 3, heard)
    assert len(slots) == slots.ready.parallel == 1
    (notice,) = [event for event in heard if isinstance(event, Notice) and event.code == "parallel"]
    assert notice.level == "warning"
    assert notice.message == "One answer is written at a time: its drafter has another tokenizer."


def test_closing_in_the_middle_frees_all(opened: Callable[..., Slots]):
    slots = opened("{draft}", 3)
    for number in range(3):
        Asked(slots, request(number))
    slots.step()
    slots.close()
    slots.close()
    assert not slots.step()


@pytest.mark.parametrize(
    ("arrivals", "quant"),
    [
        (60, "fp64"),
        *(
            pytest.param(1000, quant, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])
            for quant in ("fp64", "int8", "int4")
        ),
    ],
)
def test_random_arrivals_and_cancels_change_no_text(opened: Callable[..., Slots], arrivals: int, quant: str):
    """What is cancelled has the beginning of its text."""
    slots, single = opened("lookup+early-exit:1", 4, quant=quant, ctx=128), opened("off", 1, quant=quant, ctx=128)
    draw = random.Random(7)
    known: dict[tuple[int, int | None, int], str] = {}
    left, open_now, ended = arrivals, list[tuple[Any, Asked]](), list[tuple[Any, Asked]]()
    while left or open_now:
        while left and slots.has_free and draw.random() < 0.4:
            key = draw.randrange(4), draw.choice([None, 1, 2]), draw.choice([1, 3, 7])
            open_now.append((key, Asked(slots, request(key[0], seed=key[1], most=key[2]))))
            left -= 1
        if open_now and draw.random() < 0.05:
            draw.choice(open_now)[1].is_stopped = True
        slots.step()
        ended += [one for one in open_now if one[1].events and isinstance(one[1].end, Done | Failure)]
        open_now = [one for one in open_now if not (one[1].events and isinstance(one[1].end, Done | Failure))]
    for key, answer in ended:
        if key not in known:
            known[key] = alone(single, request(key[0], seed=key[1], most=key[2]))
        assert answer.text == known[key] if answer.reason != "cancelled" else known[key].startswith(answer.text)
    assert len(ended) == arrivals


def test_rounds_beside_other_answers_say_so_and_make_no_speed_up(opened: Callable[..., Slots]):
    """Their time is that of everybody's rows."""
    slots = opened("early-exit:2", 2, k=2)
    together = [Asked(slots, request(number, most=40)) for number in (1, 3)]
    run(slots)
    for answer in together:
        assert any(event.shared for event in answer.events if isinstance(event, Step))
    single = Asked(slots, request(5, most=40))
    run(slots)
    assert not any(event.shared for event in single.events if isinstance(event, Step))
