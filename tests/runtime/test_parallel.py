"""Many prompts in Python, several at once; and an engine in a child process that answers several requests."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from localspec.core.errors import ContextOverflow, UsageError
from localspec.core.events import AnyEvent, Done, Prefill, Ready, Step
from localspec.core.requests import GenerateRequest, LoadRequest, SamplingOptions, SpecOptions
from localspec.runtime.api import LLM, load, request_of
from localspec.runtime.parallel import Answers
from localspec.runtime.worker import EngineProcess
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

PROMPTS = ["one", "The quick brown fox", "a b a b a b", "hello there general", "x y z x y z"]
GREEDY = SamplingOptions(temperature=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML)


@pytest.fixture
def llm(folder: Path) -> Iterator[LLM]:
    with load(folder, draft="early-exit:2", quant="fp64", threads=1, ctx=128, parallel=2) as opened:
        yield opened


def test_many_are_in_order_and_each_is_what_it_is_alone(llm: LLM):
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0.8, "seed": 5}
    many = llm.generate_many(PROMPTS, **options)
    assert [one.text for one in many] == [llm.generate(prompt, **options).text for prompt in PROMPTS]
    assert {one.finish_reason for one in many} == {"length"}
    assert llm.generate_many([]) == []
    assert llm.ready.parallel == 2


def test_they_come_as_they_are_ready(llm: LLM):
    requests = [request_of(prompt, max_tokens=most, temperature=0) for prompt, most in (("a b", 40), ("one", 2))]
    assert [number for number, _ in llm.answer_many(requests)] == [1, 0]


def test_beams_among_many_are_what_they_are_alone(llm: LLM):
    options: list[dict[str, Any]] = [{"max_tokens": 9 + number, "beams": 1 + 2 * (number % 2)} for number in range(5)]
    requests = [request_of(prompt, temperature=0, **more) for prompt, more in zip(PROMPTS, options, strict=True)]
    found = dict(llm.answer_many(requests))
    alone = [llm.generate(prompt, temperature=0, **more).text for prompt, more in zip(PROMPTS, options, strict=True)]
    assert [found[number].result().text for number in range(5)] == alone
    assert alone[1] != llm.generate(PROMPTS[1], temperature=0, max_tokens=10).text


def test_the_error_of_one_is_raised_for_many_and_kept_apart_where_each_is_asked_for(llm: LLM):
    prompts = ["one", "a b " * 200, "two"]
    with pytest.raises(ContextOverflow):
        llm.generate_many(prompts, max_tokens=3)
    answers = dict(llm.answer_many(request_of(prompt, max_tokens=3) for prompt in prompts))
    assert sorted(answers) == [0, 1, 2]
    assert len(answers[2].result().tokens) == 3
    with pytest.raises(ContextOverflow):
        answers[1].result()
    with pytest.raises(UsageError, match="no option 'colour'"):
        llm.generate_many(["a"], colour="red")
    with pytest.raises(UsageError, match="The prompts are a single text"):
        llm.generate_many("a")


def test_another_thread_is_refused_and_harms_nothing(llm: LLM):
    asked = [request_of(prompt, max_tokens=5, temperature=0) for prompt in PROMPTS[:2]]
    alone = [answer.result().text for _, answer in sorted(llm.answer_many(asked), key=lambda one: one[0])]
    answers = llm.answer_many([request_of("a", max_tokens=1), *asked])
    next(answers)
    with ThreadPoolExecutor(1) as other, pytest.raises(UsageError, match="in another thread"):
        other.submit(llm.generate_many, ["b"], max_tokens=2).result()
    found = {number: answer.result().text for number, answer in answers}
    assert [found[1], found[2]] == alone


def test_another_thread_does_not_go_on_with_answers_and_harms_nothing(llm: LLM):
    """What is under way is bound to the thread that began it."""
    asked = [request_of(prompt, max_tokens=3 + 9 * number, temperature=0) for number, prompt in enumerate(PROMPTS)]
    alone = [answer.result().text for _, answer in sorted(llm.answer_many(asked), key=lambda one: one[0])]
    answers = llm.answer_many(asked)
    number, first = next(answers)
    with ThreadPoolExecutor(1) as other:
        for act in (lambda: next(answers), answers.close, llm.close):
            with pytest.raises(UsageError, match=r"in another thread\. Continue in that thread"):
                other.submit(act).result()
    found = {number: first.result().text} | {number: answer.result().text for number, answer in answers}
    assert [found[number] for number in range(len(asked))] == alone


def test_answers_that_another_thread_drops_end_at_the_next_step(llm: LLM):
    held = [llm.answer_many(request_of(prompt, max_tokens=30) for prompt in PROMPTS)]
    next(held[0])
    with ThreadPoolExecutor(1) as other:
        other.submit(held.clear).result()
    assert len(llm.generate_many(PROMPTS, max_tokens=2)) == len(PROMPTS)
    assert llm._slots.answering == 0


def begin_and_keep(llm: LLM, kept: list[Answers]) -> None:
    """Takes the first answer while the second is under way, and ends with its answers held elsewhere."""
    kept.append(llm.answer_many([request_of("one", max_tokens=1), request_of("a b", max_tokens=60)]))
    next(kept[0])


def test_a_thread_that_has_ended_leaves_all_slots_free(llm: LLM):
    """Nothing can go on there, and a future keeps its answers with the traceback of what was raised."""
    options: dict[str, Any] = {"max_tokens": 12, "temperature": 0.8, "seed": 5}
    alone = llm.generate("a b", **options).text
    kept: list[Answers] = []
    thread = threading.Thread(target=begin_and_keep, args=(llm, kept))
    thread.start()
    thread.join()
    assert llm._slots.answering == 0
    assert [one.text for one in llm.generate_many(["a b"] * 3, **options)] == [alone] * 3
    ((number, answer),) = kept[0]
    assert number == 1
    with pytest.raises(UsageError, match="The answer was not completed"):
        answer.result()


def test_a_pool_whose_work_raised_leaves_all_slots_free(llm: LLM):
    def work() -> None:
        answers = llm.answer_many(request_of("a b", max_tokens=most) for most in (60, 1))
        for _ in answers:
            raise ValueError("the caller's own")

    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(work)
    assert isinstance(failed.exception(), ValueError)
    assert llm.generate_many(["one"], max_tokens=2)[0].finish_reason == "length"


def test_answers_of_a_model_that_was_closed_come_to_an_end(llm: LLM):
    answers = llm.answer_many(request_of(prompt, max_tokens=most) for prompt, most in (("one", 1), ("a b", 60)))
    next(answers)
    llm.close()
    ((_, answer),) = answers
    with pytest.raises(UsageError, match="The answer was not completed"):
        answer.result()


LEFT = """
import sys
from localspec.loading import kernels
from localspec.runtime.api import load, request_of
kernels.verify_config = lambda _: None  # as the fixture `verified` has it
llm = load(sys.argv[1], draft="off", quant="fp64", threads=1, ctx=128, parallel=2)
answers = llm.answer_many(request_of("a b", max_tokens=most) for most in (60, 1))
next(answers)
"""


def test_a_program_that_ends_in_the_middle_prints_nothing(folder: Path):
    command = [sys.executable, "-c", LEFT, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("ends", ["dropped", "its thread has ended"])
def test_a_stream_that_is_not_read_to_its_end_leaves_its_slot_free(ends: str, llm: LLM):
    kept = []

    def begin() -> None:
        events = iter(llm.stream("a b", max_tokens=60))
        next(events)
        if ends != "dropped":
            kept.append(events)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert all(next(kept.pop()).type for _ in list(kept))  # a stream is bound to no thread
    assert not llm._model.is_answering


def test_who_stops_in_the_middle_leaves_all_slots_free(llm: LLM):
    for _ in llm.answer_many(request_of(prompt, max_tokens=30) for prompt in PROMPTS):
        break
    assert llm.generate("one", max_tokens=3).finish_reason == "length"
    assert len(llm.generate_many(PROMPTS, max_tokens=2)) == len(PROMPTS)


def test_ctrl_c_in_the_middle_leaves_all_slots_free(llm: LLM):
    calls = iter(range(1000))

    def interrupted() -> bool:
        if next(calls) == 20:  # between two forwards of an answer
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        deque(llm.answer_many([request_of(prompt, max_tokens=30) for prompt in PROMPTS], cancelled=interrupted))
    assert llm._slots.answering == 0
    assert len(llm.generate_many(PROMPTS, max_tokens=2)) == len(PROMPTS)


def test_once_cancelled_what_is_under_way_ends_and_nothing_is_begun(llm: LLM):
    ended = []
    requests = [request_of(prompt, max_tokens=2 if prompt == "one" else 60, temperature=0) for prompt in PROMPTS]
    for number, answer in llm.answer_many(requests, cancelled=lambda: bool(ended)):
        ended.append((number, answer.result().finish_reason))
    assert ended[0] == (0, "length")
    assert {reason for _, reason in ended[1:]} == {"cancelled"}
    assert len(ended) <= 3


def test_beside_an_open_stream_the_other_slot_answers(llm: LLM):
    stream = llm.stream("a b", max_tokens=9, temperature=0)
    events = iter(stream)
    next(events)
    assert len(llm.generate_many(PROMPTS, max_tokens=2)) == len(PROMPTS)
    assert len(stream.result().tokens) == 9


def test_with_one_slot_an_open_stream_is_in_the_way(folder: Path):
    with load(folder, draft="off", quant="fp64", threads=1, ctx=128) as one:
        stream = one.stream("a b", max_tokens=9)
        next(iter(stream))
        with pytest.raises(UsageError, match="in the middle of another answer"):
            one.generate_many(["one"])
        stream.close()
        assert one.generate_many(["one"], max_tokens=2)[0].finish_reason == "length"


@pytest.mark.parametrize("parallel", [0, 65, -1])
def test_a_count_out_of_range_is_refused(folder: Path, parallel: int):
    with pytest.raises(UsageError, match=f"--parallel {parallel} is out of range"):
        load(folder, parallel=parallel)


# --- in a child process


@pytest.fixture
def engine(folder: Path, warm_engines: None) -> Iterator[EngineProcess]:  # noqa: ARG001
    request = LoadRequest.of(
        str(folder), draft="early-exit:2", quant="fp64", threads=1, ctx=512, parallel=3, mode="on", k=2
    )
    process = EngineProcess(request, "tests.support.warm:open_verified")
    process.start()
    yield process
    process.close()


def asked(number: int, most: int) -> GenerateRequest:
    return GenerateRequest(prompt=PROMPTS[number], max_tokens=most, sampling=GREEDY)


class Heard:
    """The events by the number of their request."""

    def __init__(self, engine: EngineProcess) -> None:
        self._events = engine.numbered()
        self.events: dict[int | None, list[AnyEvent]] = {}

    def until(self, is_so: Callable[[int | None, AnyEvent], bool]) -> None:
        for number, event in self._events:
            self.events.setdefault(number, []).append(event)
            if is_so(number, event):
                return

    def until_all_are_done(self, numbers: list[int]) -> None:
        self.until(lambda *_: all(self.end(number) is not None for number in numbers))

    def end(self, number: int) -> str | None:
        last = (self.events.get(number) or [None])[-1]
        return last.finish_reason if isinstance(last, Done) else None

    def text(self, number: int) -> str:
        return "".join(event.text for event in self.events[number] if isinstance(event, Step))


def test_several_requests_are_answered_at_once_and_one_is_cancelled_alone(engine: EngineProcess):
    heard = Heard(engine)
    heard.until(lambda _, event: isinstance(event, Ready))
    numbers = [engine.ask(asked(number, 400)) for number in (0, 1, 2)]
    fourth = engine.ask(asked(3, 5))  # waits for a slot
    assert [*numbers, fourth] == [0, 1, 2, 3]
    heard.until(lambda *_: all(any(isinstance(e, Step) for e in heard.events.get(n, [])) for n in numbers))
    engine.cancel(1)
    engine.steer(SpecOptions("off"))
    heard.until_all_are_done([0, 1, 2, 3])
    assert [heard.end(number) for number in range(4)] == ["length", "cancelled", "length", "length"]
    for number, (which, most) in {0: (0, 400), 2: (2, 400), 3: (3, 5)}.items():
        again = engine.ask(asked(which, most))
        heard.until_all_are_done([again])
        assert heard.text(again) == heard.text(number)
    assert heard.text(1)
    (steered,) = [event for event in heard.events[None] if event.type == "steered"]
    assert steered.spec.mode == "off"


def test_a_long_request_gets_through_while_another_is_answered(engine: EngineProcess):
    """Longer than the pipe holds: it is read before the answer has ended."""
    heard = Heard(engine)
    heard.until(lambda _, event: isinstance(event, Ready))
    first = engine.ask(asked(0, 450))
    heard.until(lambda _, event: isinstance(event, Prefill))
    second = engine.ask(GenerateRequest(prompt="a b " * 200_000, sampling=GREEDY))
    heard.until(lambda number, event: number == second and event.type == "failure")
    engine.cancel(first)
    heard.until_all_are_done([first])
