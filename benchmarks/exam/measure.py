"""The exam of the built-in model, taken plain and with every drafter, in every format: speculation may change nothing.

Answers come through the Python interface, greedy, each to a conversation of its own. Knows nothing about command lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from benchmarks.exam.report import Answer, ExamReport, Sitting
from localspec.bench.drafters import drafts
from localspec.bench.machine import describe_machine
from localspec.bench.measure import named
from localspec.bench.progress import Tell, shares, silent
from localspec.bench.report import PLAIN
from localspec.core.drain import drain
from localspec.core.events import Loading, Notice, Ready
from localspec.core.requests import LoadRequest, Message
from localspec.core.sanitize import one_line
from localspec.core.weight_formats import ListedFormat
from localspec.models.catalog import Catalog
from localspec.models.spelling import READ_AS
from localspec.runtime.api import LLM, load_events
from localspec.runtime.result import Result
from training.exam.grading import is_good
from training.exam.questions import Exam
from training.exam.questions import load as load_exam

EXAM = "guide"  # whose questions they are, whoever is asked
FORMATS: tuple[ListedFormat, ...] = ("int8", "bf16")


def measure_exam(
    load: LoadRequest,
    *,
    formats: Sequence[ListedFormat] = FORMATS,
    max_tokens: int | None = None,
    list_wrong: bool = False,
    tell: Tell = silent,
) -> ExamReport:
    """One model after the other, so that one is in memory at a time. `max_tokens` None: as long as it talks."""
    exam, entry = load_exam(), Catalog.load().resolve(load.model)
    ways = [(quant, name, choice) for quant in formats for name, choice in drafts(entry, load.draft)]
    report = shares(tell, f"the exam of {EXAM}")
    sittings: list[Sitting] = []
    notes: list[str] = []
    for done, (quant, name, choice) in enumerate(ways):
        request = msgspec.structs.replace(load.in_format(quant), draft=choice)
        sitting, notices = sit(request, name, exam, max_tokens, partial(part, report, done, len(ways)))
        sittings.append(sitting)
        notes += [one_line(f"{sitting.method} in {sitting.quant}: {sentence}") for sentence in notices]
    cut = [answer.cut for sitting in sittings for answer in sitting.answers]
    if any(cut):
        of_all = f"{sum(cut)} of {len(cut)} answers"
        notes.append(f"Cut at {max_tokens} tokens, and so perhaps counted as wrong: {of_all}. Raise -n.")
    machine = {name: value for name, value in describe_machine(0, sittings[0].device).items() if name != "threads"}
    return ExamReport(EXAM, one_line(entry.name), machine, tuple(sittings), tuple(dict.fromkeys(notes)), list_wrong)


def part(tell: Callable[[float], None], done: int, total: int, share: float) -> None:
    """The share of one of several, as a share of all."""
    tell((done + share) / total)


def sit(
    request: LoadRequest, name: str, exam: Exam, max_tokens: int | None, tell: Callable[[float], None]
) -> tuple[Sitting, list[str]]:
    """Loads the model, asks it every phrasing and lets it go; and the notices about its drafter meanwhile."""
    heard: list[Loading | Notice | Ready] = []
    asked = [
        (group, question, phrasing)
        for group, questions in exam.groups.items()
        for question in questions
        for phrasing in question.phrasings
    ]
    answers: list[Answer] = []
    with drain(load_events(request), heard.append) as llm:
        said = [event.message for event in heard if isinstance(event, Notice)]
        off, faults = llm.ready.spec.kind == "off", len(said)
        for done, (group, question, phrasing) in enumerate(asked, start=1):
            result, notices = ask(llm, question.earlier, phrasing, max_tokens)
            said += notices
            answers.append(
                Answer(
                    question.key,
                    phrasing,
                    group,
                    result.text,
                    is_good(result.text, question),
                    result.finish_reason == "length",
                )
            )
            tell(done / len(asked))
        failed = name != PLAIN and (off or len(said) > faults)
        spec, card = llm.ready.spec, llm.ready.model
        return Sitting(
            named(name, spec), "0" if off else str(spec.k), card.quant, card.device, tuple(answers), failed
        ), said


def ask(llm: LLM, earlier: str, phrasing: str, max_tokens: int | None) -> tuple[Result, list[str]]:
    """The greedy answer, after the one to an earlier question, and what went wrong with the drafter on the way."""
    before, said = list[Message](), list[str]()
    if earlier:
        before = [Message("user", earlier)]
        first, said = answered(llm, before, max_tokens)
        before.append(Message("assistant", first.text))
    result, notices = answered(llm, [*before, Message("user", phrasing)], max_tokens)
    return result, said + notices


def answered(llm: LLM, messages: list[Message], max_tokens: int | None) -> tuple[Result, list[str]]:
    stream = llm.stream(messages, max_tokens=max_tokens, temperature=0.0)
    said = [event.message for event in stream if isinstance(event, Notice) and event.code != READ_AS]
    return stream.result(), said
