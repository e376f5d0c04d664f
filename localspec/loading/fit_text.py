"""A fit as a table of text: a row for each weight format. Reads nothing."""

from __future__ import annotations

from localspec.core.sizes import size_words
from localspec.history.text.columns import columns
from localspec.loading.fit import FitReport, FormatFit


def parts_table(report: FitReport) -> str:
    """What each format takes, part by part, and what comes of it."""
    names = ("format", "model", "drafter", f"{report.context:,} tokens", "work", "sum", of_words(report))
    rows = [(one.quant, *parts(one), size_words(one.total_bytes), verdict(one, report)) for one in report.formats]
    return columns([names, *rows], right=range(1, 6))


def sums_table(report: FitReport) -> str:
    """The same without the parts, where columns are few."""
    rows = [(one.quant, size_words(one.total_bytes), verdict(one, report)) for one in report.formats]
    return columns([("format", "sum", of_words(report)), *rows], right={1})


def parts(one: FormatFit) -> tuple[str, ...]:
    sizes = (one.target_bytes, one.drafter_bytes, one.kv_bytes, one.work_bytes)
    return tuple(size_words(size) if size else "–" for size in sizes)


def of_words(report: FitReport) -> str:
    return f"of {size_words(report.free_bytes)}{' on the GPU' if report.device.startswith('cuda') else ''}"


def verdict(one: FormatFit, report: FitReport) -> str:
    """Whether it fits, and whether it is the one that would be loaded."""
    left = report.free_bytes - one.total_bytes
    words = size_words(abs(left))
    spare = f", {words} left" if one.word == "fits" else f", {words} too little" if left < 0 else ""
    taken = "   ← localspec takes this" if one.quant == report.chosen else ""
    return f"{one.word}{spare}{taken}"
