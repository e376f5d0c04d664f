"""Speculation with forced agreement: every forward really runs, and a coin decides whether a proposal is right.

Random weights agree by chance only; here they agree as often as is asked, so that a speed-up can be measured for an
acceptance without a trained model. Always labelled so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from benchmarks.llama_cpp.library import RIVALS, LlamaCpp, name_of
from benchmarks.shapes.forwards import never
from benchmarks.shapes.random_weights import frequent_words
from localspec.bench.turns import rotated
from localspec.core.requests import SpecOptions, draft_length
from localspec.engine.decode import decode
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.lengths import never as whole
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Choice, Draft, Drafter, Offer, Round, Sampler
from localspec.engine.samplers import Greedy
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session

if TYPE_CHECKING:
    from localspec.engine.cpu.decoder import PackedDecoder

PROMPT_TOKENS = 128
LENGTHS = ("2", "3", "4", "6", "auto")
WHOLE_HEAD = "early exit, whole head"


@dataclass(frozen=True, slots=True)
class Writing:
    """One text: its ids without the prompt's, how long it took, and what became of the drafts."""

    ids: tuple[int, ...]
    seconds: float
    rounds: int
    accepted: int = 0
    tested: int = 0

    @property
    def tokens_per_second(self) -> float:
        return len(self.ids) / self.seconds


class Writer(Protocol):
    """One way to continue the prompt. `plain`: whose text and speed its own are compared with; `peer`: its speed."""

    name: str
    k: str
    agreement: float | None
    plain: str
    peer: str

    def write(self, turn: int) -> Writing: ...


class ForcedAgreement:
    """A drafter whose proposals are, at once and before it drafts on, replaced: by the recorded token where the coin of
    that place fell so, and elsewhere by another if it happens to be that. Their rate is the coin's, exactly."""

    def __init__(
        self, drafter: Drafter, recorded: Sequence[int], agreement: float, *, name: str = "early exit"
    ) -> None:
        self.drafter, self.recorded, self.agreement, self.name = drafter, recorded, agreement, name
        self.right: list[bool] = []

    def toss(self, seed: int) -> None:
        """New coins for every place of the text; the same ones for every k."""
        coin = random.Random(seed)
        self.right = [coin.random() < self.agreement for _ in self.recorded]

    def prefill(self, session: Session) -> None:
        self.drafter.prefill(session)

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        return self.drafter.offers(session, most)

    def draft(self, session: Session, choice: Choice) -> Draft:
        own = session.sampler
        session.sampler = Coin(own, self)
        try:
            return self.drafter.draft(session, choice)
        finally:
            session.sampler = own

    def crop(self, length: int) -> None:
        self.drafter.crop(length)


class Coin:
    """A sampler as the drafter sees it."""

    takes_likeliest = False  # a coin takes it

    def __init__(self, own: Sampler, forced: ForcedAgreement) -> None:
        self.own, self.forced = own, forced

    def propose(self, logits: Tensor, session: Session, drafted: Tensor) -> tuple[Tensor, Tensor | None]:
        token, _ = self.own.propose(logits, session, drafted)
        place = len(session.tokens) + len(drafted)
        recorded = self.forced.recorded[place]
        if self.forced.right[place]:
            return torch.full_like(token, recorded), None
        return torch.where(token == recorded, (token + 1) % logits.shape[-1], token), None

    def accept(self, logits: Tensor, draft: Draft, session: Session) -> tuple[int, int]:
        return self.own.accept(logits, draft, session)


class Stand:
    """A decoder with a session that all who write with it share: a text begins where the prompt ends. `threads` are
    torch's."""

    def __init__(self, decoder: Decoder | PackedDecoder, max_tokens: int, *, threads: int = 1) -> None:
        self.decoder, self.max_tokens, self.threads = decoder, max_tokens, threads
        self.session = Session(decoder, NoDrafter(), device=str(decoder.device))
        self.prompt = prompt(decoder.arch.vocab_size)


