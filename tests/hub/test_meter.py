"""The bar of a download: bytes that never fall, a rate over the last seconds, the time left."""

from __future__ import annotations

from localspec.hub.meter import WINDOW_SECONDS, Meter

SECOND = 1_000_000


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def metered(here: int = 0) -> tuple[Meter, Clock]:
    clock = Clock()
    return Meter("org/model", 100 * SECOND, here, clock), clock


def test_before_a_byte_came_no_rate_is_known():
    meter, clock = metered(here=10 * SECOND)
    clock.now = 3
    shown = meter.progress("checking", 10 * SECOND)
    assert (shown.done, shown.resumed, shown.bytes_per_second, shown.eta_s) == (10 * SECOND, 10 * SECOND, None, None)


def test_the_rate_is_that_of_the_last_seconds():
    """A fast beginning is forgotten: what is left takes as long as it does now."""
    meter, clock = metered()
    for second in range(1, 31):
        clock.now = second
        arrived = (min(second, 10) * 4 + max(0, second - 10)) * SECOND
        meter.arrived(arrived)
        shown = meter.progress("downloading", arrived)
    assert shown.bytes_per_second == SECOND
    assert shown.eta_s == 40


def test_a_line_that_is_silent_has_a_rate_of_nothing_and_no_end():
    meter, clock = metered()
    clock.now = 1
    meter.arrived(SECOND)
    meter.progress("downloading", SECOND)
    for second in range(2, 2 + 2 * int(WINDOW_SECONDS)):
        clock.now = second
        shown = meter.progress("downloading", SECOND)
    assert (shown.bytes_per_second, shown.eta_s) == (0, None)


def test_bytes_that_were_thrown_away_leave_the_bar_where_it_was():
    meter, clock = metered()
    shown = []
    for have in (30, 50, 0, 20, 60, 120):
        clock.now += 1
        shown.append(meter.progress("downloading", have * SECOND).done // SECOND)
    assert shown == [30, 50, 50, 50, 60, 100]
