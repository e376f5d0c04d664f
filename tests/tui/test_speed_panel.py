"""The speed panel says in words what the events add up to; what is not known is a dash."""

from __future__ import annotations

import random

import msgspec
import pytest
from rich.cells import cell_len

from localspec.core.events import Stats, Step
from localspec.runtime.stats import SpeedMeter, student_95
from localspec.tui.panels.speed_panel import LABEL, Reading, panel, shown, sparkline
from tests.support.scripted_engine import READY, step

STATS = Stats(
    predicted_n=412,
    predicted_ms=10_000.0,
    draft_kind="early-exit",
    draft_rounds=100,
    plain_rounds=20,
    draft_n=440,
    draft_n_accepted=312,
    draft_n_rejected=128,
    accepted_counts=(14, 18, 19, 49),
    tested_counts=(0, 0, 0, 100),
    draft_ms=3100.0,
    verify_ms=6600.0,
    baseline_tps=22.4,
    baseline_source="probe",
    speedup=1.84,
    target_bytes=1_240_000_000,
    kv_bytes=60_000_000,
    peak_bytes=1_900_000_000,
    read_bytes=240_000_000_000,
    bandwidth_peak_gbs=33.0,
    context_used=1204,
    context_max=8192,
)
WIDTH = 28


def lines(stats: Stats, *, band: float | None = 0.06, height: int = 18, rounds: tuple[Step, ...] = ()) -> list[str]:
    return panel(Reading(stats, band, 12, rounds), WIDTH, height).plain.splitlines()


def changed(**values: object) -> Stats:
    return msgspec.structs.replace(STATS, **values)


def test_it_says_everything_that_was_measured():
    assert lines(STATS) == [
        " 41.2 tok/s",
        "plain    22.4 (probe ×12)",
        "speed-up ×1.84 ±0.06 ▲",
        "accepted 71 % (312/440)",
        "per step 3.4 tok",
        "place 1  ███████████▏   86 %",
        "place 2  ████████▉      68 %",
        "place 3  ██████▍        49 %",
        "context  █░░░░░░░░ 1.2k/8.2k",
        "memory   1.3 GB · peak 1.9 GB",
        "draft    31 % · verify 66 %",
        "reads    24 of 33 GB/s",
    ]


def test_before_anything_is_known_it_is_dashes():
    assert lines(Stats(), band=None) == [
        " – tok/s",
        "context  –",
        "memory   –",
        "reads    –",
    ]


def test_without_a_drafter_it_says_nothing_of_drafts():
    words = " ".join(lines(changed(draft_kind="off", draft_rounds=0, accepted_counts=(), tested_counts=())))
    assert not {"plain", "speed-up", "accepted", "verify", "place"} & set(words.split())


@pytest.mark.parametrize(
    ("speedup", "band", "words"),
    [
        (1.84, 0.06, "×1.84 ±0.06 ▲"),
        (0.80, 0.06, "×0.80 ±0.06 ▼"),
        (1.03, 0.06, "×1.03 ±0.06"),
        (0.97, 0.06, "×0.97 ±0.06"),
        (1.84, None, "×1.84"),
        (None, None, "×–"),
    ],
)
def test_faster_or_slower_is_said_only_when_the_whole_band_says_so(
    speedup: float | None, band: float | None, words: str
):
    assert lines(changed(speedup=speedup), band=band)[2] == f"speed-up {words}"


def test_a_baseline_from_an_earlier_start_is_called_so():
    assert lines(changed(baseline_source="calibrated"))[1] == "plain    22.4 (calibrated)"


def test_the_speed_is_the_plain_one_times_the_speed_up():
    """Whatever came beside the rounds: their own figure would not agree with the two beside it."""
    found = lines(changed(predicted_ms=12_500.0, baseline_tps=41.0, speedup=2.0))
    assert found[:3] == [" 33.0 tok/s", "plain    16.5 (probe ×12)", "speed-up ×2.00 ±0.06 ▲"]


