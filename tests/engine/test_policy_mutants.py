"""The policies' tests can fail: each mutant is a line of `auto` changed, and the answers of one machine object."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localspec.engine.policy import acceptance, arms, auto, costs, hindsight, offers
from localspec.engine.policy.auto import Auto
from localspec.engine.policy.named import Constant
from tests.engine.test_mutants import Mutant, apply
from tests.engine.test_policy import ACCEPTS, COSTS, LIMIT, regret, steady
from tests.engine.test_policy_on_traces import MIXED, answers, best_fixed
from tests.support.trace_world import MACHINES, Answer, play, spent

pytestmark = pytest.mark.heavy


def check_traces() -> None:
    """Copying and prose, by look-up alone: nothing is left to chance."""
    on, policy = MACHINES["1B int4"], Auto()
    took = sum(spent(play(policy, answer, on, "lookup")) for answer in answers(0))
    assert took <= MIXED * best_fixed("1B int4", "lookup")


def check_steady() -> None:
    for cost, accept in (("early exit", ".7"), ("cheap draft", ".98"), ("costly", ".2")):
        assert regret(COSTS[cost], ACCEPTS[accept], steady, range(2)) <= LIMIT + 0.01


def check_hopeless() -> None:
    """With a scan of a tenth of a forward, where every width costs more than the last."""
    on = MACHINES["135M int4"]
    hopeless = Answer(list(range(1000)), [(7919 * place) % 1000 for place in range(1000)], agreement=0.0, seed=0)
    plain = spent(play(Constant(0), hopeless, on, ""))
    assert spent(play(Auto(), hopeless, on, "lookup", on.forward(1) / 10)) <= plain / 0.97


CHECKS: dict[str, Callable[[], None]] = {"traces": check_traces, "steady": check_steady, "hopeless": check_hopeless}

MUTANTS = {
    "counts what was rejected as kept": Mutant(
        "steady", acceptance.PositionCounts, "add", "position < start + kept", "True"
    ),
    "costs nothing": Mutant("steady", arms.PricedOffer, "best", "- rate * cost[k]", "- 0.0 * cost[k]"),
    "drafts least": Mutant("traces", arms.PricedOffer, "best", "return max(", "return min("),
    "every cost is a plain round's": Mutant("steady", costs.Costs, "update", "known[k] = cost", "known[k] = 1.0"),
    "always asks": Mutant("hopeless", offers.AskingRate, "due", "self.saves >= self.cost or", "True or"),
    "never asks again": Mutant(
        "traces", offers.AskingRate, "due", "or self.allowance >= self.cost", "and not self.cost"
    ),
    "hindsight finds all right": Mutant("traces", hindsight, "score", "if ours != came:", "if False:"),
    "learns nothing in hindsight": Mutant("hopeless", auto.Auto, "observe", "if asked or", "if False and"),
}


@pytest.mark.parametrize("check", CHECKS)
def test_auto_as_it_is_passes(check: str) -> None:
    CHECKS[check]()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apply(MUTANTS[mutant], monkeypatch)
    with pytest.raises(AssertionError):
        CHECKS[MUTANTS[mutant].level]()
