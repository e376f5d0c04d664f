"""Runs the contenders on every prompt, interleaved, and collects what each answer took.

A contender answers a question with token ids and seconds, and has notes for the reader; one that `failed` decoded
plain in some answer or all, one with a `fault` not at all. Knows nothing about how results are printed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol

import torch

from localspec.bench.drafters import AUTO, can_draft, usable
from localspec.bench.machine import describe_machine
from localspec.bench.progress import Tell, Warn, loading, shares, silent
from localspec.bench.prompts import QUESTIONS, BenchPrompt, prompts_for
from localspec.bench.report import OURS, PLAIN, BenchReport, Key, TimedRun, Way
from localspec.bench.turns import rotated
from localspec.core.drain import drain
from localspec.core.errors import DoesNotFit, IncompatiblePair, NotDownloaded
from localspec.core.events import Done, DraftLength, Loading, Notice, Ready, SpecCard, Step
from localspec.core.requests import AskedDraft, DraftRequest, GenerateRequest, LoadRequest, Message, SamplingOptions
from localspec.core.sanitize import one_line
from localspec.core.weight_formats import FLOATS
from localspec.engine.drafters import table
from localspec.runtime.draft_choice import exit_layers
from localspec.runtime.drafter_setup import attach
from localspec.runtime.model import Model
from localspec.runtime.open import open_target
from localspec.runtime.open_target import OpenTarget


class Contender(Protocol):
    """One way of decoding."""

    way: Way
    failed: bool
    fault: str
    notes: list[str]

    def answer(self, question: str, max_tokens: int) -> TimedRun: ...


@dataclass(slots=True)
class Ours:
    """Our engine with one drafter. The conversation is forgotten between answers; what the policy learnt is not.
    `torch_threads`: those beside which this target's own were chosen."""

    way: Way
    model: Model
    torch_threads: int = 1
    failed: bool = False
    fault: str = ""
    notes: list[str] = field(default_factory=list)

    def answer(self, question: str, max_tokens: int) -> TimedRun:
        torch.set_num_threads(self.torch_threads)
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
        return TimedRun(tuple(ids), (stats.prompt_ms + stats.predicted_ms) / 1000, stats)

    def request(self, question: str, max_tokens: int) -> GenerateRequest:
        """The question in the chat template, or as text to continue where the model has none."""
        greedy = SamplingOptions(temperature=0.0)
        if not self.model.ready.model.chat:
            return GenerateRequest(prompt=question, max_tokens=max_tokens, sampling=greedy)
        return GenerateRequest((Message("user", question),), max_tokens=max_tokens, sampling=greedy)


def measure(  # noqa: PLR0913 - the words of the command line, and who hears
    load: LoadRequest,
    *,
    formats: Sequence[str] = (),
    prompts: Sequence[BenchPrompt] | None = None,
    max_tokens: int = 64,
    repeats: int = 3,
    against: str | None = None,
    tell: Tell = silent,
    warn: Warn = silent,
) -> BenchReport:
    """Plain decoding first, then each drafter that the model can use, in every format; with "transformers", that too.

    `formats`: () for the one of `load`; where that is left open and there is a peer, fp32 beside it. `prompts`: None
    for one of every kind. `warn` hears before the first answer that nothing will be compared.
    """
    targets, left_out = open_targets(load, formats, tell, compared=against is not None)
    opened = targets[0]
    if against is None and load.draft == AUTO and not can_draft(opened):
        warn(only_plain(opened))
    contenders, refused = gather(targets, load, against, tell)
    prompts = prompts_for(opened.entry.key) if prompts is None else prompts
    texts = [prompt.text for prompt in prompts]
    runs = interleave(contenders, max_tokens, repeats, shares(tell, names(contenders)), texts)
    remarks = (*left_out, *refused, *notes(opened, load.draft, contenders))
    found = report(opened, contenders, runs, max_tokens, repeats, remarks)
    to_try = commands(opened) if lacks_drafter(load.draft, contenders) else ()
    return replace(found, kinds=tuple(prompt.kind for prompt in prompts), to_try=to_try)


def report(
    opened: OpenTarget,
    contenders: Sequence[Contender],
    runs: dict[Way, dict[Key, TimedRun]],
    max_tokens: int,
    repeats: int,
    notes: tuple[str, ...] = (),
) -> BenchReport:
    """The runs, with what the contenders became."""
    own = dict.fromkeys(one.way.quant for one in contenders if one.way.engine == OURS)
    return BenchReport(
        one_line(opened.entry.name),
        " and ".join(own),
        max_tokens,
        repeats,
        describe_machine(opened.threads, opened.plan.device),
        runs,
        frozenset(one.way for one in contenders if one.failed),
        {one.way: one_line(one.fault) for one in contenders if one.fault},
        notes,
    )


def open_targets(
    request: LoadRequest, formats: Sequence[str], tell: Tell, *, compared: bool
) -> tuple[tuple[OpenTarget, ...], tuple[str, ...]]:
    """The target in every format, and a sentence about a format that was not asked for and does not fit."""
    if formats:
        return tuple(drain(open_target(request.in_format(name)), loading(tell)) for name in formats), ()
    first = drain(open_target(request), loading(tell))
    if not compared or request.weights.weight_format != "auto" or first.plan.weight_format.name == FLOATS[0]:
        return (first,), ()
    try:
        return (first, drain(open_target(request.in_format(FLOATS[0])), loading(tell))), ()
    except DoesNotFit as fault:
        return (first,), (one_line(f"localspec in {FLOATS[0]} is left out: {fault.message}"),)


