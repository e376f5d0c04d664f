"""Several requests on one target, in virtual time: the policies that share its forwards draft what pays for all."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import accumulate, repeat
from operator import mul
from statistics import fmean

import pytest

from localspec.core.requests import MAX_DRAFT
from localspec.engine.batch import Batch
from localspec.engine.decode import decode
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.mixed import Mixed
from localspec.engine.policy import arms, auto, shares
from localspec.engine.policy.auto import Auto
from localspec.engine.policy.steerable import SharedPolicy, SteerablePolicy
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.engine.test_mutants import Mutant, apply
from tests.support.company_world import Cost, Request, World
from tests.support.models import tiny_decoder
from tests.support.trace_world import MACHINES
from tests.support.virtual_time import world

pytestmark = pytest.mark.heavy

STEPS = 300
NEAR = 0.93  # of the best common length; probes alone take up to 4 % of so short a run
AGREED = 0.8  # likewise, where drafts cost forwards: which lengths pay together is found out meanwhile
NOT_BELOW = 0.98  # of no drafts at all


def measured(name: str) -> Cost:
    """Forwards of docs/measurements.md; each row behind the sixteenth costs what the eighth to sixteenth do."""
    on = MACHINES[name]
    row = (on.forward(16) - on.forward(8)) / 8
    return lambda rows: on.forward(min(rows, 16)) + row * max(rows - 16, 0)


COSTS: dict[str, Cost] = {
    **{name: measured(name) for name in MACHINES},
    "flat": lambda rows: 10 + 0.01 * rows,
    "as a GPU's": lambda rows: 10 + 0.1 * rows,
}


def tokens_of(agreement: float, k: int) -> float:
    return sum(accumulate(repeat(agreement, k), mul, initial=1.0))


def common(cost: Cost, agreements: Sequence[float], k: int, drafting: float = 0.0) -> float:
    """Tokens a second where all draft k."""
    return sum(tokens_of(each, k) for each in agreements) / (cost(len(agreements) * (1 + k)) + drafting * k)


def best_common(cost: Cost, agreements: Sequence[float], drafting: float = 0.0) -> float:
    return max(common(cost, agreements, k, drafting) for k in range(MAX_DRAFT + 1))


def requests(world: World, agreements: Sequence[float], seed: int = 0, *, free: bool = True) -> list[Request]:
    policy = SharedPolicy("auto", "auto")
    return [
        Request(policy.slot(world.company), agreement, random.Random(100 * seed + place), free=free)
        for place, agreement in enumerate(agreements)
    ]


def ran(cost: Cost, agreements: Sequence[float], steps: int = STEPS, seed: int = 0) -> tuple[World, list[Request]]:
    world = World(cost)
    asked = requests(world, agreements, seed)
    world.run(asked, steps)
    return world, asked


def drafted(one: Request, last: int = 100) -> float:
    """Tokens a step, of the last ones."""
    return fmean(k for k, _ in one.steps[-last:])


def check_near_the_best(name: str, count: int, agreement: float) -> None:
    cost, agreements = COSTS[name], [agreement] * count
    seeds = range(3 if count < 4 else 1)
    rate = fmean(
        sum(one.tokens for one in asked) / world.seconds
        for world, asked in (ran(cost, agreements, seed=seed) for seed in seeds)
    )
    assert rate >= NEAR * best_common(cost, agreements)
    assert rate >= NOT_BELOW * common(cost, agreements, 0)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("agreement", [0.3, 0.5, 0.7, 0.9])
def test_all_together_are_near_the_best_common_length(name: str, count: int, agreement: float):
    check_near_the_best(name, count, agreement)


def test_one_drafts_long_and_eight_not_at_all_where_rows_cost_much():
    cost = COSTS["1B int4"]
    (_, (one,)), (_, eight) = ran(cost, [0.7]), ran(cost, [0.7] * 8)
    assert drafted(one) > 3
    assert fmean(map(drafted, eight)) < 0.2


def test_eight_still_draft_where_rows_cost_little():
    assert fmean(map(drafted, ran(COSTS["as a GPU's"], [0.7] * 8)[1])) > 3


def check_wide() -> None:
    """A fourth row that costs more than it brings hides that the fifth to eighth cost little: one wide draft shows it,
    before anything is concluded from narrow ones."""
    cost = COSTS["135M int4"]
    for seed in range(4):
        _, asked = ran(cost, [0.7] * 2, 60, seed)
        widths = [sum(drafts) for drafts in zip(*([k for k, _ in one.steps] for one in asked), strict=True)]
        assert max(widths[:6]) >= 4
        assert 4 <= fmean(widths[-30:]) <= 7


def test_two_do_not_stop_at_a_row_that_costs_more_than_the_next():
    check_wide()


def check_poor() -> None:
    """One that is hardly ever right, beside seven that mostly are."""
    world, (poor, *good) = ran(COSTS["135M int8"], [0.1] + [0.9] * 7)
    assert drafted(poor) < 0.1
    assert min(map(drafted, good)) > 0.7
    assert sum(one.tokens for one in (poor, *good)) / world.seconds > 1.1 * common(
        COSTS["135M int8"], [0.1] + [0.9] * 7, 0
    )


def test_a_request_whose_drafts_are_rejected_drafts_nothing_beside_seven_good_ones():
    check_poor()


def check_fair() -> None:
    """Nobody has less than half the speed that it would have without drafts; nor does it matter who chooses first."""
    cost = COSTS["135M int8"]
    world, asked = ran(cost, [0.0] + [0.98] * 7, 200)
    assert min(one.tokens for one in asked) / world.seconds >= 0.48 / cost(8)
    _, asked = ran(cost, [0.9] * 8, 2 * STEPS)
    assert min(one.tokens for one in asked) > 0.7 * max(one.tokens for one in asked)


def test_everybody_keeps_a_fair_share():
    check_fair()


def check_need() -> None:
    """Those who choose first leave cheap rows to those whose drafts are better. Half of the best where they do not."""
    cost: Cost = lambda rows: 10 + 1.5 * max(rows - 12, 0)  # noqa: E731
    agreements = [0.4, 0.4, 0.9, 0.9]
    world, asked = ran(cost, agreements)
    gains = sorted((each**place for each in agreements for place in range(1, MAX_DRAFT + 1)), reverse=True)
    best = max(total / cost(4 + rows) for rows, total in enumerate(accumulate(gains, initial=4.0)))
    assert sum(one.tokens for one in asked) / world.seconds >= 0.85 * best


def test_rows_go_to_those_who_need_them_whoever_chooses_first():
    check_need()


def check_alone(make: Callable[[], SteerablePolicy]) -> None:
    """A slot without company decides as a policy of its own does, round for round."""
    for accept in (0.3, 0.9):
        cost = COSTS["135M int8"]
        rounds = [world(each, lambda k: cost(k + 1), lambda _: accept, tokens=600) for each in (Auto(), make().auto)]  # noqa: B023
        assert [done.drafted for done in rounds[0]] == [done.drafted for done in rounds[1]]


def test_one_request_is_decided_for_as_ever():
    check_alone(lambda: SharedPolicy("auto", "auto").slot(World(COSTS["flat"]).company))


def test_one_in_a_batch_of_its_own_drafts_as_one_without():
    """Its rows are all there are: the same lengths, by the forward's time instead of the round's."""
    cost, lone = COSTS["135M int8"], SteerablePolicy("auto", "auto")
    _, (one,) = ran(cost, [0.8])
    apart = Request(lone, 0.8, random.Random(0))
    World(cost).run([apart], STEPS)
    assert one.steps == apart.steps


def test_requests_come_and_go():
    """Lengths follow: long before and after, none while eight are there, and all end."""
    world = World(COSTS["1B int4"])
    asked = requests(world, [0.8] * 8)
    for one in asked[1:]:
        one.begins, one.wants = 100, 150
    asked[0].wants = 900
    world.run(asked, 600)
    assert [one.tokens for one in asked] == [900] + [150] * 7
    lengths = [k for k, _ in asked[0].steps]
    assert fmean(lengths[40:100]) > 3
    assert fmean(lengths[120:200]) < 0.5
    assert fmean(lengths[-60:]) > 3


def check_prompts() -> None:
    """A forward with somebody's prompt takes longer, and tells nothing of rows."""
    world = World(COSTS["135M int8"])
    asked = requests(world, [0.7] * 2)

    def read(step: int) -> None:
        world.company.strangers = 64 * (step % 3 == 0)

    world.run(asked, STEPS, read)
    assert max(asked[0].policy.auto.costs.known[""]) < 40  # type: ignore[attr-defined]


