"""The measured speed-up is the true one within 1 %, in virtual time; and events fold into sums that add up."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

import msgspec
import pytest

from localspec.core.events import (
    AnyEvent,
    Done,
    DrafterSums,
    Failure,
    Likely,
    Loading,
    Memory,
    ModelCard,
    Notice,
    Prefill,
    Proposal,
    Ready,
    SpecCard,
    Stats,
    Steered,
    Step,
    Text,
    Token,
    Waiting,
)
from localspec.engine.protocols import Policy, Round
from localspec.runtime.plain_rounds import KEPT
from localspec.runtime.stats import (
    PROBES_NEEDED,
    SpeedMeter,
    Tally,
    add_step,
    joined,
    steady_mean,
    to_dict,
)
from tests.support.virtual_time import policy_of, world

Cost = Callable[[int], float]

COSTS: dict[str, Cost] = {
    "early exit": lambda k: 1 + 0.27 * k,
    "cheap draft": lambda k: 1 + 0.1 * k,
    "cliff at 5": lambda k: (1 if k < 5 else 2) + 0.1 * k,
    "flat": lambda k: 1 + 0.02 * k,
    "slower": lambda k: 1 + 1.1 * k,
}
HICCUP_SHARE, HICCUP = 0.01, 10.0
READY = Ready(ModelCard("m", "fp32", "cpu", 512, True), SpecCard("early-exit", "layers 1–2"), Memory(1000, 0, 64, 30.0))


def test_two_answers_are_compared_by_their_rounds_as_an_answer_with_its_probes():
    """Beside one that is plain, figure and interval are those of the header."""
    noise = random.Random(3)
    plain, drafted, both = SpeedMeter(), SpeedMeter(), SpeedMeter()
    for _ in range(20):
        spent = noise.uniform(15, 25)
        plain.observe(drafted=0, tokens=1, milliseconds=spent)
        both.observe(drafted=0, tokens=1, milliseconds=spent)
    both.restart()
    for width in (3, 3, 2, 3, 1, 2, 3, 3, 2, 3):
        spent = noise.uniform(20, 30)
        drafted.observe(drafted=width, tokens=width, milliseconds=spent)
        both.observe(drafted=width, tokens=width, milliseconds=spent)
    assert drafted.against(plain) == (pytest.approx(both.speedup), pytest.approx(both.band))
    assert plain.against(drafted) != drafted.against(plain)
    assert drafted.against(SpeedMeter()) is None
    assert SpeedMeter().against(plain) is None


def measure(policy: Policy, cost: Cost, accept: float, *, seed: int, hiccups: bool = True) -> tuple[float, float]:
    """The meter's speed-up over 3,000 tokens, and the truth: what the same tokens cost plain, over what their rounds
    cost, hiccups aside."""
    coins = random.Random(seed + 1000)

    def clock(k: int) -> float:
        return cost(k) * (HICCUP if hiccups and coins.random() < HICCUP_SHARE else 1)

    rounds = world(policy, clock, lambda _: accept, tokens=3000, seed=seed)
    meter = SpeedMeter()
    for done in rounds:
        meter.observe(drafted=done.drafted, tokens=len(done.tokens), milliseconds=1000 * done.seconds)
    assert meter.speedup is not None
    tokens = sum(len(done.tokens) for done in rounds)
    return meter.speedup, tokens * cost(0) / sum(cost(done.drafted) for done in rounds)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("seeds", [[0], pytest.param([1, 2], marks=pytest.mark.heavy)])
@pytest.mark.parametrize("accept", [0.0, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("k", ["auto", "heuristic", "1", "4", "8"])
@pytest.mark.parametrize("cost", COSTS)
def test_the_speed_up_is_true_within_one_per_cent(cost: str, k: str, accept: float, seeds: list[int]):
    for seed in seeds:
        measured, truth = measure(policy_of(k), COSTS[cost], accept, seed=seed)
        assert measured == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize("k", ["auto", "4"])
def test_without_hiccups_the_speed_up_is_exact(k: str):
    measured, truth = measure(policy_of(k), COSTS["early exit"], 0.7, seed=0, hiccups=False)
    assert measured == pytest.approx(truth, rel=1e-9)


def test_a_drafter_that_slows_down_is_shown_as_such():
    measured, _ = measure(policy_of("4"), COSTS["slower"], 0.3, seed=0)
    assert measured < 0.5


def test_hiccups_would_spoil_a_plain_mean():
    """The one per cent above is not for lack of trouble."""
    coins = random.Random(0)
    times = [10.0 if coins.random() < HICCUP_SHARE else 1.0 for _ in range(2000)]
    assert sum(times) / len(times) > 1.05
    assert steady_mean(times) == 1.0


def observe(meter: SpeedMeter, drafted: int, tokens: int, milliseconds: float, times: int = 1) -> None:
    for _ in range(times):
        meter.observe(drafted=drafted, tokens=tokens, milliseconds=milliseconds)


def test_there_is_no_figure_before_ten_probes():
    meter = SpeedMeter()
    for _ in range(10):
        assert (meter.speedup, meter.baseline_ms) == (None, None)
        observe(meter, 4, 3, 15)
        assert meter.speedup is None
        observe(meter, 0, 1, 10)
    assert meter.baseline_ms == 10
    assert meter.speedup == pytest.approx((30 + 10) * 10 / (150 + 100))


def test_probes_survive_turns_and_rounds_do_not():
    meter = SpeedMeter()
    observe(meter, 0, 1, 10, times=10)
    observe(meter, 2, 1, 100)
    meter.restart()
    assert meter.speedup is None
    assert meter.baseline_ms == 10
    observe(meter, 4, 4, 20)
    assert meter.speedup == pytest.approx(2.0)


def test_the_baseline_follows_a_machine_that_changes_speed():
    meter = SpeedMeter()
    observe(meter, 0, 1, 10, times=200)
    observe(meter, 0, 1, 30, times=64)
    assert meter.baseline_ms == 30


def test_a_machine_that_slows_down_is_no_speed_up_of_an_answer_that_is_nearly_plain():
    """`auto` soon drafts no more; the slow last rounds beside the fast first ones would have shown a gain."""
    meter = SpeedMeter()
    for milliseconds in (40.0, 48.0):
        for _ in range(10):
            observe(meter, 0, 1, milliseconds, times=60)
            observe(meter, 1, 1, 1.3 * milliseconds)
    assert meter.baseline_ms == 48
    assert meter.speedup is not None
    assert 0.98 < meter.speedup < 1


def test_times_that_spread_as_wide_as_the_figure_give_none():
    meter = SpeedMeter()
    for milliseconds in (10.0, 40.0, 90.0):
        observe(meter, 0, 1, milliseconds)
    observe(meter, 4, 3, 60.0, times=20)
    assert (meter.speedup, meter.band) == (None, None)
    observe(meter, 0, 1, 50.0, times=10)
    assert meter.speedup is not None
    assert meter.band is not None
    assert meter.band < meter.speedup


def test_few_drafted_rounds_say_nothing_for_certain_and_many_do():
    """Rounds of two lengths, of which a few are no measure of how their times spread."""
    meter = SpeedMeter()
    for milliseconds in (8.0, 12.0) * (KEPT // 2):
        observe(meter, 0, 1, milliseconds)
    meter.restart()
    for times, certain in ((1, False), (30, True)):
        observe(meter, 4, 2, 17.0, times=times)
        observe(meter, 3, 2, 16.0, times=times)
        assert meter.speedup == pytest.approx(40 / 33)
        assert meter.band is not None
        assert (meter.band < meter.speedup - 1) is certain


def test_more_than_a_rounds_tokens_is_no_speed_up_but_a_machine_that_changed_speed():
    """Plain rounds of a slow time beside rounds of a fast one: x15 where a round has three tokens."""
    meter = SpeedMeter()
    observe(meter, 0, 1, 100.0, times=PROBES_NEEDED)
    meter.restart()
    observe(meter, 4, 3, 20.0, times=20)
    assert (meter.speedup, meter.band) == (None, None)
    observe(meter, 0, 1, 18.0, times=KEPT)
    meter.restart()
    observe(meter, 4, 3, 20.0, times=20)
    assert meter.speedup == pytest.approx(3 * 18 / 20)


def test_rounds_without_time_give_no_figure_and_no_crash():
    meter = SpeedMeter()
    observe(meter, 0, 1, 0.0, times=PROBES_NEEDED)
    observe(meter, 4, 3, 0.0)
    assert meter.speedup is None


def random_step(coins: random.Random) -> Step:
    drafted = coins.choice([0, 0, 1, 2, 4, 8])
    accepted = coins.randint(0, drafted)
    ignored = coins.choice([0, 0, drafted - accepted])
    rejected = drafted - accepted - ignored
    own = "plain" if not drafted else "fix" if rejected else "bonus"
    tokens = [Token(coins.randrange(99), "a", "draft", pos=place) for place in range(accepted)]
    if not (ignored and accepted) or not tokens:
        tokens.append(Token(coins.randrange(99), "b", own))  # type: ignore[arg-type]
    return Step(
        "draft" if drafted else "plain",
        tuple(tokens),
        drafted,
        accepted,
        ignored,
        draft_ms=coins.random() if drafted else 0.0,
        verify_ms=coins.random(),
        rejected=tuple(Proposal(1, "c") for _ in range(rejected)),
    )


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_any_steps_add_up(seed: int):
    coins = random.Random(seed)
    steps = [random_step(coins) for _ in range(coins.choice([0, 1, 5, 200]))]
    stats = Stats()
    for step in steps:
        stats = add_step(stats, step)
    own = sum(token.source != "draft" for step in steps for token in step.tokens)
    assert stats.draft_n == stats.draft_n_accepted + stats.draft_n_rejected + stats.draft_n_ignored
    assert stats.predicted_n == stats.draft_n_accepted + own == sum(len(step.tokens) for step in steps)
    assert stats.rounds == len(steps)
    assert sum(stats.accepted_counts) == stats.draft_rounds
    assert sum(n * count for n, count in enumerate(stats.accepted_counts)) == stats.draft_n_accepted
    assert stats.predicted_ms == pytest.approx(stats.draft_ms + stats.verify_ms)
    assert stats.context_used == stats.predicted_n
    assert sum(stats.tested_counts) == stats.draft_rounds
    tested = stats.draft_n_accepted + stats.draft_n_rejected
    assert sum(n * count for n, count in enumerate(stats.tested_counts)) == tested
    for place, share in enumerate(stats.accept_per_pos):
        long = [step for step in steps if step.drafted - step.ignored > place]
        assert share == pytest.approx(sum(step.accepted > place for step in long) / len(long))


def test_a_place_that_few_drafts_have_is_judged_by_those_few():
    """Ten drafts of one, all accepted, and two of three, one of them whole: every second third place was accepted."""
    stats = Stats()
    for accepted, drafted in [(1, 1)] * 10 + [(3, 3), (1, 3)]:
        tokens = (*(Token(1, "a", "draft", pos=place) for place in range(accepted)), Token(1, "b", "bonus"))
        rejected = (Proposal(1, "c"),) * (drafted - accepted)
        stats = add_step(stats, Step("draft", tokens, drafted, accepted, rejected=rejected))
    assert stats.accept_per_pos == (1.0, 0.5, 0.5)


def test_nothing_divides_by_nothing():
    """LayerSkip's own code divides zero by zero when nothing was drafted."""
    told = to_dict(Stats())
    assert told["acceptance_rate"] is None
    assert told["mean_accept_len"] is None
    assert told["bandwidth_gbs"] is None
    assert told["speedup"] is None
    assert (told["predicted_per_second"], told["tokens_per_step"], told["accept_per_pos"]) == (0.0, 0.0, ())
    json.dumps(told)
    one_ignored = add_step(Stats(), Step("draft", (Token(1, "a", "draft", pos=0),), 2, 1, 1))
    assert one_ignored.acceptance_rate == 1.0
    all_ignored = add_step(Stats(), Step("draft", (), 2, 0, 2))
    assert all_ignored.acceptance_rate is None
    assert to_dict(all_ignored)["mean_accept_len"] == 1.0


