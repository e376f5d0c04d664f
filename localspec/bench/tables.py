"""Rows as CSV and as a table in Markdown, and what its cells look like."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any  # Any: cells


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Columns in the order they are first met; cells that a row has not are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def markdown(table: Sequence[Sequence[str]]) -> str:
    """The head comes first; a bar in a cell does not end it."""
    head, *lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in table]
    return "\n".join([head, "|" + "---|" * len(table[0]), *lines])


def plus_minus(value: float | None, deviation: float | None, digits: int = 2) -> str:
    """A median, and its deviation where that is known; a dash for what was not measured."""
    around = "" if deviation is None else f" ± {deviation:.{digits}f}"
    return "–" if value is None else f"{value:.{digits}f}{around}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"
