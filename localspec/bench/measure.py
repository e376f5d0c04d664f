"""Runs the contenders on every prompt, interleaved, and collects what each answer took.

A contender answers a question with token ids and seconds, and has notes for the reader; one that `failed` decoded
plain in some answer or all. Knows nothing about how results are printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol  # Any: the fields of a LoadRequest

from localspec.bench.machine import describe_machine
from localspec.bench.prompts import PROMPTS
from localspec.bench.report import PLAIN, Report, Run
from localspec.drafting import parse
from localspec.drain import drain
from localspec.events import Done, Loading, Notice, Ready, Step
from localspec.model import Model
from localspec.opening import Opened, attach, open_target
from localspec.requests import DraftModel, EarlyExit, GenerateRequest, LoadRequest, Message, SamplingOptions
from localspec.sanitize import one_line

Draft = str | EarlyExit | DraftModel


class Contender(Protocol):
    """One way of decoding."""

    name: str
    k: str
    failed: bool
    notes: list[str]

    def answer(self, question: str, max_tokens: int) -> Run: ...


@dataclass(slots=True)
class Ours:
    """Our engine with one drafter. The conversation is forgotten between answers; what the policy learnt is not."""

    name: str
    k: str
    model: Model
    failed: bool = False
    notes: list[str] = field(default_factory=list)

    def answer(self, question: str, max_tokens: int) -> Run:
        self.model.forget()
        ids: list[int] = []
        for event in self.model.answer(self.request(question, max_tokens)):
            match event:
                case Step(tokens=tokens):
                    ids.extend(token.id for token in tokens)
                case Notice(code="drafter_failed", message=message):
                    self.failed = True
                    self.notes.append(message)
                case Done():
                    stats = event.stats
        return Run(tuple(ids), (stats.prompt_ms + stats.predicted_ms) / 1000, stats)

    def request(self, question: str, max_tokens: int) -> GenerateRequest:
        """The question in the chat template, or as text to continue where the model has none."""
        greedy = SamplingOptions(temperature=0.0)
        if not self.model.ready.model.chat:
            return GenerateRequest(prompt=question, max_tokens=max_tokens, sampling=greedy)
        return GenerateRequest((Message("user", question),), max_tokens=max_tokens, sampling=greedy)


def measure(
    model: str = "guide",
    *,
    draft: str = "auto",
    k: str = "auto",
    max_tokens: int = 64,
    repeats: int = 3,
    against: str | None = None,
    progress: bool = False,
    **load: Any,
) -> Report:
    """Plain decoding first, then each drafter there is for the model; with "transformers", that too."""
    opened = drain(open_target(LoadRequest(model, k=k, **load)))
    contenders = gather(opened, draft, k, against)
    runs = interleave(contenders, max_tokens, repeats, Bar() if progress else lambda _share: None)
    return Report(
        one_line(opened.entry.name),
        opened.plan.quant,
        max_tokens,
        repeats,
        describe_machine(opened.threads),
        tuple((one.name, one.k) for one in contenders),
        runs,
        frozenset(one.name for one in contenders if one.failed),
        notes(opened, draft, contenders),
    )


def gather(opened: Opened, draft: str, k: str, against: str | None) -> list[Contender]:
    contenders: list[Contender] = [ours(opened, name, choice, k) for name, choice in drafts(opened, draft)]
    if against == "transformers":
        from localspec.bench.peers import Transformers

        contenders.append(Transformers(opened))
    return contenders


def ours(opened: Opened, name: str, choice: Draft, k: str) -> Ours:
    """The contender, with what was said of its drafter at loading: that it cannot draft, say."""
    heard: list[Loading | Notice | Ready] = []
    model = drain(attach(opened, choice, k), heard.append)
    notices = [event.message for event in heard if isinstance(event, Notice)]
    off = model.ready.spec.kind == "off"
    return Ours(name, "0" if off else k, model, off and name != PLAIN, notices)


def drafts(opened: Opened, asked: str) -> list[tuple[str, Draft]]:
    """Plain, and the drafters to compare: the one asked for, or all that models.toml has."""
    found: list[tuple[str, Draft]] = [(PLAIN, "off")]
    if asked not in ("auto", "off"):
        return [*found, (label(parse(asked)), asked)]
    entry = opened.entry
    if asked == "auto" and entry.draft is not None and entry.draft.kind != "off":
        found.append((f"early exit {entry.draft.exit_layer}" if entry.draft.exit_layer else "draft model", "auto"))
    if asked == "auto":
        found += [(f"draft model {name}", name) for name, draft in entry.drafts if draft.kind == "model"]
    return found


def label(choice: Draft) -> str:
    match choice:
        case EarlyExit(layer=layer):
            return f"early exit {layer or ''}".strip()
        case DraftModel(model=name):
            return one_line(f"draft model {name}")
    return choice


def notes(opened: Opened, asked: str, contenders: list[Contender]) -> tuple[str, ...]:
    """What the reader of the table should know, a sentence each."""
    said = [one_line(f"{one.name}: {note}") for one in contenders for note in one.notes]
    if asked == "auto" and len(drafts(opened, asked)) == 1:
        unknown = f"No drafter is known for {opened.entry.name}"
        said.append(one_line(f"{unknown}: name one with --draft early-exit:E, or --draft ./FOLDER of a small model."))
    return tuple(said)


def interleave(
    contenders: list[Contender], max_tokens: int, repeats: int, tell: Callable[[float], None]
) -> dict[str, dict[tuple[int, int], Run]]:
    """Runs by contender and (prompt, repeat). The order turns with every prompt, so that a slow minute hits all."""
    runs: dict[str, dict[tuple[int, int], Run]] = {contender.name: {} for contender in contenders}
    for contender in contenders:  # warm-up, not counted
        contender.answer(PROMPTS[0], max_tokens)
    total = repeats * len(PROMPTS)
    for turn in range(total):
        place, repeat = turn % len(PROMPTS), turn // len(PROMPTS)
        first = turn % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            runs[contender.name][place, repeat] = contender.answer(PROMPTS[place], max_tokens)
        tell((turn + 1) / total)
    return runs


class Bar:
    """A progress bar on stderr."""

    def __call__(self, share: float) -> None:
        end = "\n" if share >= 1 else ""
        print(f"\rmeasuring {'█' * round(30 * share):░<30} {share:4.0%}", end=end, file=sys.stderr, flush=True)
