"""`auto` on real answers in virtual time: beside the best fixed drafter and length of every answer, in hindsight."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from statistics import fmean

import pytest

from benchmarks.recorded import recorded
from localspec.engine.policy.auto import Auto
from localspec.engine.policy.named import Constant, Heuristic
from localspec.engine.protocols import Policy
from tests.support.trace_world import MACHINES, Answer, Steady, play, spent, steady_costs

pytestmark = pytest.mark.heavy

# How often the other drafter is right; by kind, since drafters do well on code and lists, and poorly in a language that
# they hardly know.
AGREEMENT = {
    "chat": 0.6,
    "story": 0.5,
    "code": 0.85,
    "edit": 0.85,
    "summary": 0.6,
    "extraction": 0.8,
    "JSON": 0.9,
    "translation": 0.4,
}
ALONE = {"lookup": range(1, 17), "exit": range(1, 9)}
DRAFTERS = ["lookup", "exit", "lookup+exit"]
MIXED = 1.05  # of the best fixed choice of every answer
PARTS = 1.02
SEEDS = range(3)


@cache
def answers(seed: int = 0) -> tuple[Answer, ...]:
    """Prose, code and copying in turn: one answer of each kind, then the other."""
    numbered = [(kind, index) for index in (0, 1) for kind in AGREEMENT]
    return tuple(
        Answer(text.prompt, text.answer, agreement=AGREEMENT[kind], seed=100 * seed + place)
        for place, (kind, index) in enumerate(numbered)
        for text in (recorded()[kind][index],)
    )


@cache
def best_fixed(machine: str, drafters: str) -> float:
    """Answer by answer, the least that any one drafter with any one length takes, or plain decoding without a scan;
    mean over the coins, whose luck is no drafter's merit, where coins are thrown."""
    on, total = MACHINES[machine], 0.0
    for answer in zip(*map(answers, SEEDS), strict=True):
        fixed = [spent(play(Constant(0), answer[0], on, ""))]
        for drafter, lengths in ALONE.items():
            played = answer if drafter == "exit" else answer[:1]
            if drafter in drafters:
                fixed += [fmean(spent(play(Constant(k), each, on, drafter)) for each in played) for k in lengths]
        total += min(fixed)
    return total


@cache
def took(machine: str, drafters: str) -> float:
    """All answers by `auto`, which begins with no measurement and goes on learning from answer to answer."""
    on, times = MACHINES[machine], []
    for seed in SEEDS:
        policy = Auto()
        times.append(sum(spent(play(policy, answer, on, drafters)) for answer in answers(seed)))
    return fmean(times)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("drafters", DRAFTERS)
def test_auto_is_near_the_best_fixed_choice_of_every_answer(drafters: str, machine: str):
    assert took(machine, drafters) <= MIXED * best_fixed(machine, drafters)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_mixed_drafter_is_not_behind_the_better_of_its_parts(machine: str):
    assert took(machine, "lookup+exit") <= PARTS * min(took(machine, "lookup"), took(machine, "exit"))


STEADY_LIMIT = 1.03
STEADY_SEEDS = range(8)  # three are worth a hundredth by chance
STEADY = [(0.9, 0.0), (0.9, 0.8), (0.5, 0.7), (0.0, 0.9)]  # how often a token of each drafter is right


def steadily(policy: Callable[[], Policy], copied: float, agreement: float, machine: str, drafters: str) -> float:
    """What a token costs in a steady text; mean over the coins."""
    texts = [Steady(copied, agreement, 10 * seed) for seed in STEADY_SEEDS]
    return fmean(spent(play(policy(), text, MACHINES[machine], drafters)) / len(text.tokens) for text in texts)


def beyond_best(policy: Callable[[], Policy], copied: float, agreement: float, machine: str) -> float:
    """The cost with both drafters, as a multiple of that of the best fixed drafter and length."""
    best = min(steady_costs(copied, agreement, MACHINES[machine]).values())
    return steadily(policy, copied, agreement, machine, "lookup+exit") / best


@pytest.mark.sampled(3)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("copied", "agreement"), STEADY)
def test_in_a_steady_text_auto_is_near_the_best_fixed_drafter_and_length(copied: float, agreement: float, machine: str):
    assert beyond_best(Auto, copied, agreement, machine) <= STEADY_LIMIT


@pytest.mark.sampled(5)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("copied", "agreement"), STEADY)
def test_in_a_steady_text_a_mixed_drafter_is_not_behind_the_better_of_its_parts(
    copied: float, agreement: float, machine: str
):
    both, *parts = (steadily(Auto, copied, agreement, machine, one) for one in ("lookup+exit", "lookup", "exit"))
    assert both <= PARTS * min(parts)


def test_that_limit_would_notice_a_poor_policy():
    poor = [(Heuristic, 3), (lambda: Constant(0), 0), (lambda: Constant(2), 0), (lambda: Constant(8), 3)]
    for make, shares in poor:
        assert beyond_best(make, *STEADY[shares], "1B int4") > 1.2


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("drafters", DRAFTERS)
def test_a_hopeless_drafter_costs_next_to_nothing(drafters: str, machine: str):
    """The look-up is asked on text in which nothing repeats, and its scan takes a fiftieth of a forward."""
    on = MACHINES[machine]
    scan = on.forward(1) / 50
    hopeless = Answer(list(range(1000)), [(7919 * place) % 1000 for place in range(1000)], agreement=0.0, seed=0)
    plain = spent(play(Constant(0), hopeless, on, ""))
    assert spent(play(Auto(), hopeless, on, drafters, scan)) <= plain / 0.97
