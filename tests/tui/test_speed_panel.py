"""The speed panel says in words what the events add up to; what is not known is a dash."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import msgspec
import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from localspec.core.events import DrafterSums, Stats, Step
from localspec.runtime.plain_rounds import student_95
from localspec.runtime.stats import SpeedMeter
from localspec.tui.panels.speed_panel import LABEL, Fold, SpeedPanel, SpeedReading, panel, shown, sparkline
from tests.support.scripted_engine import READY, step

pytestmark = pytest.mark.heavy

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


def lines(
    stats: Stats, *, band: float | None = 0.06, height: int = 18, rounds: tuple[Step, ...] = (), whole: bool = True
) -> list[str]:
    return panel(SpeedReading(stats, band, 12, rounds), WIDTH, height, whole=whole).plain.splitlines()


def changed(**values: object) -> Stats:
    return msgspec.structs.replace(STATS, **values)


FOUR = [
    " 41.2 tok/s",
    "speed-up ×1.84 ±0.06 ▲",
    "accepted 71 % (312/440)",
    "context  █░░░░░░░░ 1.2k/8.2k",
]


def test_folded_it_is_four_lines():
    assert lines(STATS, whole=False) == FOUR


def test_it_says_everything_that_was_measured():
    assert lines(STATS) == [
        *FOUR,
        "plain    22.4 (12 probes)",
        "a round  3.4 tok",
        "1st token ██████████▍   86 %",
        "2nd token ████████▏     68 %",
        "3rd token █████▉        49 %",
        "drafting 31 % of the time",
        "memory   1.3 GB",
        "peak     1.9 GB",
    ]


def test_acceptance_by_drafter_is_there_where_more_than_one_drafted():
    both = {"lookup": DrafterSums(40, 30, 10), "early-exit": DrafterSums(4, 0, 0)}
    shown = lines(changed(by_drafter=both), height=20)
    assert shown[4:7] == ["early exit                 –", "look-up    ████████▎    75 %", "plain    22.4 (12 probes)"]
    assert max(map(cell_len, shown)) <= WIDTH
    assert lines(changed(by_drafter={"lookup": both["lookup"]})) == lines(STATS)
    assert lines(changed(by_drafter=both), whole=False) == FOUR


def test_before_anything_is_known_it_is_dashes():
    assert lines(Stats(), band=None) == [
        " – tok/s",
        "context  –",
        "memory   –",
    ]


OFF = changed(draft_kind="off", draft_rounds=0, accepted_counts=(), tested_counts=())


def test_without_a_drafter_it_says_nothing_of_drafts():
    words = " ".join(lines(OFF))
    assert not {"plain", "speed-up", "accepted", "drafting", "drafts", "token"} & set(words.split())
    assert len(lines(OFF, whole=False)) == 2


def test_turned_off_it_says_nothing_of_drafts_unless_some_were_made():
    off, plain = msgspec.structs.replace(READY.spec, mode="off"), changed(draft_rounds=0)
    said, before = (panel(SpeedReading(stats, spec=off), WIDTH, 18).plain for stats in (plain, STATS))
    assert "speed-up" not in said
    assert "speed-up" in before


def test_what_slows_down_says_why_beside_all_that_was_accepted():
    slow = changed(speedup=0.95, draft_n_accepted=440, draft_n_rejected=0, draft_ms=4800.0)
    found = lines(slow, whole=False)
    assert found[1:4] == ["speed-up ×0.95 ±0.06", "drafting 48 % of the time", "accepted 100 % (440/440)"]
    assert lines(slow).count("drafting 48 % of the time") == 1


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
    assert lines(changed(speedup=speedup), band=band)[1] == f"speed-up {words}"


def test_the_speed_is_the_plain_one_times_the_speed_up():
    """Whatever came beside the rounds: their own figure would not agree with the two beside it."""
    found = lines(changed(predicted_ms=12_500.0, baseline_tps=41.0, speedup=2.0))
    assert [*found[:2], found[4]] == [" 33.0 tok/s", "speed-up ×2.00 ±0.06 ▲", "plain    16.5 (12 probes)"]


@pytest.mark.parametrize("height", range(10, 30))
def test_positions_give_way_to_what_stands_below(height: int):
    found = lines(changed(accepted_counts=(9,) * 17, tested_counts=(9,) * 17), height=height)
    assert found[-1].startswith("peak")
    assert len(found) == min(height, 25)


def test_of_few_lines_the_last_are_left_out():
    """80x16 leaves eight."""
    reading = SpeedReading(STATS, 0.06, 12, (), READY.spec, "cpu", 8_000_000_000)
    whole, few = (panel(reading, WIDTH, height).plain.splitlines() for height in (18, 8))
    names = ["speed-up", "accepted", "context", "plain", "a round", "drafts", "drafting", "memory", "peak", "RAM"]
    assert [line[:LABEL].strip() for line in whole if "token" not in line][1:] == names
    assert [line[:LABEL].strip() for line in few][1:] == names[:7]


def test_the_three_lines_of_memory_fit_together():
    """RAM 0.0 GB stood below a peak of 510 MB: it counted weights and caches only."""
    small = changed(target_bytes=20_000_000, kv_bytes=1_000_000, peak_bytes=510_000_000)
    reading = SpeedReading(small, 0.06, 12, (), READY.spec, "cpu", 25_300_000_000)
    *_, memory, peak, ram = panel(reading, WIDTH, 18).plain.splitlines()
    assert (memory, peak) == ("memory   21 MB", "peak     510 MB")
    assert ram.startswith("RAM ")
    assert ram.endswith(" 0.5/25.3 GB")
    of_gpu = panel(replace(reading, device="cuda:0"), WIDTH, 18).plain.splitlines()[-1]
    assert of_gpu.endswith(" 0.0/25.3 GB"), "the peak is of main memory"


SIZES = {  # weights, keys and values, peak, memory of the device, context
    "guide": (20_000_000, 4_000_000, 345_000_000, 16_800_000_000, 2_048),
    "135M": (139_000_000, 188_700_000, 802_000_000, 16_800_000_000, 8_192),
    "70B": (141_100_000_000, 42_900_000_000, 188_888_000_000, 640_000_000_000, 131_072),
}


@pytest.mark.parametrize("model", SIZES)
def test_no_line_is_wider_than_the_panel_and_none_is_cut_in_it(model: str):
    """Whatever the panel's width: a line that breaks moves all below it."""
    weights, cache, peak, device, context = SIZES[model]
    figures = changed(
        predicted_n=99_999,
        predicted_ms=99_999_000.0 if model == "70B" else 40_000.0,
        draft_n_accepted=130_999,
        draft_n_rejected=1,
        accepted_counts=(9,) * 17,
        tested_counts=(9,) * 17,
        speedup=12.34,
        target_bytes=weights,
        kv_bytes=cache,
        peak_bytes=peak,
        context_used=context,
        context_max=context,
    )
    spec = msgspec.structs.replace(READY.spec, mode="on", k=16)
    rounds = tuple(step("a", "b") for _ in range(1000))
    for width in range(1, 60):
        for slow, whole in product((False, True), repeat=2):
            sums = msgspec.structs.replace(figures, speedup=0.87) if slow else figures
            reading = SpeedReading(sums, 11.11, 24, rounds, spec, "cuda:0", device)
            found = panel(reading, width, 99, whole=whole).split("\n")
            assert max(line.cell_length for line in found) <= width
            assert width < WIDTH or not any("…" in line.plain for line in found)


