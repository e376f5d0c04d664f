"""The bar of a download: bytes that never fall, a rate over the last seconds, the time left."""

from __future__ import annotations

from localspec.hub.meter import WINDOW_SECONDS, Meter

SECOND = 1_000_000


class Clock:
    """`arrived`: the bytes that have come by now."""

    now = 0.0
    arrived = 0

    def __call__(self) -> float:
        return self.now


def metered(here: int = 0) -> tuple[Meter, Clock]:
    clock = Clock()
    return Meter(100 * SECOND, here, clock), clock


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


def rates(meter: Meter, clock: Clock, *bytes_a_second: int) -> list[bool]:
    """Whether each of these seconds, with so many bytes, ends with the word slow."""
    slow = []
    for count in bytes_a_second:
        clock.now += 1
        clock.arrived += count
        meter.arrived(clock.arrived)
        slow.append(meter.progress("downloading", clock.arrived).slow)
    return slow


def test_a_line_that_drips_is_slow_once_a_whole_window_says_so():
    """Check 6: a byte a second, from the first byte on; neither the wait for that byte nor a short beginning counts."""
    meter, clock = metered()
    assert rates(meter, clock, 0, 0, 0, 0, 0, 0, *[1] * 8) == [False] * 11 + [True] * 3


def test_a_line_is_slow_below_a_tenth_of_what_it_was_or_100_kb_a_second():
    window = int(WINDOW_SECONDS)
    meter, clock = metered()
    fast = rates(meter, clock, *[4 * SECOND] * 2 * window)
    assert not any(fast)
    assert rates(meter, clock, *[SECOND // 2] * window)[-1] is False, "an eighth"
    assert rates(meter, clock, *[SECOND // 4] * window)[-1] is True, "a sixteenth"
    assert rates(meter, clock, *[SECOND] * window)[-1] is False, "it came back"
    for count, slow in ((99_000, True), (101_000, False)):
        meter, clock = metered()
        assert rates(meter, clock, *[count] * 2 * window)[-1] is slow


def test_a_line_on_which_nothing_comes_is_silent_and_not_slow():
    """How long it may be silent is for the transfer to say, which ends it."""
    meter, clock = metered()
    slow = rates(meter, clock, *[SECOND] * 10, *[0] * 10)
    assert slow[-6:] == [False] * 6


def test_files_that_are_checked_are_not_slow_and_an_end_in_weeks_is_no_time_left():
    meter, clock = metered()
    assert rates(meter, clock, *[100] * 12)[-1]
    assert meter.progress("checking", 0).slow is False
    assert meter.progress("downloading", 1200).eta_s is None


def test_bytes_that_were_thrown_away_leave_the_bar_where_it_was():
    meter, clock = metered()
    shown = []
    for have in (30, 50, 0, 20, 60, 120):
        clock.now += 1
        shown.append(meter.progress("downloading", have * SECOND).done // SECOND)
    assert shown == [30, 50, 50, 50, 60, 100]


def test_the_next_repository_goes_on_where_the_one_before_it_ended():
    """In bytes, in the rate, and in the time that is left for all."""
    meter, clock = metered(here=10 * SECOND)
    meter.turn_to("org/model", elsewhere=10 * SECOND)
    for clock.now in range(1, 5):
        meter.arrived(10 * clock.now * SECOND)
        shown = meter.progress("downloading", 10 * clock.now * SECOND)
    assert (shown.repo, shown.done, shown.bytes_per_second, shown.eta_s) == ("org/model", 50 * SECOND, 10 * SECOND, 5)
    meter.turn_to("org/drafter", elsewhere=40 * SECOND)
    clock.now = 5
    meter.arrived(10 * SECOND)
    shown = meter.progress("downloading", 20 * SECOND)
    assert (shown.repo, shown.done, shown.bytes_per_second, shown.eta_s) == ("org/drafter", 60 * SECOND, 10 * SECOND, 4)
    assert shown.total == 100 * SECOND