def test_what_it_reads_per_second_is_known_at_the_end():
    assert lines(changed(read_bytes=0))[-1] == "reads    – of 33 GB/s"


@pytest.mark.parametrize("height", range(9, 30))
def test_places_give_way_to_what_stands_below(height: int):
    found = lines(changed(accepted_counts=(9,) * 17, tested_counts=(9,) * 17), height=height)
    assert found[-1].startswith("reads")
    assert len(found) == min(height, 25)


def test_of_few_lines_the_last_are_left_out_and_how_it_drafts_is_not_one_of_them():
    """80x16 leaves eight."""
    reading = Reading(STATS, 0.06, 12, (), READY.spec, "cpu", 8_000_000_000)
    whole, few = (panel(reading, WIDTH, height).plain.splitlines() for height in (18, 8))
    names = ["plain", "speed-up", "accepted", "per step", "spec", "context", "memory", "RAM", "draft", "reads"]
    assert [line[:LABEL].strip() for line in whole if not line.startswith("place")][1:] == names
    assert [line[:LABEL].strip() for line in few][1:] == names[:7]


def test_no_line_is_wider_than_the_panel():
    huge = changed(draft_n_accepted=9_999, draft_n_rejected=1, context_max=131_072, peak_bytes=0)
    rounds = tuple(step("a", "b") for _ in range(1000))
    assert max(map(cell_len, lines(huge, rounds=rounds))) <= WIDTH


def test_the_sparkline_is_as_high_as_the_round_was_fast():
    assert sparkline([step("a", "b", "c", "d"), step("a", accepted=0), step("a", "b")], 10) == "█▃▅"
    assert len(sparkline([step("a", "b")] * 999, 16)) <= 16
    assert sparkline([], 16) == ""


@pytest.mark.parametrize(
    ("width", "wish", "there"),
    [
        (79, None, False),
        (79, True, False),
        (80, None, False),
        (80, True, True),
        (119, None, False),
        (119, True, True),
        (120, None, True),
        (120, False, False),
        (200, None, True),
    ],
)
def test_breakpoints(width: int, wish: bool | None, there: bool):
    assert shown(width, wish) is there


def measured(seed: int) -> tuple[float, float]:
    """A speed-up and its band: 16 plain rounds of 10 ms and 120 rounds of 3 tokens in 16 ms, a tenth of spread."""
    noise, meter = random.Random(seed), SpeedMeter()
    for drafted, tokens, usual, count in ((0, 1, 10.0, 16), (4, 3, 16.0, 120)):
        for _ in range(count):
            meter.observe(drafted=drafted, tokens=tokens, milliseconds=noise.gauss(usual, usual / 10))
    assert meter.speedup is not None
    assert meter.band is not None
    return meter.speedup, meter.band


def test_the_band_holds_the_truth_nineteen_times_in_twenty():
    """A right band misses 20 of 400 and more than 36 with a probability of 3e-4; fixed seeds."""
    truth = (16 + 360) * 10 / (16 * 10 + 120 * 16)
    misses = sum(abs(found - truth) > band for found, band in map(measured, range(400)))
    assert 4 <= misses <= 36


@pytest.mark.parametrize(("count", "exact"), [(3, 4.303), (4, 3.182), (6, 2.571), (11, 2.228), (31, 2.042)])
def test_few_probes_make_a_wide_band(count: int, exact: float):
    assert student_95(count) == pytest.approx(exact, rel=0.04)


def test_no_band_without_probes_or_without_drafts():
    calibrated, never_drafted = SpeedMeter(calibrated_ms=10.0), SpeedMeter()
    calibrated.observe(drafted=4, tokens=3, milliseconds=15.0)
    for _ in range(5):
        never_drafted.observe(drafted=0, tokens=1, milliseconds=10.0)
    assert (calibrated.band, never_drafted.band) == (None, None)