def test_the_sparkline_is_as_high_as_the_round_was_fast():
    assert sparkline([step("a", "b", "c", "d"), step("a", accepted=0), step("a", "b")], 10) == "█▃▅"
    assert len(sparkline([step("a", "b")] * 999, 16)) <= 16
    assert sparkline([], 16) == ""


@pytest.mark.parametrize(
    ("width", "chosen", "there"),
    [
        (79, None, "hidden"),
        (79, "whole", "hidden"),
        (80, None, "hidden"),
        (80, "folded", "folded"),
        (139, None, "hidden"),
        (139, "whole", "whole"),
        (140, None, "folded"),
        (140, "hidden", "hidden"),
        (200, None, "folded"),
        (200, "whole", "whole"),
    ],
)
def test_breakpoints(width: int, chosen: Fold | None, there: Fold):
    assert shown(width, chosen) == there


class Bare(App[None]):
    """The panel alone, with figures that the test sets."""

    CSS = "SpeedPanel { width: 32; height: auto; border: round white; padding: 0 1; text-wrap: nowrap; }"
    reading = SpeedReading(OFF)

    def compose(self) -> ComposeResult:
        self.panel = SpeedPanel(lambda: self.reading)
        yield self.panel

    async def shows(self, pilot: Pilot[None], reading: SpeedReading) -> None:
        """These figures come: each of their lines is on the screen, once."""
        self.reading = reading
        self.panel.follow()
        await pilot.pause()
        seen = [strip.text[2:30].rstrip() for strip in self.screen._compositor.render_strips()]
        wanted = panel(reading, 28, 99, whole=self.panel.fold == "whole").plain.splitlines()
        assert seen[1 : 1 + len(wanted)] == [line.rstrip() for line in wanted]
        assert self.panel.size.height == len(wanted)


async def test_another_number_of_lines_is_laid_out_anew_and_none_is_left_over():
    app = Bare()
    async with app.run_test(size=(160, 40)) as pilot:
        app.panel.settle(160)
        await app.shows(pilot, SpeedReading(OFF))
        await app.shows(pilot, SpeedReading(STATS, 0.06, 12))
        app.panel.cycle(160)
        await app.shows(pilot, SpeedReading(STATS, 0.06, 12))
        await app.shows(pilot, SpeedReading(changed(peak_bytes=0)))
        await app.shows(pilot, SpeedReading(changed(accepted_counts=(9,) * 9, tested_counts=(9,) * 9)))
        await app.shows(pilot, SpeedReading(OFF))


async def test_f2_goes_from_four_lines_to_all_to_none():
    async def folds(width: int) -> list[Fold]:
        app = Bare()
        async with app.run_test(size=(width, 30)):
            app.panel.settle(width)
            found = [app.panel.fold]
            for _ in range(3):
                app.panel.cycle(width)
                found.append(app.panel.fold)
            return found

    assert await folds(160) == ["folded", "whole", "hidden", "folded"]
    assert await folds(100) == ["hidden", "folded", "whole", "hidden"]
    assert await folds(79) == ["hidden"] * 4


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
    never_plain, never_drafted = SpeedMeter(), SpeedMeter()
    never_plain.observe(drafted=4, tokens=3, milliseconds=15.0)
    for _ in range(5):
        never_drafted.observe(drafted=0, tokens=1, milliseconds=10.0)
    assert (never_plain.band, never_drafted.band) == (None, None)
