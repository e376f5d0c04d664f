"""The ribbon says how each round went, in one line and without colour."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from localspec.core.blocks import bar, column, meter
from localspec.core.events import Proposal, Step
from localspec.tui.transcript.ribbon import PLAIN, accepted_share, ribbon, tone
from tests.support.scripted_engine import step

FULL = Step(kind="draft", tokens=step("a", "b").tokens, drafted=2, accepted=2)


def round_of(accepted: int, rejected: int, ignored: int = 0) -> Step:
    wanted = (Proposal(id=1, text="x"),) * rejected
    drafted = accepted + rejected + ignored
    return Step(kind="draft", tokens=(), drafted=drafted, accepted=accepted, ignored=ignored, rejected=wanted)


def test_a_cell_is_as_high_as_the_share_of_the_draft_that_was_accepted():
    rounds = [round_of(4, 0), round_of(2, 2), round_of(0, 4), step("plain", accepted=0)]
    assert ribbon(rounds, 76).plain == "█▅▁· 4 rounds"


def test_the_lowest_and_the_highest_cell_mean_nothing_and_everything():
    """In monochrome too, a whole draft is not taken for nearly one."""
    assert (column(0), column(1)) == ("▁", "█")
    assert {column(share / 100) for share in range(1, 100)} == set("▂▃▄▅▆▇")


def test_what_was_never_tested_is_no_rejection():
    assert accepted_share(round_of(2, 0, ignored=3)) == 1
    assert accepted_share(round_of(0, 0, ignored=3)) is None


@pytest.mark.parametrize("width", [40, 56, 76, 116])
@pytest.mark.parametrize("count", [1, 2, 60, 61, 62, 63, 64, 65, 500, 12_345])
def test_it_is_one_line_however_long_the_answer(count: int, width: int):
    line = ribbon([FULL] * count, width)
    assert cell_len(line.plain) <= width
    assert "\n" not in line.plain


def test_a_long_answer_is_compressed_by_the_mean_and_says_so():
    line = ribbon([round_of(1, 0), round_of(0, 1), round_of(0, 1)] * 100, 76).plain
    assert line == "▃" * 50 + " 300 rounds, 6 a cell"


def test_plain_rounds_do_not_lower_their_neighbours():
    line = ribbon([round_of(1, 0), step("p", accepted=0)] * 200, 76).plain
    assert set(line.partition(" ")[0]) == {"█"}


def test_colours_agree_with_heights():
    assert len({tone(PLAIN), tone(column(0)), tone(column(0.5)), tone(column(1))}) == 4


@pytest.mark.parametrize("share", [-1.0, 0.0, 0.01, 0.5, 0.999, 1.0, 7.0])
def test_bars_keep_their_width(share: float):
    assert len(bar(share, 9)) == len(meter(share, 9)) == 9
