"""A long prompt says how much of it has been read, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localspec.core.events import Prefill
from localspec.tui.chat.prompt_progress import PromptReading

Read = tuple[float, int, int, int]  # when, done, total, cached


def words(*events: Read) -> list[str]:
    times = iter([event[0] for event in events])
    reading = PromptReading(lambda: next(times))
    return [reading.words(Prefill(done, total, cached)) for _, done, total, cached in events]


def test_the_time_left_is_said_from_the_second_measurement_on():
    assert words((0, 512, 6063, 0), (1, 1024, 6063, 0), (6, 3584, 6063, 0)) == [
        "reading 512 of 6,063 tokens",
        "reading 1,024 of 6,063 tokens · 10 s left",
        "reading 3,584 of 6,063 tokens · 5 s left",
    ]


def test_tokens_that_were_cached_are_read_but_give_no_rate():
    assert words((0, 512, 5000, 2000), (2, 1000, 5000, 2000))[1] == "reading 3,000 of 5,000 tokens · 8 s left"


@pytest.mark.parametrize(
    "events",
    [
        [(0, 512, 2000, 0), (0.001, 1024, 2000, 0)],  # both waited for the screen
        [(0, 512, 2000, 0), (9, 512, 2000, 0)],
        [(0, 512, 1030, 0), (0.5, 1024, 1030, 0)],  # less than a second
        [(0, 1500, 2000, 0), (3, 512, 2000, 0)],  # the same prompt again
        [(0, 512, 2000, 0), (3, 1024, 2100, 0)],  # another
    ],
)
def test_no_time_is_said_without_a_rate(events: Sequence[Read]):
    assert "left" not in words(*events)[-1]


def test_only_the_last_measurements_count_and_minutes_are_minutes():
    slower = [(second, 100 * second, 100_000, 0) for second in range(10)]
    slower += [(10 + 10 * number, 1000 + 100 * number, 100_000, 0) for number in range(20)]
    assert words(*slower)[-1] == "reading 2,900 of 100,000 tokens · 162 min left"