def test_a_forward_with_a_prompt_teaches_no_costs():
    check_prompts()


def test_nothing_is_drafted_while_the_prompt_of_another_is_read():
    """Someone waits for it, and every row takes its full time; a request whose drafts are on drafts all the same."""
    world = World(COSTS["flat"])
    asked = requests(world, [0.9] * 2)
    world.run(asked, 60)
    world.company.is_reading = True
    before = [len(one.steps) for one in asked]
    world.run(asked, 20)
    assert [one.steps[start:] for one, start in zip(asked, before, strict=True)] == [[(0, 1)] * 20] * 2
    asked[0].policy.steer("on", 3)  # type: ignore[attr-defined]
    world.run(asked, 1)
    assert asked[0].steps[-1][0] == 3


def check_probes() -> None:
    """All have their rounds without a draft in the same steps, so that those show what drafts cost all of them."""
    _, asked = ran(COSTS["flat"], [0.9] * 4, 60)
    plain = [{step for step, (k, _) in enumerate(one.steps, start=1) if k == 0} for one in asked]
    assert {2, 5, 9, 25, 41} <= set.intersection(*plain)
    assert all(len(each) < 15 for each in plain)


def test_probes_are_the_same_steps_for_all():
    check_probes()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["135M int8", "1B int4", "flat"])
