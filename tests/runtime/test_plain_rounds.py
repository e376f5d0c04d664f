"""The speed-up's interval holds on machines that change speed: slowly, quickly, a little, a lot."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import exp, sqrt

import pytest

from localspec.runtime.plain_rounds import PlainRounds
from localspec.runtime.stats import SpeedMeter

ANSWERS, TRIES = 8, 25


def certain(meter: SpeedMeter) -> int:
    """1 where it is certainly faster, -1 where certainly slower, 0 where neither is."""
    found, band = meter.speedup, meter.band
    return 0 if found is None or band is None or abs(found - 1) <= band else 1 if found > 1 else -1


def answers(seed: int, *, tokens: int, change: float, seconds: float, gain: float = 1.0) -> Iterator[SpeedMeter]:
    """The meter after each answer but the first. A plain round takes 10 ms at a speed that drifts by `change` (as a
    share), of which it forgets most in `seconds`; 1 % of each time is noise. Drafted rounds of two tokens are `gain`
    times as fast as plain ones; rounds 2, 5, 9 and every 16th are plain."""
    dice, meter, drift, count = random.Random(seed), SpeedMeter(), 0.0, 0

    def drifted(past: float) -> float:
        kept = exp(-past / seconds)
        return kept * drift + change * sqrt(1 - kept**2) * dice.gauss(0, 1)

    for answer in range(ANSWERS):
        meter.restart()
        drift, written = drifted(5.0), 0
        while written < tokens:
            count += 1
            plain = count in (2, 5, 9) or count % 16 == 0
            spent = 10 * exp(drift + dice.gauss(0, 0.01)) * (1 if plain else 2 / gain)
            meter.observe(drafted=0 if plain else 2, tokens=1 if plain else 2, milliseconds=spent)
            written, drift = written + (1 if plain else 2), drifted(spent / 1000)
        if answer:
            yield meter


@pytest.mark.parametrize("tokens", [60, 250])
@pytest.mark.parametrize("seconds", [0.3, 3, 30])
@pytest.mark.parametrize("change", [0.05, 0.3])
def test_a_machine_that_changes_speed_is_no_certain_gain_and_no_certain_loss(
    change: float, seconds: float, tokens: int
):
    """Compared with plain rounds of any time, up to three in four answers were."""
    said = [
        certain(one) for seed in range(TRIES) for one in answers(seed, tokens=tokens, change=change, seconds=seconds)
    ]
    assert sum(map(abs, said)) <= 0.1 * len(said)


@pytest.mark.parametrize("gain", [0.8, 1.3])
def test_a_real_gain_or_loss_is_found_on_a_machine_that_changes_speed(gain: float):
    said = [certain(one) for seed in range(9) for one in answers(seed, tokens=250, change=0.3, seconds=3, gain=gain)]
    right = 1 if gain > 1 else -1
    assert said.count(right) >= 0.8 * len(said)
    assert -right not in said


@pytest.mark.parametrize("gain", [0.8, 1.0, 1.3])
def test_the_figure_follows_a_machine_that_changes_speed(gain: float):
    """Within 5 % of the truth in nine answers of ten, while the machine's speed changes by a third."""
    found = [one.speedup for seed in range(9) for one in answers(seed, tokens=250, change=0.3, seconds=3, gain=gain)]
    # One token in sixteen or so is a plain round's own.
    near = [one is not None and abs(one / gain - 1) < 0.05 for one in found]
    assert sum(near) >= 0.9 * len(near)


def test_plain_rounds_near_a_drafted_one_count_for_it():
    rounds = PlainRounds()
    for milliseconds in (10.0, 10.0, 10.0, 10.0, 20.0, 20.0, 20.0, 20.0):
        rounds.add(milliseconds)
    rounds.pass_over(92)
    assert rounds.level()[0] == pytest.approx((40 + 80 + 92 * 20) / 100)


def test_a_hiccup_is_no_plain_round():
    rounds = PlainRounds()
    for milliseconds in (10.0, 10.0, 500.0, 10.0, 10.0):
        rounds.add(milliseconds)
        rounds.pass_over(1)
    assert rounds.level()[0] < 16


def test_a_clock_that_stands_still_gives_no_figure_and_no_crash():
    meter = SpeedMeter()
    for _ in range(3):
        for drafted in (0, 0, 0, 0, 3):
            meter.observe(drafted=drafted, tokens=1 + drafted, milliseconds=float(drafted))
        assert not meter.speedup
        meter.restart()


def test_what_the_answers_before_took_counts_where_the_machine_is_steady():
    """One slow round alone says little beside five answers that took the same."""
    rounds = PlainRounds()
    for _ in range(5):
        for milliseconds in (9.0, 11.0, 10.0):
            rounds.add(milliseconds)
        rounds.restart()
    rounds.add(13.0)
    rounds.pass_over(20)
    mean, share = rounds.level()
    assert mean == pytest.approx(10, abs=0.1)
    assert share < 0.05
