"""Proves on this machine that drafted text is plain text: every drafter that the model can use, greedily and with a
seed, against plain decoding of the same prompts.

A difference is a near tie where the two tokens are closer in the plain forward than wider forwards alone, without
drafts, move logits; any other one is a divergence. Knows engine and drafters; prints nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import torch
from torch import Tensor

from localspec.bench.drafters import AUTO, Named, usable
from localspec.bench.progress import Tell, loading, shares, silent
from localspec.bench.prompts import BenchPrompt, prompts_for
from localspec.bench.proof_report import Difference, Proof, ProofRow
from localspec.bench.report import PLAIN, difference
from localspec.core.drain import drain
from localspec.core.errors import DoesNotFit, IncompatiblePair, NotDownloaded, first_line
from localspec.core.requests import MAX_DRAFT, GenerateRequest, LoadRequest, Message
from localspec.core.sanitize import one_line
from localspec.engine.decode import decode
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import PLAIN as NO_DRAFT
from localspec.engine.protocols import Choice, Drafter, Offer, Policy, Round
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling, gumbel_noise, penalise
from localspec.engine.session import Session
from localspec.runtime.drafter_setup import chosen, make_drafting
from localspec.runtime.open import open_target
from localspec.runtime.open_target import OpenTarget
from localspec.runtime.ready_drafter import Drafting

LENGTHS = (1, 4, 2, 8, 3, 16, 5)  # of a draft, by turns: kernels differ by the width of a forward
COUNTED = ("tokens", "drafted", "accepted", "rejected", "ignored")
SAFETY = 2  # both tokens' logits may have moved


class EveryKind:
    """A policy for proofs: each round another draft length and another of the offers, and every other time what is
    looked up is grafted on what the other drafter drafts."""

    def __init__(self, lengths: Sequence[int] = LENGTHS) -> None:
        self.lengths = lengths
        self.rounds = 0

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        found = offers() if most > 0 else ()
        number, self.rounds = self.rounds, self.rounds + 1
        if not found:
            return NO_DRAFT
        offer = found[number % len(found)]
        k = min(self.lengths[number % len(self.lengths)], most, offer.most)
        graft = next((one.first(most) for one in found if one.tokens and not offer.tokens), None)
        return Choice(k, offer, graft if number // len(found) % 2 else None)

    def observe(self, done: Round) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Case:
    """One request, whose prompt has these ids, sampled in one way."""

    index: int
    request: GenerateRequest
    prompt: tuple[int, ...]
    sampling: Sampling

    @property
    def name(self) -> str:
        way = "greedy" if self.sampling.is_greedy else f"seed {self.sampling.seed}"
        return f"prompt {self.index + 1}, {way}"


@dataclass(slots=True)
class Prover:
    """An open target, its cases and their plain text. `done` of `total` answers are written."""

    opened: OpenTarget
    cases: tuple[Case, ...]
    max_tokens: int
    total: int
    tell: Callable[[float], None]
    plain: tuple[tuple[int, ...], ...] = ()
    done: int = 0

    def session(self, drafter: Drafter) -> Session:
        return Session(self.opened.target, drafter, device=str(self.opened.target.device))

    def write_plain(self) -> None:
        session = self.session(NoDrafter())
        self.plain = tuple(text(self.answer(session, case, Constant(0))) for case in self.cases)

    def answer(self, session: Session, case: Case, policy: Policy, drafting: Drafting | None = None) -> list[Round]:
        """The rounds of an answer, from an empty cache."""
        session.rewind(0)
        stop_ids = frozenset(self.opened.snapshot.eos_ids)
        greedy = drafting is not None and drafting.greedy
        session.begin(make_sampler(case.sampling, greedy_draft=greedy), stop_ids=stop_ids)
        if drafting is not None and drafting.translating is not None:
            drafting.translating.begin(case.request, case.prompt, self.opened.prompter)
        for _ in session.prefill(case.prompt):
            pass
        found = list(decode(session, policy, max_tokens=self.max_tokens))
        self.done += 1
        self.tell(self.done / self.total)
        return found

    def row(self, name: str, drafting: Drafting, policy: Policy) -> ProofRow:
        """One drafter on every case."""
        session, counts, same = self.session(drafting.drafter), Counter[str](), 0
        found: list[Difference] = []
        for case, expected in zip(self.cases, self.plain, strict=True):
            rounds = self.answer(session, case, policy, drafting)
            counts += counted(rounds)
            at = difference(text(rounds), expected)
            same += at is None
            found += [] if at is None else [self.judged(case, expected, text(rounds), at)]
        fault = drafting.drafter.fault if isinstance(drafting.drafter, Guarded) else None
        why = one_line(first_line(fault)) if fault else ""
        figures = {one: counts[one] for one in COUNTED}
        return ProofRow(name, len(self.cases), same, **figures, differences=tuple(found), fault=why)

    def judged(self, case: Case, plain: tuple[int, ...], drafted: tuple[int, ...], at: int) -> Difference:
        """The difference, with how close the tokens were and how much of that is rounding."""
        decode_one = self.opened.prompter.tokenizer.decode
        ids = [tokens[at] if at < len(tokens) else None for tokens in (plain, drafted)]
        ours, theirs = ("" if id is None else decode_one([id], skip_special_tokens=False) for id in ids)
        if None in ids:
            return Difference(case.name, at, ours, theirs)
        narrow = self.logits(case, plain, 1)
        best, other = scores(narrow[at : at + 1], case, plain[:at])[0, ids].tolist()
        wide = (self.logits(case, plain, width) for width in range(2, MAX_DRAFT + 2))
        rounding = SAFETY * max(float((one - narrow).abs().max()) for one in wide)
        return Difference(case.name, at, ours, theirs, best - other, rounding)

    def logits(self, case: Case, written: tuple[int, ...], width: int) -> Tensor:
        """The logits [written + 1, vocab] after the prompt and each token, from forwards of this width, without a
        draft and without rolling back."""
        session = self.session(NoDrafter())
        session.rewind(0)
        session.begin(make_sampler(case.sampling))
        for _ in session.prefill(case.prompt):
            pass
        fed = torch.tensor([case.prompt[-1], *written], device=session.device)
        parts = (fed[at : at + width] for at in range(0, len(fed), width))
        return torch.cat([session.target.forward(ids).double().cpu() for ids in parts])


def scores(logits: Tensor, case: Case, written: tuple[int, ...]) -> Tensor:
    """What the sampler compares [1, vocab], in the unit of logits."""
    prefix, nothing = (*case.prompt, *written), torch.empty(0, dtype=torch.long)
    found = penalise(logits, case.sampling, prefix, nothing)
    if case.sampling.is_greedy:
        return found
    assert case.sampling.seed is not None
    noise = gumbel_noise(case.sampling.seed, len(prefix), logits.shape[-1])
    return found.double() + (case.sampling.temperature or 0.0) * noise


def prove(
    load: LoadRequest,
    *,
    num_prompts: int = 8,
    max_tokens: int = 64,
    prompts: Sequence[BenchPrompt] | None = None,
    tell: Tell = silent,
) -> Proof:
    """Every drafter on every prompt. More prompts than there are begin again, with other seeds."""
    opened = drain(open_target(load), loading(tell))
    prompts = prompts_for(opened.entry.key) if prompts is None else prompts
    cases = tuple(cases_of(opened, list(islice(cycle(prompts), num_prompts))))
    drafters = usable(opened, load.draft)[1:]
    report = shares(tell, ", ".join((PLAIN, *(name for name, _ in drafters))))
    report(0.0)
    prover = Prover(opened, cases, max_tokens, len(cases) * (1 + len(drafters)), report)
    prover.write_plain()
    found = [proven(prover, one, load) for one in drafters]
    rows, notes = [one for one in found if isinstance(one, ProofRow)], [one for one in found if isinstance(one, str)]
    plan = opened.plan
    name = one_line(opened.entry.name)
    return Proof(name, plan.weight_format.name, plan.device, num_prompts, max_tokens, tuple(rows), tuple(notes))


def proven(prover: Prover, named: Named, load: LoadRequest) -> ProofRow | str:
    """The row of a drafter; a sentence about one that the user did not name and that cannot draft here."""
    name, asked = named
    try:
        drafting = drain(make_drafting(prover.opened, chosen(prover.opened, asked), load.k))
    except (DoesNotFit, IncompatiblePair, NotDownloaded) as fault:
        if load.draft != AUTO:
            raise
        return one_line(f"{name} is left out: {fault}")
    try:
        return prover.row(name, drafting, EveryKind((load.k,) if isinstance(load.k, int) else LENGTHS))
    finally:
        drafting.close()


def cases_of(opened: OpenTarget, prompts: Sequence[BenchPrompt]) -> Iterator[Case]:
    """Each prompt greedily, and with a seed of its own at temperature 1, where little is certain."""
    prompter, usable_ids = opened.prompter, opened.prompter.num_ids
    for index, prompt in enumerate(prompts):
        messages = (Message("user", prompt.text),)
        asked = GenerateRequest(messages) if prompter.can_chat else GenerateRequest(prompt=prompt.text)
        ids = tuple(prompter.chat(messages) if prompter.can_chat else prompter.text(prompt.text))
        yield Case(index, asked, ids, Sampling(usable=usable_ids))
        yield Case(index, asked, ids, Sampling(temperature=1.0, seed=index, usable=usable_ids))


def text(rounds: Sequence[Round]) -> tuple[int, ...]:
    return tuple(token for done in rounds for token in done.tokens)


def counted(rounds: Sequence[Round]) -> Counter[str]:
    """Tokens and what became of the drafted ones, by the names of ProofRow's fields."""
    counts: Counter[str] = Counter()
    for done in rounds:
        rejected = done.drafted - done.accepted - done.ignored
        figures = (len(done.tokens), done.drafted, done.accepted, rejected, done.ignored)
        counts.update(dict(zip(COUNTED, figures, strict=True)))
    return counts