@pytest.mark.parametrize("count", [2, 8])
def test_drafts_that_cost_forwards_are_never_worse_than_none(name: str, count: int):
    """Everybody waits for them."""
    cost = COSTS[name]
    drafting = 0.2 * cost(1)
    world = World(cost, drafting)
    asked = requests(world, [0.7] * count, free=False)
    world.run(asked, STEPS)
    assert sum(one.tokens for one in asked) / world.seconds >= 0.97 * common(cost, [0.7] * count, 0)


def check_agreed(name: str, count: int) -> None:
    """Nobody begins alone what pays if all do, since everybody waits for a draft that costs forwards."""
    cost, exit, agreements = COSTS[name], MACHINES[name].exit, [0.9] * count
    world = World(cost, exit)
    asked = requests(world, agreements, free=False)
    world.run(asked, STEPS)
    rate = sum(one.tokens for one in asked) / world.seconds
    assert rate >= AGREED * best_common(cost, agreements, exit)
    assert rate >= NOT_BELOW * common(cost, agreements, 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_drafts_that_cost_forwards_are_agreed_on(name: str, count: int):
    check_agreed(name, count)


def test_of_those_whose_drafts_cost_forwards_one_that_is_hardly_ever_right_drafts_nothing():
    world = World(COSTS["1B int8"], MACHINES["1B int8"].exit)
    poor, *good = asked = requests(world, [0.1] + [0.9] * 3, free=False)
    world.run(asked, STEPS)
    assert drafted(poor) < 0.1
    assert min(map(drafted, good)) > 0.7


def test_each_slot_has_its_own_mode():
    world = World(COSTS["flat"])
    asked = requests(world, [0.9] * 3)
    for one, (mode, k) in zip(asked, (("off", "auto"), ("on", 2), ("auto", "auto")), strict=True):
        one.policy.steer(mode, k)  # type: ignore[attr-defined]
    world.run(asked, STEPS)
    lengths = [{k for k, _ in one.steps} for one in asked]
    assert lengths[:2] == [{0}, {0, 2}]
    assert drafted(asked[2]) > 8


def test_texts_in_a_batch_are_those_alone_whatever_is_drafted():
    """The real loop, and a Batch as the company."""
    target = tiny_decoder()
    prompts = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8], [1, 1, 2, 3, 5, 8]]

    def text(view, policy) -> list[int]:
        session = Session(view, Mixed(LookupDrafter(), EarlyExitDrafter(view, 2)))
        session.begin(make_sampler(Sampling()))
        for _ in session.prefill(prompts[views.index(view)]):
            pass
        return [token for done in decode(session, policy, max_tokens=40) for token in done.tokens]

    views = [target.beside() for _ in prompts]
    batch, policy, texts = Batch(), SharedPolicy("auto", "auto"), dict[int, list[int]]()
    for view in (target, *views):
        batch.join(view)
    slots = [policy.slot(batch) for _ in prompts]
    for index, view in enumerate(views):
        batch.start(lambda index=index, view=view: texts.update({index: text(view, slots[index])}))
    while batch.step():
        pass
    batch.close()
    assert policy.shared.steps.count > 10
    assert {rows for rows in policy.shared.costs.known[""] if rows >= 2}
    for view in views:
        view.crop(0)
    assert [texts[index] for index in range(3)] == [text(view, SteerablePolicy("off", 0)) for view in views]


CHECKS: dict[str, Callable[[], None]] = {
    "wide": check_wide,
    "eight": lambda: check_near_the_best("135M int8", 8, 0.9),
    "poor": check_poor,
    "fair": check_fair,
    "need": check_need,
    "prompts": check_prompts,
    "probes": check_probes,
    "agreed": lambda: check_agreed("1B int8", 4),
}

MUTANTS = {
    "no wide draft first": Mutant("wide", arms, "untried", "others + k if others else 1", "1"),
    "marginal rows as if alone": Mutant("eight", arms, "beside", "costs.beside(others.rows)", "costs.beside(0)"),
    "a rate of one's own": Mutant("eight", auto.Auto, "best", "cost[0], self.others.tokens", "cost[0], 0.0"),
    "each for itself": Mutant("agreed", auto.Auto, "wanted", "not candidates[0].arm.free", "candidates[0].arm.free"),
    "no limit": Mutant("fair", arms, "beside", "if cost[k] <= dearest", ""),
    "who chooses first takes all": Mutant(
        "need", shares.Others, "joined", "rows=self.rows + rows", "rows=self.rows + 0 * rows"
    ),
    "prompts teach": Mutant("prompts", auto.Auto, "observe", "and not together.is_mixed", ""),
    "everybody counts the step": Mutant("probes", shares.Steps, "is_new", "last is self.last", "False"),
    "the best gain is the worst": Mutant("need", shares.Others, "joined", "above.index(max(above))", "0"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_seeded_bug_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch):
    apply(MUTANTS[mutant], monkeypatch)
    with pytest.raises(AssertionError):
        CHECKS[MUTANTS[mutant].level]()
