"""A target without weights, drafters of every temper, and the shortest way to run them. Knows no test."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import torch
from torch import Tensor

from localspec.engine.decode import decode
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import Choice, Draft, Drafter, ExitStates, Offer, Policy, Round, Target
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session

WORD = (1 << 64) - 1
TABLES = (1009, 1013)  # a hash picks a row of each: a million different prefixes look different
GREEDY = Sampling()


class ScriptedModel:
    """A Target: each row of logits is a function of a hash of every id up to it, in float64.

    Holds its ids by position, so a wrong rollback changes what it says. `table`: logits [vocab, vocab] by the last id
    alone, a Markov chain. `blur`: how far it strays from the model of the same seed. `invalid`: what to write into the
    logits of the n-th forward.
    """

    def __init__(
        self,
        vocab: int,
        *,
        seed: int = 0,
        context: int = 64,
        table: Tensor | None = None,
        blur: float = 0.0,
        invalid: Mapping[int, float] | None = None,
    ) -> None:
        self.arch = SimpleNamespace(vocab_size=vocab)
        self.context = context
        self.table = table
        self.invalid = dict(invalid or {})
        draw = torch.Generator().manual_seed(seed)
        self.noise = [torch.randn(rows, vocab, generator=draw, dtype=torch.float64) for rows in TABLES]
        if blur:
            self.noise[0] += blur * torch.randn(TABLES[0], vocab, generator=draw, dtype=torch.float64)
        self.ids: list[int] = []  # by position; those from `length` on are forgotten and may be overwritten
        self.hashes: list[int] = []
        self.length = 0
        self.forwards = 0
        self.rows = 0

    def forward(self, ids: Tensor, exit_states: ExitStates | None = None, *, last_only: bool = False) -> Tensor:
        assert exit_states is None
        assert ids.ndim == 1
        assert ids.dtype == torch.long
        assert len(ids) > 0
        assert self.length <= len(self.ids), "the counter passed what was written"
        assert self.length + len(ids) <= self.context, "a forward past the context"
        del self.ids[self.length :], self.hashes[self.length :]
        for token in ids.tolist():
            assert 0 <= token < self.arch.vocab_size
            self.hashes.append(hash_step(self.hashes[-1] if self.hashes else 1, token))
            self.ids.append(token)
        logits = self.logits(self.length)
        self.length += len(ids)
        self.forwards += 1
        self.rows += len(ids)
        if self.forwards in self.invalid:
            logits[-1, 0] = self.invalid[self.forwards]
        return logits[-1:] if last_only else logits

    def logits(self, start: int) -> Tensor:
        if self.table is not None:
            return self.table[self.ids[start:]]
        first = self.noise[0][[word % TABLES[0] for word in self.hashes[start:]]]
        return first + self.noise[1][[(word >> 20) % TABLES[1] for word in self.hashes[start:]]]

    def crop(self, length: int) -> None:
        assert length >= 0
        self.length = min(self.length, length)


def hash_step(word: int, token: int) -> int:
    word = (word * 0x9E3779B97F4A7C15 + token + 1) & WORD
    return (word ^ word >> 29) * 0xBF58476D1CE4E5B9 & WORD


class Stateless:
    """A drafter that keeps nothing and offers as much as it may."""

    kind = "scripted"

    def offers(self, session: Session, most: int) -> Sequence[Offer]:  # noqa: ARG002
        return (Offer(self.kind, most),)

    def prefill(self, session: Session) -> None:
        pass

    def crop(self, length: int) -> None:
        pass


class RandomDrafter(Stateless):
    """Any tokens, up to k of them; drafts on past a stop id, which a drafter may do."""

    def __init__(self, vocab: int, seed: int = 0) -> None:
        self.vocab = vocab
        self.dice = random.Random(seed)

    def draft(self, session: Session, choice: Choice) -> Draft:  # noqa: ARG002
        length = self.dice.randint(0, max(choice.k, 0))
        return greedy_draft(self.dice.randrange(self.vocab) for _ in range(length))


class ScriptedDrafter(Stateless):
    """Proposes what the script has at each position, right or wrong."""

    def __init__(self, script: Sequence[int]) -> None:
        self.script = list(script)

    def draft(self, session: Session, choice: Choice) -> Draft:
        at = len(session.tokens)
        return greedy_draft(self.script[at : at + max(choice.k, 0)])


class NGramDrafter(Stateless):
    """What followed the last time the newest two tokens stood together."""

    def draft(self, session: Session, choice: Choice) -> Draft:
        tokens = session.tokens
        for at in range(len(tokens) - 3, -1, -1):
            if tokens[at : at + 2] == tokens[-2:]:
                return greedy_draft(tokens[at + 2 : at + 2 + max(choice.k, 0)])
        return greedy_draft([])


class CrashingDrafter:
    """Another drafter, until the `at`-th draft: that one raises, before the work or once it is done."""

    def __init__(self, drafter: Drafter, at: int, *, after_work: bool) -> None:
        self.drafter = drafter
        self.at = at
        self.after_work = after_work
        self.calls = 0

    def prefill(self, session: Session) -> None:
        self.drafter.prefill(session)

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        return self.drafter.offers(session, most)

    def draft(self, session: Session, choice: Choice) -> Draft:
        self.calls += 1
        if self.calls == self.at and not self.after_work:
            raise RuntimeError("the drafter fell over")
        draft = self.drafter.draft(session, choice)
        if self.calls == self.at:
            raise RuntimeError("the drafter fell over its own draft")
        return draft

    def crop(self, length: int) -> None:
        self.drafter.crop(length)


def greedy_draft(tokens: Sequence[int]) -> Draft:
    proposed = list(tokens)
    return Draft(torch.tensor(proposed, dtype=torch.long), drafters=(Stateless.kind,) * len(proposed))


def scripted_draft_model(target: ScriptedModel, **said: object) -> ModelDrafter:
    """The real ModelDrafter over a scripted one. Same seed and no blur: it is always right."""
    vocab = target.arch.vocab_size
    options = {"context": target.context, **said}
    return ModelDrafter(ScriptedModel(vocab, **options), vocab)  # type: ignore[arg-type]


def generate(
    session: Session,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    sampling: Sampling = GREEDY,
    policy: Policy | int = 0,
    stop_ids: frozenset[int] = frozenset(),
    cancelled: Callable[[], bool] | None = None,
) -> list[Round]:
    """One turn, from prompt to rounds."""
    session.begin(make_sampler(sampling), stop_ids=stop_ids, cancelled=cancelled)
    for _ in session.prefill(prompt):
        pass
    return list(decode(session, Constant(policy) if isinstance(policy, int) else policy, max_tokens=max_tokens))


def plain(target: Target, prompt: Sequence[int], **said: object) -> list[Round]:
    """One-token decoding on a session of its own."""
    return generate(Session(target, NoDrafter()), prompt, **said)  # type: ignore[arg-type]


def prefilled(target: Target, drafter: Drafter, prompt: Sequence[int], sampling: Sampling = GREEDY) -> Session:
    """A session that has read the prompt and drafted nothing yet."""
    session = Session(target, drafter)
    session.begin(make_sampler(sampling))
    for _ in session.prefill(prompt):
        pass
    return session


def text(rounds: Sequence[Round]) -> list[int]:
    return [token for done in rounds for token in done.tokens]


class Alarm:
    """A cancel flag that goes up at the n-th look at it; never, for None. Goes on counting."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.looks = 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.at is not None and self.looks >= self.at
