"""A clockless world for policies: costs by k from a table, acceptance by place from a seeded trace."""

from __future__ import annotations

import random
from collections.abc import Callable

from localspec.core.requests import MAX_DRAFT, SpecOptions, draft_length
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Choice, Offer, Policy, Round

SCRIPTED = Offer("scripted", MAX_DRAFT)


def policy_of(k: str) -> SteerablePolicy:
    """What --k says."""
    options = SpecOptions.of(draft_length(k))
    return SteerablePolicy(options.mode, options.k)


def length(policy: Policy) -> int:
    """How many tokens it would have the only drafter propose now."""
    return policy.choose(MAX_DRAFT, lambda: (SCRIPTED,)).k


def round_of(k: int, accepted: int, seconds: float) -> Round:
    """A round in which the only drafter proposed k tokens."""
    choice = Choice(k, SCRIPTED if k else None)
    return Round(
        (0,) * (accepted + 1), (0,) * k, accepted, 0.0, seconds, drafters=(SCRIPTED.drafter,) * k, choice=choice
    )


def world(
    policy: Policy, cost: Callable[[int], float], accept: Callable[[int], float], *, tokens: int, seed: int = 0
) -> list[Round]:
    """Rounds until `tokens` are committed. Place i of a draft is accepted with probability accept(i)."""
    coins, done, committed = random.Random(seed), [], 0
    while committed < tokens:
        k = length(policy)
        accepted = 0
        while accepted < k and coins.random() < accept(accepted):
            accepted += 1
        last = round_of(k, accepted, cost(k))
        policy.observe(last)
        done.append(last)
        committed += accepted + 1
    return done