class Ours:
    """One of our decoders with a drafter and a policy, which goes on learning from text to text."""

    def __init__(self, kind: str, stand: Stand, drafter: Drafter, k: str) -> None:
        self.stand, self.session = stand, stand.session
        self.drafter, self.k = drafter, k
        self.agreement = drafter.agreement if isinstance(drafter, ForcedAgreement) else None
        self.name = f"{kind} {drafter.name if isinstance(drafter, ForcedAgreement) else 'plain'}"
        self.plain, self.peer = f"{kind} plain", f"{name_of(RIVALS[kind])} plain" if kind in RIVALS else ""
        options = SpecOptions.of(draft_length(k))
        self.policy = SteerablePolicy(options.mode, options.k)

    def write(self, turn: int) -> Writing:
        if isinstance(self.drafter, ForcedAgreement):
            self.drafter.toss(turn)
        torch.set_num_threads(self.stand.threads)
        self.session.drafter = self.drafter
        self.session.begin(Greedy(Sampling(temperature=0.0)))
        for _ in self.session.prefill(self.stand.prompt):
            pass  # there already after the first text: the cache is rewound to it
        started = perf_counter()
        rounds = list(decode(self.session, self.policy, max_tokens=self.stand.max_tokens))
        return written(rounds, perf_counter() - started)


class Theirs:
    """llama.cpp, a token a forward, each its best."""

    k, plain, peer = "0", "", ""
    agreement: float | None = None

    def __init__(self, engine: LlamaCpp, *, max_tokens: int) -> None:
        self.engine, self.max_tokens = engine, max_tokens
        self.name = f"{engine.name} plain"

    def write(self, turn: int) -> Writing:  # noqa: ARG002 - nothing is drawn
        context = self.engine.best(PROMPT_TOKENS)
        ids = prompt(context.vocab_size)
        context.crop(0)
        context.read(ids[:-1])
        started = perf_counter()
        for _ in range(self.max_tokens):
            context.read(ids[-1:])
            ids.append(int(context.logits().argmax()))
        return Writing(tuple(ids[PROMPT_TOKENS:]), perf_counter() - started, self.max_tokens)


def writers(
    kind: str, stand: Stand, rates: Sequence[float], exit_layer: int, lengths: Sequence[str] = LENGTHS
) -> list[Writer]:
    """Plain, and for every rate of agreement some draft lengths, "auto" for the policy that chooses its own; where the
    draft head is short, the whole one beside it."""
    plain = Ours(kind, stand, NoDrafter(), "0")
    recorded = [*stand.prompt, *plain.write(0).ids]
    early = {"early exit": EarlyExitDrafter(stand.decoder, exit_layer)}
    if early["early exit"].shortlist:
        early[WHOLE_HEAD] = EarlyExitDrafter(stand.decoder, exit_layer, shorten=whole)
    drafters = [ForcedAgreement(one, recorded, rate, name=name) for rate in rates for name, one in early.items()]
    return [plain, *(Ours(kind, stand, drafter, k) for drafter in drafters for k in lengths)]


class Writes(Protocol):
    """Writes a text a turn."""

    def write(self, turn: int) -> Writing: ...


def time_writers(
    writers: Sequence[Writes], repeats: int, tell: Callable[[float], None], late: Callable[[], bool] = never
) -> list[list[Writing]]:
    """A list for every writer, of one text each turn, after one that is not counted. Who comes first turns. Once it is
    `late`, a turn that counts is the last."""
    found: list[list[Writing]] = [[] for _ in writers]
    for turn in range(repeats + 1):
        if turn > 1 and late():
            break
        for done, place in enumerate(rotated(range(len(writers)), turn), start=1):
            text = writers[place].write(turn)
            if turn:
                found[place].append(text)
            tell((turn + done / len(writers)) / (repeats + 1))
    return found


def prompt(vocab_size: int) -> list[int]:
    return [place * 7919 % frequent_words(vocab_size) for place in range(PROMPT_TOKENS)]


def written(rounds: Sequence[Round], seconds: float) -> Writing:
    ids = tuple(token for done in rounds for token in done.tokens)
    accepted = sum(done.accepted for done in rounds)
    refused = sum(done.accepted < done.drafted - done.ignored for done in rounds)
    return Writing(ids, seconds, len(rounds), accepted, accepted + refused)
