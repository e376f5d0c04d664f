"""A fit as a table of text: a row for each weight format, with its parts in GB. Reads nothing."""

from __future__ import annotations

from localspec.history.text.columns import columns
from localspec.loading.fit import FitReport, FormatFit


def fit_table(report: FitReport) -> str:
    """What each format takes, part by part, in GB, whether it fits, and which one would be loaded."""
    where = " on the GPU" if report.device.startswith("cuda") else ""
    sums = f"of {gb(report.free_bytes)} GB{where}"
    names = ("", "target", "drafter", f"KV {report.context}", "work", "sum", sums)
    return columns([names, *(format_row(one, report) for one in report.formats)], right=range(1, 6))


def format_row(one: FormatFit, report: FitReport) -> tuple[str, ...]:
    parts = (one.target_bytes, one.drafter_bytes, one.kv_bytes, one.work_bytes, one.total_bytes)
    left = report.free_bytes - one.total_bytes
    spare = f", {gb(left)} left" if one.word == "fits" else f", {gb(-left)} too little" if left < 0 else ""
    taken = "   ← localspec takes this" if one.quant == report.chosen else ""
    return one.quant, *map(gb, parts), f"{one.word}{spare}{taken}"


def gb(num_bytes: int) -> str:
    """Gigabytes to a tenth; hundredths below one."""
    return f"{num_bytes / 1e9:.1f}" if abs(num_bytes) >= 1e9 else f"{num_bytes / 1e9:.2f}"
