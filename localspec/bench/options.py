"""The bench's command line: it compares drafters, or sweeps a setting.

Says what does not go together. Knows nothing about how anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any  # Any: click's parsed options

from localspec.bench import plots, transformers_peer
from localspec.bench.formats import read_formats
from localspec.bench.measure import measure
from localspec.bench.progress import Tell, Warn
from localspec.bench.report import BenchReport
from localspec.bench.sweep import SweepReport, axis, sweep
from localspec.core.errors import UsageError
from localspec.core.requests import LOAD_OPTIONS, LoadRequest, draft_length
from localspec.core.weight_formats import ListedFormat
from localspec.models.catalog import Catalog
from localspec.runtime.draft_choice import check_threads

NOT_SWEPT = {"against": "--against", "formats": "--format"}


def run_bench(asked: set[str], given: Mapping[str, Any], tell: Tell, warn: Warn) -> BenchReport | SweepReport:
    """`asked`: the options that stand on the command line; `given`: all, defaults too."""
    check_threads(given["threads"])
    if given["plot"]:
        plots.check(given["plot"])
    return run_sweep(asked, given, tell) if given["sweep"] else run_comparison(asked, given, tell, warn)


def run_comparison(asked: set[str], given: Mapping[str, Any], tell: Tell, warn: Warn) -> BenchReport:
    if given["against"]:
        transformers_peer.check(Catalog.load().resolve(given["model"]).path)
    return measure(
        load_request(given),
        formats=formats(asked, given),
        max_tokens=given["max_tokens"],
        repeats=given["repeats"],
        against=given["against"],
        tell=tell,
        warn=warn,
    )


def run_sweep(asked: set[str], given: Mapping[str, Any], tell: Tell) -> SweepReport:
    for name in NOT_SWEPT.keys() & asked:
        raise UsageError(f"{NOT_SWEPT[name]} cannot be combined with --sweep.", hint="Leave it out.")
    axes = [axis(words) for words in given["sweep"]]
    return sweep(
        load_request(given),
        axes,
        max_tokens=given["max_tokens"],
        repeats=given["repeats"],
        tell=tell,
    )


def draw(report: BenchReport | SweepReport, file: Path | None) -> None:
    """The picture that was asked for, once the table is printed."""
    if isinstance(report, SweepReport) and file:
        report.draw(file)
    elif isinstance(report, BenchReport) and file:
        plots.draw_groups(report.speeds(), report.title, file)


def load_request(given: Mapping[str, Any]) -> LoadRequest:
    found = {name: given[name] for name in LOAD_OPTIONS if name in given}
    return LoadRequest.of(given["model"], **{**found, "k": draft_length(given["k"])})


def formats(asked: set[str], given: Mapping[str, Any]) -> tuple[ListedFormat, ...]:
    if {"formats", "quant"} <= asked:
        raise UsageError("--format and --quant cannot be combined.", hint="Give one of them.")
    return read_formats(given["formats"])