LLAMA_CPP = {"prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "predicted_per_second"}
LLAMA_CPP |= {"draft_n", "draft_n_accepted"}
OURS = {"cached_n", "ttft_ms", "draft_kind", "draft_rounds", "draft_n_rejected", "draft_n_ignored", "acceptance_rate"}
OURS |= {"mean_accept_len", "accept_per_pos", "draft_ms", "verify_ms", "overhead_ms", "baseline_tps"}
OURS |= {"speedup", "target_bytes", "drafter_bytes", "kv_bytes", "peak_bytes", "bandwidth_gbs"}
OURS |= {"bandwidth_peak_gbs", "context_used", "context_max", "finish_reason"}


def test_stats_as_json_have_llama_cpps_names_and_the_rates():
    stats = Stats(
        predicted_n=30,
        predicted_ms=1500.0,
        draft_n=40,
        draft_n_accepted=18,
        draft_n_rejected=18,
        draft_n_ignored=4,
        draft_rounds=10,
        plain_rounds=2,
        read_bytes=3_000_000_000,
        draft_ms=500,
        verify_ms=900,
    )
    told = to_dict(stats)
    assert set(told) >= LLAMA_CPP | OURS
    assert told["predicted_per_second"] == pytest.approx(20)
    assert told["acceptance_rate"] == pytest.approx(0.5)
    assert told["tokens_per_step"] == pytest.approx(2.5)
    assert told["mean_accept_len"] == pytest.approx(2.8)
    assert told["overhead_ms"] == pytest.approx(100)
    assert told["bandwidth_gbs"] == pytest.approx(2.0)
    assert to_dict(Done("stop", stats))["stats"] == told
    assert to_dict(Done("stop", stats))["type"] == "done"


def test_a_draft_length_stays_text_in_json():
    assert to_dict(Steered(SpecCard("model", "small", 5, mode="on")))["spec"]["k"] == "5"
    assert to_dict(READY)["spec"]["k"] == "auto"


TOKEN = Token(7, "é\x00\U0001f600", "fix", None, (Likely(7, "\ufffd", -0.5),), Proposal(8, "\ufffd"))
EVENTS: list[AnyEvent] = [
    Loading("weights", 1, 2, "bytes", 0.5),
    Loading("weights", 1, 2),
    READY,
    Steered(SpecCard("model", "small", 5, mode="on")),
    Waiting("2 before you"),
    Prefill(1, 2, 3),
    Step("draft", (TOKEN, Token(1, "", "draft", 0)), 3, 1, 1, 0.1, 0.2, (Proposal(8, "x"),)),
    Step("plain", ()),
    Notice("warning", "code", "message", "hint"),
    Done("cancelled", Stats(accepted_counts=(1, 2), baseline_tps=9.5, speedup=1.5, finish_reason="cancelled")),
    Text("a piece of a server's answer"),
    Failure("engine_died", "message", "hint", 3),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_every_event_survives_the_pipe_and_the_file(event: AnyEvent):
    assert msgspec.msgpack.Decoder(AnyEvent).decode(msgspec.msgpack.encode(event)) == event
    assert msgspec.json.Decoder(AnyEvent).decode(msgspec.json.encode(event)) == event
    assert to_dict(event)["type"] == type(event).__name__.lower()
    json.dumps(to_dict(event))


def test_every_kind_of_event_was_tried():
    assert {type(event) for event in EVENTS} == set(AnyEvent.__args__)


def turn(*steps: Step, cached: int = 0) -> Iterator[AnyEvent]:
    yield Prefill(0, 10, cached)
    yield Prefill(10 - cached, 10, cached)
    yield from steps


def test_a_tally_holds_the_current_generation_and_keeps_the_load():
    tally = Tally()
    tally.add(READY)
    plain = Step("plain", (Token(1, "a", "plain"),), verify_ms=10.0)
    drafted = Step("draft", (Token(1, "a", "draft", 0), Token(2, "b", "bonus")), 1, 1, draft_ms=2.0, verify_ms=8.0)
    for event in turn(*[plain] * 9, drafted):
        tally.add(event)
    assert (tally.stats.predicted_n, tally.stats.prompt_n, tally.stats.context_used) == (11, 10, 21)
    assert (tally.stats.speedup, tally.stats.draft_kind, tally.stats.target_bytes) == (None, "early-exit", 1000)
    tally.add(Done("stop", msgspec.structs.replace(tally.stats, peak_bytes=5)))
    assert tally.stats.peak_bytes == 5
    for event in turn(plain, drafted, cached=4):
        tally.add(event)
    now = tally.stats
    assert (now.predicted_n, now.cached_n, now.peak_bytes) == (3, 4, 0)
    assert now.speedup == pytest.approx(3 * 10 / 20)
    assert now.baseline_tps == pytest.approx(100)
    assert now.bandwidth_peak_gbs == 30.0


def test_a_second_model_starts_a_new_baseline():
    tally = Tally()
    tally.add(READY)
    for event in turn(*[Step("plain", (Token(1, "a", "plain"),), verify_ms=10.0)] * 3):
        tally.add(event)
    tally.add(READY)
    assert tally.meter.baseline_ms is None
    assert tally.stats.predicted_n == 0


def test_rounds_of_the_virtual_world_are_rounds():
    done = world(policy_of("2"), lambda k: 1.0 + k, lambda _: 1.0, tokens=10)
    assert all(isinstance(one, Round) and one.drafted in (0, 2) for one in done)


def test_drafts_are_summed_by_the_kind_of_drafter_too():
    wrong = Proposal(1, "x")
    first = Step("draft", (), 4, 2, 1, rejected=(wrong,), drafters=("early-exit", "lookup", "lookup", "lookup"))
    second = Step("draft", (), 1, 1, 0, drafters=("early-exit",))
    stats = add_step(add_step(add_step(Stats(), first), Step("plain", ())), second)
    assert stats.by_drafter == {"early-exit": DrafterSums(2, 2, 0), "lookup": DrafterSums(3, 1, 1)}
    assert sum(sums.drafted for sums in stats.by_drafter.values()) == stats.draft_n
    assert joined(stats, stats).by_drafter == {"early-exit": DrafterSums(4, 4, 0), "lookup": DrafterSums(6, 2, 2)}
    looked_up = to_dict(stats)["by_drafter"]["lookup"]
    assert looked_up == {"drafted": 3, "accepted": 1, "rejected": 1, "acceptance_rate": 0.5}
    assert msgspec.json.decode(msgspec.json.encode(stats), type=Stats) == stats
