"""A clockless world of real answers: SmolLM2's recorded ids, a look-up that searches them, a drafter that is right as
often as a coin says, and the measured costs of widths.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from localspec.core.requests import MAX_DRAFT
from localspec.engine.drafters.lookup import bucket
from localspec.engine.drafters.ngram import NgramFinder
from localspec.engine.policy.named import LONG_MATCH
from localspec.engine.protocols import PLAIN, Choice, Offer, Policy, Round

SCAN = 0.02  # ms: a look-up's search of some hundred ids and its offer, in Python


@dataclass(frozen=True)
class Machine:
    """Milliseconds: a forward by its rows, from docs/measurements.md at depth 128, on lines between what was measured;
    and a token of early exit."""

    rows: Sequence[tuple[int, float]]
    exit: float

    @cache  # noqa: B019 - there are four
    def forward(self, rows: int) -> float:
        at = bisect_left(self.rows, (rows, 0.0))
        if self.rows[at][0] == rows:
            return self.rows[at][1]
        (a, low), (b, high) = self.rows[at - 1], self.rows[at]
        return low + (high - low) * (rows - a) / (b - a)


WIDTHS = (1, 2, 3, 4, 5, 8, 16, 17)


def machine(ms: Sequence[float], exit_ms: float) -> Machine:
    """The seventeenth row costs what the sixteenth adds."""
    last = ms[-1] + (ms[-1] - ms[-2]) / 8
    return Machine(tuple(zip(WIDTHS, (*ms, last), strict=True)), exit_ms)


MACHINES = {
    "135M int8": machine((6.86, 6.55, 7.96, 8.01, 7.91, 9.74, 15.26), 2.74),
    "135M int4": machine((3.32, 3.67, 4.45, 5.89, 5.72, 7.18, 12.93), 1.00),
    "1B int8": machine((35.80, 32.26, 35.87, 38.89, 34.34, 40.51, 60.81), 10.37),
    "1B int4": machine((19.46, 19.14, 19.86, 19.94, 18.96, 27.71, 51.40), 5.27),
}


class Answer:
    """One recorded answer. `right`: by position of the answer, whether the other drafter's token would be."""

    def __init__(self, prompt: Sequence[int], answer: Sequence[int], agreement: float, seed: int) -> None:
        self.tokens = list(answer)
        self.looked_up = list(look_up(tuple(prompt), tuple(answer)))
        coins = random.Random(seed)
        self.right = [coins.random() < agreement for _ in answer]

    def offers(self, at: int, most: int, drafters: str) -> tuple[Offer, ...]:
        found = []
        if "lookup" in drafters and (offer := self.looked_up[at]) is not None:
            tokens = offer.tokens[:most]
            found.append(Offer("lookup", len(tokens), tokens, offer.bucket))
        if "exit" in drafters:
            found.append(Offer("early-exit", most))
        return tuple(found)

    def drafted(self, choice: Choice, at: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The tokens that are proposed behind position `at`, and their drafters."""
        if choice.offer is None or choice.k == 0:
            return (), ()
        if choice.offer.tokens:
            tokens = choice.offer.tokens[: choice.k]
            return tokens, ("lookup",) * len(tokens)
        own = [token if right else -1 for token, right in zip(self.tokens[at:], self.right[at:], strict=True)][
            : choice.k
        ]
        tokens, grafted = tuple(own), ()
        if choice.graft is not None and tokens == choice.graft.tokens[: len(tokens)]:
            grafted = choice.graft.tokens[len(tokens) :]
        return tokens + grafted, ("early-exit",) * len(tokens) + ("lookup",) * len(grafted)


class Steady(Answer):
    """A text without a change, of so many tokens: each looked-up token is right as often as `copied` says, and a match
    stands in every round; each of the other drafter's as often as `agreement` says."""

    def __init__(self, copied: float, agreement: float, seed: int, length: int = 3000) -> None:
        super().__init__((), range(length), agreement, seed)
        coins = random.Random(seed + 1)
        self.looked_up = [self.copy(at, copied, coins) for at in range(length)]

    def copy(self, at: int, copied: float, coins: random.Random) -> Offer:
        tokens = tuple(token if coins.random() < copied else -1 for token in self.tokens[at : at + MAX_DRAFT])
        return Offer("lookup", len(tokens), tokens, LONG_MATCH)


def steady_costs(copied: float, agreement: float, on: Machine) -> dict[tuple[str, int], float]:
    """Milliseconds a token in such a text, in the long run, by drafter and length; "" is plain decoding."""
    found = {("", 0): on.forward(1)}
    for k in range(1, MAX_DRAFT + 1):
        found["lookup", k] = (on.forward(k + 1) + SCAN) / sum(copied**place for place in range(k + 1))
    for k in range(1, 9):
        found["exit", k] = (on.forward(k + 1) + k * on.exit) / sum(agreement**place for place in range(k + 1))
    return found


@cache
def look_up(prompt: tuple[int, ...], answer: tuple[int, ...]) -> tuple[Offer | None, ...]:
    """What a look-up offers before each token of the answer."""
    find, ids, found = NgramFinder(), array("i", prompt), []
    for token in answer:
        match = find(ids, ids, MAX_DRAFT)
        found.append(None if match is None else Offer("lookup", len(match.tokens), match.tokens, bucket(match)))
        ids.append(token)
    return tuple(found)


def play(policy: Policy, answer: Answer, on: Machine, drafters: str, scan: float = SCAN) -> list[Round]:
    """The rounds of one answer, from its first token on."""
    rounds, at, asked = [], 0, []

    def offers() -> tuple[Offer, ...]:
        asked.append(at)
        return answer.offers(at, most, drafters)

    while at < len(answer.tokens):
        most = min(MAX_DRAFT, len(answer.tokens) - at - 1)
        asked.clear()
        choice = policy.choose(most, offers) if most else PLAIN
        draft, kinds = answer.drafted(choice, at)
        accepted = 0
        while accepted < len(draft) and draft[accepted] == answer.tokens[at + accepted]:
            accepted += 1
        tokens = tuple(answer.tokens[at : at + accepted + 1])
        at += accepted + 1
        proposing = scan * bool(asked and "lookup" in drafters) + on.exit * kinds.count("early-exit")
        ended = "length" if at == len(answer.tokens) else None
        rounds.append(
            Round(
                tokens,
                draft,
                accepted,
                proposing,
                on.forward(len(draft) + 1),
                ended=ended,
                drafters=kinds,
                choice=choice,
            )
        )
        policy.observe(rounds[-1])
    return rounds


def spent(rounds: Iterable[Round]) -> float:
    return sum(done.seconds for done in rounds)
