"""Which exit layer and which draft length are fastest here: each against plain decoding, interleaved, then remembered.

Where both are asked for, the draft lengths are measured at the best exit layer. What `--draft auto` does now is
measured too, so that nothing slower replaces it. Times nothing itself (measure.py), draws nothing (plots.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from localspec.bench import plots
from localspec.bench.measure import interleave, names, ours, report
from localspec.bench.plots import Curve, Point
from localspec.bench.progress import Tell, loading, shares, silent
from localspec.bench.prompts import BenchPrompt, prompts_for
from localspec.bench.report import PLAIN, BenchReport, BenchRow
from localspec.core import calibration
from localspec.core.drain import drain
from localspec.core.errors import UsageError
from localspec.core.events import DraftLength
from localspec.core.requests import MAX_DRAFT, AskedDraft, EarlyExit, LoadRequest
from localspec.core.sanitize import one_line
from localspec.engine.drafters.table import EARLY_EXIT
from localspec.runtime.bench_table import bench_table
from localspec.runtime.draft_choice import choose, requested
from localspec.runtime.open import open_target
from localspec.runtime.open_target import OpenTarget, swept_key

SweptSetting = Literal["exit-layer", "k"]
Tried = tuple[int, DraftLength]  # exit layer and draft length
TITLES: Final = {"exit-layer": "exit layer", "k": "draft length"}
LENGTHS: Final[tuple[DraftLength, ...]] = (1, 2, 3, 4, 6, 8, "auto")
MOST_LAYERS: Final = 12  # of a deep model some are left out, unless they are asked for
HINT: Final = "Try: --sweep exit-layer, --sweep exit-layer=2:8:2, or --sweep k"


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting and its values; none means the usual ones."""

    setting: SweptSetting
    values: tuple[int, ...] = ()

    def exit_layers(self, layers: int) -> list[int]:
        if layers < 2:
            raise UsageError("A model of one layer has no early exit.", hint="Leave --sweep out.")
        if outside := [value for value in self.values if not 1 <= value < layers]:
            raise UsageError(f"Exit layer {outside[0]} is outside a model of {layers} layers.", hint=HINT)
        return list(self.values) or list(range(1, layers, -(-(layers - 1) // MOST_LAYERS)))

    def lengths(self) -> list[DraftLength]:
        return list[DraftLength](self.values) or list(LENGTHS)


def axis(words: str) -> Axis:
    """ "exit-layer", "k", or either with "=FROM:TO" or "=FROM:TO:STEP"; TO is measured too."""
    found = re.fullmatch(r"(exit-layer|k)(?:=(\d{1,4}):(\d{1,4})(?::(\d{1,4}))?)?", words)
    if not found:
        raise UsageError(f"--sweep does not know '{words}'.", hint=HINT)
    setting: SweptSetting = "k" if found[1] == "k" else "exit-layer"
    if found[2] is None:
        return Axis(setting)
    values = tuple(range(int(found[2]), int(found[3]) + 1, max(int(found[4] or 1), 1)))
    if not values:
        raise UsageError(f"--sweep {words} has no values.", hint=HINT)
    if setting == "k" and (outside := [value for value in values if not 1 <= value <= MAX_DRAFT]):
        raise UsageError(f"{outside[0]} is not a draft length from 1 to {MAX_DRAFT}.", hint=HINT)
    return Axis(setting, values)


@dataclass(frozen=True, slots=True)
class BestExit:
    """The fastest early exit; `remembered` is whether `--draft auto` will use it from now on, `overruled` that it will
    not because models.toml names another drafter."""

    exit_layer: int
    k: DraftLength
    speedup: float
    remembered: bool
    overruled: bool = False


@dataclass(frozen=True, slots=True)
class SweepReport:
    """A report for every setting that was swept, in order. `best` None: plain decoding was fastest."""

    curves: tuple[Curve, ...]
    reports: tuple[BenchReport, ...]
    best: BestExit | None

    def to_markdown(self) -> str:
        drawn = ("\n".join(["```", *plots.bars(curve), "```"]) for curve in self.curves)
        return self.joined([one.to_markdown() for one in self.reports], drawn)

    def to_text(self) -> str:
        """Text for a terminal of 80 columns."""
        tables = [f"{one.head}\n\n{bench_table(one.rows())}" for one in self.reports]
        return self.joined(tables, ("\n".join(plots.bars(curve)) for curve in self.curves))

    def joined(self, tables: Iterable[str], drawn: Iterable[str]) -> str:
        parts = [part for pair in zip(tables, drawn, strict=True) for part in pair]
        return "\n\n".join([*parts, self.sentence])

    @property
    def sentence(self) -> str:
        if self.best is None:
            return "Plain decoding is fastest here; no early exit is saved for this model."
        layer, k = self.best.exit_layer, self.best.k
        found = f"Fastest: --draft early-exit:{layer} --k {k}, ×{self.best.speedup:.2f} plain."
        kept = "--draft auto uses it from now on" if self.best.remembered else "it could not be saved"
        if self.best.overruled:
            kept = "--draft auto does not use it: models.toml has another drafter, or none"
        length = k if isinstance(k, int) else f'"{k}"'
        toml = (
            f"for every machine, write exit_layer = {layer} and k = {length} under its [models.….draft] in models.toml."
        )
        return f"{found} On this machine {kept}; {toml}"

    def to_json(self) -> str:
        reports = [json.loads(one.to_json()) for one in self.reports]
        best = {**asdict(self.best), "k": str(self.best.k)} if self.best else None
        return json.dumps({"sweeps": reports, "best": best}, indent=1)

    def to_csv(self) -> str:
        head, *rest = [one.to_csv() for one in self.reports]
        return "\n".join([head, *(line for text in rest for line in text.split("\n")[1:])])

    def draw(self, file: Path) -> None:
        plots.draw(self.curves, f"{self.reports[0].model}, {self.reports[0].quant}", file)


def sweep(
    load: LoadRequest,
    axes: Sequence[Axis],
    *,
    prompts: Sequence[BenchPrompt] | None = None,
    max_tokens: int = 64,
    repeats: int = 3,
    tell: Tell = silent,
) -> SweepReport:
    """Exit layers first, then draft lengths."""
    asked, k = exit_asked(load.draft), load.k
    refuse({one.setting for one in axes}, len(axes), asked, k)
    opened = drain(open_target(load), loading(tell))
    texts = [prompt.text for prompt in (prompts_for(opened.entry.key) if prompts is None else prompts)]
    layers, best = opened.target.arch.num_layers, auto_now(opened)
    layer, length, gain = asked or (best[0] if best else max(layers // 4, 1)), k, 1.0
    curves, reports = list[Curve](), list[BenchReport]()
    for one in sorted(axes, key=lambda one: one.setting):
        if one.setting == "exit-layer":
            tried = [(exit_layer, length) for exit_layer in one.exit_layers(layers)]
        else:
            tried = [(layer, k) for k in one.lengths()]
        if best and best not in tried:
            tried.append(best)
        found = measured(opened, tried, texts, max_tokens, repeats, tell)
        curve = curve_of(one.setting, tried, found)
        if curve.best and curve.best.speedup > 1:
            best, gain = tried[curve.points.index(curve.best)], curve.best.speedup
            layer, length = best
        curves.append(curve)
        reports.append(found)
    return SweepReport(tuple(curves), tuple(reports), remember(opened, layer, length, gain))


def refuse(settings: set[SweptSetting], count: int, asked: int | None, k: DraftLength) -> None:
    """A setting is swept or given, and a draft that is swept has a token at least."""
    if len(settings) < count:
        raise UsageError("--sweep has the same setting twice.", hint=HINT)
    if "k" in settings and k != "auto":
        raise UsageError("--k cannot be combined with --sweep k.", hint="Leave it out.")
    if "exit-layer" in settings and asked is not None:
        raise UsageError("--draft early-exit:E cannot be combined with --sweep exit-layer.", hint="Leave it out.")
    if k == 0:
        raise UsageError("With --k 0 nothing is drafted, so no exit layer is faster.", hint="Leave it out.")


def exit_asked(draft: AskedDraft) -> int | None:
    """The exit layer that --draft names, if it names one."""
    asked = requested(draft)
    if asked.kind not in ("auto", EARLY_EXIT.name):
        raise UsageError("A sweep varies the early exit, but --draft names another drafter.", hint="Leave it out.")
    return int(asked.argument) if asked.argument else None


def auto_now(opened: OpenTarget) -> Tried | None:
    """The exit layer and draft length that `--draft auto` has now; None where it drafts otherwise or not at all."""
    known = calibration.recall(swept_key(opened))
    choice = choose("auto", opened.entry, opened.snapshot, opened.catalog, known)
    return (choice.exit_layer, choice.k) if choice.exit_layer else None


def measured(
    opened: OpenTarget,
    tried: Sequence[Tried],
    prompts: Sequence[str],
    max_tokens: int,
    repeats: int,
    tell: Tell,
) -> BenchReport:
    contenders = [ours(opened, PLAIN, "off", "auto")]
    contenders += [ours(opened, f"early exit {layer}", EarlyExit(layer), k) for layer, k in tried]
    runs = interleave(contenders, max_tokens, repeats, shares(tell, names(contenders)), prompts)
    fell = [one_line(f"{one.way.name}: {note}") for one in contenders if one.failed for note in one.notes]
    return report(opened, contenders, runs, max_tokens, repeats, tuple(dict.fromkeys(fell)))


def curve_of(setting: SweptSetting, tried: Sequence[Tried], found: BenchReport) -> Curve:
    plain, *ways = found.runs
    values = [name(setting, one, tried[0]) for one in tried]
    points = [point(value, found.row(way), failed=way in found.failed) for value, way in zip(values, ways, strict=True)]
    return Curve(TITLES[setting], tuple(points), found.row(plain).tokens_per_second or 0.0)


def name(setting: SweptSetting, one: Tried, usual: Tried) -> str:
    """The value of the setting, and of the other one where that is not as usual."""
    (layer, k), (usual_layer, usual_k) = one, usual
    if setting == "exit-layer":
        return str(layer) if k == usual_k else f"{layer} k {k}"
    return str(k) if layer == usual_layer else f"{k} at {layer}"


def point(value: str, row: BenchRow, *, failed: bool) -> Point:
    speed, spread = row.tokens_per_second or 0.0, row.tokens_per_second_spread or 0.0
    return Point(value, speed, spread, row.speedup or 0.0, row.acceptance, failed)


def remember(opened: OpenTarget, layer: int, k: DraftLength, speedup: float) -> BestExit | None:
    """Saves the draft length and the exit layer for `auto`; if nothing beats plain decoding, it deletes what was
    saved."""
    key = swept_key(opened)
    if speedup <= 1:
        calibration.remember(key, exit_layer=None, k="auto")
        return None
    kept = calibration.remember(key, exit_layer=layer, k=k)
    used = kept and auto_now(opened) == (layer, k)
    return BestExit(layer, k, speedup, remembered=used, overruled=kept and not used)
