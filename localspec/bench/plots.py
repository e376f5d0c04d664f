"""Speed and acceptance against a setting, as bars of text and as a picture in a file. Measures nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: matplotlib's figures and axes

from localspec.core.blocks import bar
from localspec.core.errors import LocalspecError, UsageError

SUFFIXES = (".svg", ".png")
BAR, SHORT_BAR = 30, 10  # columns: two bars, a label and figures fit into eighty
INCHES = (7.0, 3.4)
GROUP = 0.8  # of the distance between two groups of bars
HATCHES = ("", "//", "..", "xx", "--", "oo")


@dataclass(frozen=True, slots=True)
class Point:
    """What one value of the setting gave; `speedup` is over plain decoding. `failed`: it decoded plain, or ended so."""

    value: str
    tokens_per_second: float
    spread: float
    speedup: float
    acceptance: float | None
    failed: bool = False

    @property
    def label(self) -> str:
        return f"{self.value} (failed)" if self.failed else self.value


@dataclass(frozen=True, slots=True)
class Curve:
    """A setting's points in order, and plain decoding beside them."""

    setting: str
    points: tuple[Point, ...]
    plain: float

    @property
    def best(self) -> Point | None:
        """The fastest of those that did not fail."""
        return max((point for point in self.points if not point.failed), key=lambda point: point.speedup, default=None)


def bars(curve: Curve) -> list[str]:
    """A line a point: speed as a bar and in figures, acceptance as a bar and in figures; plain decoding last."""
    top = max(curve.plain, *(point.tokens_per_second for point in curve.points))
    wide = max(len(curve.setting), len("plain"), *(len(point.label) for point in curve.points))
    lines = [f"{curve.setting:>{wide}}  {'tokens/s':<{BAR + 17}}  accepted"]
    for point in curve.points:
        figures = f"{point.tokens_per_second:>7.0f} ×{point.speedup:.2f}" + (" ◂" if point is curve.best else "  ")
        speed = f"{bar(point.tokens_per_second / top, BAR)} {figures}"
        share = "–" if point.acceptance is None else f"{bar(point.acceptance, SHORT_BAR)} {point.acceptance:4.0%}"
        lines.append(f"{point.label:>{wide}}  {speed}  {share}")
    return [*lines, f"{'plain':>{wide}}  {bar(curve.plain / top, BAR)} {curve.plain:>7.0f}".rstrip()]


def check(file: Path) -> None:
    """What can be refused before minutes are spent on measuring."""
    if file.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"A plot is a file that ends in .svg or .png, not '{file.name}'.", hint="Try: --plot sweep.svg"
        )
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UsageError(
            f"The plot cannot be written to '{file}'.", hint="Name a file in a folder that can be written."
        )
    try:
        import matplotlib  # noqa: F401 - only whether it is there
    except ImportError as fault:
        raise UsageError("--plot needs matplotlib.", hint="Run: pip install 'localspec[plots]'") from fault


def draw(curves: Sequence[Curve], title: str, file: Path) -> None:
    """A chart for every curve, one below the other; the same bytes for the same figures in SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES[0], INCHES[1] * len(curves)), layout="constrained")
    figure.suptitle(title, fontsize="medium")
    for axes, curve in zip(figure.subplots(len(curves), squeeze=False)[:, 0], curves, strict=True):
        chart(axes, curve)
    save(figure, file)


def draw_groups(speeds: Mapping[str, Mapping[str, float]], title: str, file: Path) -> None:
    """Tokens/s as bars, hatched so that they differ without colour: a group for every key, in it a bar for every way of
    decoding."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    axes, ways = figure.subplots(), list(dict.fromkeys(way for group in speeds.values() for way in group))
    width = GROUP / len(ways)
    for index, way in enumerate(ways):
        lefts = [number + (index - (len(ways) - 1) / 2) * width for number in range(len(speeds))]
        heights = [group.get(way, 0.0) for group in speeds.values()]
        axes.bar(lefts, heights, width, label=way, hatch=HATCHES[index % len(HATCHES)], edgecolor="white")
    axes.set_xticks(range(len(speeds)), list(speeds))
    axes.set(ylabel="tokens/s")
    axes.legend(fontsize="small")
    save(figure, file)


def save(figure: Any, file: Path) -> None:
    import matplotlib

    kind = file.suffix.lower()[1:]
    try:
        with matplotlib.rc_context({"svg.hashsalt": "localspec"}):
            figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    except OSError as fault:
        raise LocalspecError(f"The plot cannot be written to '{file}' ({fault.strerror}).") from fault


def chart(axes: Any, curve: Curve) -> None:
    """Circles and a full line: speed; squares and dots: acceptance; dashes: plain."""
    labels = [point.label for point in curve.points]
    speeds, spreads = zip(*((point.tokens_per_second, point.spread) for point in curve.points), strict=True)
    axes.errorbar(labels, speeds, yerr=spreads, marker="o", capsize=3, color="tab:blue", label="tokens/s")
    axes.axhline(curve.plain, linestyle="--", color="tab:gray", label="plain decoding")
    axes.set(xlabel=curve.setting, ylabel="tokens/s", ylim=(0, None))
    right = axes.twinx()
    known = [(point.label, point.acceptance) for point in curve.points if point.acceptance is not None]
    if known:
        right.plot(*zip(*known, strict=True), marker="s", linestyle=":", color="tab:orange", label="accepted")
    right.set(ylabel="accepted", ylim=(0, 1.05))
    handles = [
        (one, name) for side in (axes, right) for one, name in zip(*side.get_legend_handles_labels(), strict=True)
    ]
    axes.legend(*zip(*handles, strict=True), loc="lower center", ncols=3, fontsize="small")