def gather(
    targets: Sequence[OpenTarget], load: LoadRequest, against: str | None, tell: Tell = silent
) -> tuple[list[Contender], list[str]]:
    """Our contenders in every format, then the peer's; and sentences about drafters that the user did not name and that
    cannot draft here."""
    ways = [(opened, usable(opened, load.draft)) for opened in targets]
    contenders: list[Contender] = []
    refused: list[str] = []
    for opened, all in ways:
        for name, draft in all:
            try:
                contenders.append(ours(opened, name, draft, load.k))
            except (DoesNotFit, IncompatiblePair, NotDownloaded) as fault:
                if load.draft != AUTO:
                    raise
                refused.append(one_line(f"{name} is left out: {fault}"))
    if against == "transformers":
        from localspec.bench import transformers_peer

        tell(Loading("trying transformers' formats and threads", 0, 1, "steps"))
        drafting = [(opened, [one for one in all[1:] if one[0] != AUTO]) for opened, all in ways]
        contenders += transformers_peer.contenders(drafting, load.weights.threads)
    return contenders, refused


def ours(opened: OpenTarget, name: str, choice: AskedDraft, k: DraftLength) -> Ours:
    """The contender, with the notices of its loading: that its drafter cannot draft, say."""
    heard: list[Loading | Notice | Ready] = []
    model = drain(attach(opened, choice, k), heard.append)
    notices = [event.message for event in heard if isinstance(event, Notice)]
    spec = model.ready.spec
    off = spec.kind == "off"
    length, weight_format = 0 if off else spec.k, opened.plan.weight_format.name
    way = Way(named(name, spec), length, weight_format, name, threads=opened.threads)
    has_model = table.has_model(spec.kind)
    threads = torch.get_num_threads() if has_model else torch_threads(opened)  # as `attach` has left them
    return Ours(way, model, threads, off and name != PLAIN, notes=notices)


def torch_threads(opened: OpenTarget) -> int:
    """One beside the CPU engine's own, as `resident.set_threads` has it."""
    return 1 if opened.plan.packed else opened.threads


def named(name: str, spec: SpecCard) -> str:
    """The name with the exit layer, where that was left open; "auto" keeps its own."""
    if name == AUTO or not spec.exit_layer:
        return name
    return table.together(table.label(DraftRequest(spec.kind, str(spec.exit_layer))), spec.lookup)


def only_plain(opened: OpenTarget) -> Notice:
    """The warning that there is one row to come."""
    name = one_line(opened.entry.name)
    message = f"{name} cannot be drafted for, since its state cannot be rolled back: only plain decoding is measured."
    return Notice("info", "no_drafter", message, "Nothing is compared.")


def notes(opened: OpenTarget, asked: AskedDraft, contenders: list[Contender]) -> tuple[str, ...]:
    """Notes for the reader of the table, a sentence each."""
    found = [one_line(f"{one.way.name}: {note}") for one in contenders for note in one.notes]
    if any(one.way.engine != OURS for one in contenders):
        from localspec.bench.transformers_peer import NOTE

        found.append(NOTE)
    if lacks_drafter(asked, contenders):
        found.append(f"No draft model is known for {one_line(opened.entry.name)}.")
    return tuple(dict.fromkeys(found))


def lacks_drafter(asked: AskedDraft, contenders: list[Contender]) -> bool:
    """Whether look-up alone was there to draft."""
    names = {one.way.name for one in contenders if one.way.engine == OURS}
    return asked == AUTO and names > {PLAIN} and AUTO not in names


def commands(opened: OpenTarget) -> tuple[str, ...]:
    """Shell commands that may find a drafter."""
    key = shlex.quote(one_line(opened.entry.key))
    sweep = (f"localspec bench {key} --sweep exit-layer",) if exit_layers(opened.snapshot) else ()
    return *sweep, f"localspec pair {key} --hub"


def interleave(
    contenders: Sequence[Contender],
    max_tokens: int,
    repeats: int,
    tell: Callable[[float], None],
    prompts: Sequence[str] = QUESTIONS,
) -> dict[Way, dict[Key, TimedRun]]:
    """Runs by way and (prompt, repeat), without those who fell. The order turns with every prompt, so that a slow
    minute hits all."""
    runs: dict[Way, dict[Key, TimedRun]] = {contender.way: {} for contender in contenders}
    answers, done = (1 + repeats * len(prompts)) * len(contenders), count(1)
    tell(0.0)
    for contender in contenders:  # warm-up, not counted
        contender.answer(prompts[0], max_tokens)
        tell(next(done) / answers)
    for turn in range(repeats * len(prompts)):
        index, repeat = turn % len(prompts), turn // len(prompts)
        for contender in rotated(contenders, turn):
            if not contender.fault:
                runs[contender.way][index, repeat] = contender.answer(prompts[index], max_tokens)
            tell(next(done) / answers)
    return {contender.way: runs[contender.way] for contender in contenders if not contender.fault}


def names(contenders: Sequence[Contender]) -> str:
    return ", ".join(dict.fromkeys(one.way.name for one in contenders))
