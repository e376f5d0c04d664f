"""What a benchmark measured, for a terminal: a table within 80 columns, and its conclusion. Knows rows of figures, not
how they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from localspec.core.events import DraftLength
from localspec.core.sanitize import one_line
from localspec.history.text.columns import GAP, cells, columns, cut

WIDTH = 80
LEAST_NAME = 12
PLAIN, AUTO = "plain", "auto"  # names of rows
RowLength = DraftLength | Literal["its own"]
"""A row's draft length; "its own": as another engine decides."""
SHOWN = 0.005  # of a speed-up, half the last digit


class MeasuredRow(Protocol):
    """One way of decoding. None: there was nothing to measure."""

    @property
    def method(self) -> str: ...
    @property
    def k(self) -> RowLength: ...
    @property
    def quant(self) -> str: ...
    @property
    def tokens_per_second(self) -> float | None: ...
    @property
    def speedup(self) -> float | None: ...
    @property
    def speedup_spread(self) -> float | None: ...
    @property
    def acceptance(self) -> float | None: ...
    @property
    def same(self) -> str | None: ...


def bench_table(rows: Sequence[MeasuredRow]) -> str:
    """A line for each row; the format is named where there are several. Long names are cut."""
    several = len({row.quant for row in rows}) > 1
    head = ("method", "format", "k", "tok/s", "× plain", "accepted", "same")
    lines = [head, *map(line, rows)]
    shown = [(one[0], *one[1 if several else 2 :]) for one in lines]
    others = sum(max(map(cells, column)) + len(GAP) for column in [*zip(*shown, strict=True)][1:])
    names = max(LEAST_NAME, WIDTH - others)
    right = range(3, 6) if several else range(2, 5)
    return columns([(cut(name, names), *rest) for name, *rest in shown], right=right)


def line(row: MeasuredRow) -> tuple[str, ...]:
    accepted = "–" if row.acceptance is None else f"{100 * row.acceptance:.0f} %"
    speed = "–" if row.tokens_per_second is None else f"{row.tokens_per_second:.1f}"
    gain = "–" if row.speedup is None else times(row)
    return one_line(row.method), row.quant, str(row.k), speed, gain, accepted, one_line(row.same or "–")


def times(row: MeasuredRow) -> str:
    return f"×{row.speedup or 0:.2f}" + ("" if row.speedup_spread is None else f" ±{row.speedup_spread:.2f}")


def which_counts(rows: Sequence[MeasuredRow]) -> str:
    """Which column to read where the speeds of two rows do not fit the speed-up; "" where all do. The first row is what
    the others are measured against."""
    plain = rows[0].tokens_per_second if rows else None
    names = [one_line(row.method) for row in rows[1:] if plain and differs(row, plain)]
    if not names:
        return ""
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return (
        f"The tok/s of {listed} does not fit × plain: the machine's speed changed, or it is another with some "
        "questions. × plain counts: it compares answers to the same question, written in turn."
    )


def differs(row: MeasuredRow, plain: float) -> bool:
    """Whether its speed over plain's is outside the interval of its speed-up, as the table shows both."""
    if row.tokens_per_second is None or row.speedup is None or row.speedup_spread is None:
        return False
    return abs(row.tokens_per_second / plain - row.speedup) > row.speedup_spread + SHOWN


def conclusion(rows: Sequence[MeasuredRow]) -> str:
    """Which row was fastest, as far as the intervals decide that, and what localspec does unasked; "" where there is
    nothing to compare. The first row is what the others are measured against."""
    others = [row for row in rows if row.speedup is not None][1:]
    if not others:
        return ""
    several = len({row.quant for row in rows}) > 1
    best = max(others, key=lambda row: row.speedup or 0)
    if best.speedup_spread is None:
        return "Which is fastest is not known yet: there are too few answers."
    name = f"{one_line(best.method)} in {best.quant}" if several else one_line(best.method)
    if low(best) > 1:
        return f"Fastest here: {name}, {times(best)}. {usual(best, others, several=several)}".rstrip()
    if high(best) < 1:
        return f"Fastest here: {PLAIN}; the next is {name}, {times(best)}."
    return f"Fastest here: {PLAIN} and {name}, {times(best)}: the difference is within the measuring error."


def usual(best: MeasuredRow, rows: Sequence[MeasuredRow], *, several: bool) -> str:
    """What localspec does unasked, beside the best; "" where that was not measured."""
    auto = next((row for row in rows if row.method == row.k == AUTO), None)
    if auto is None or several:
        return ""
    if auto is best:
        return "localspec uses it unless you choose another."
    near = ", within the measuring error of it" if high(auto) >= low(best) else ""
    return f"localspec uses {AUTO}, {times(auto)}{near}, unless you choose another."


def low(row: MeasuredRow) -> float:
    return (row.speedup or 0) - (row.speedup_spread or 0)


def high(row: MeasuredRow) -> float:
    return (row.speedup or 0) + (row.speedup_spread or 0)
