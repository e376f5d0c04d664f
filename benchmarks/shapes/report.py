"""A shape's measurements as Markdown, JSON or CSV: milliseconds of forwards, and speeds of speculation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any  # Any: cells

from benchmarks.shapes.agreement import Writing
from benchmarks.shapes.forwards import Times, Work
from localspec.bench.tables import csv_text, markdown, percent, plus_minus

Ratio = tuple[float, float]
"""Median and spread."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A method of forwards: its times, the weight bytes each work reads, and whose times to compare with."""

    name: str
    rivals: tuple[str, ...]
    num_bytes: dict[Work, int]


@dataclass(frozen=True, slots=True)
class Written:
    """A writer and its texts, one a turn."""

    name: str
    k: str
    agreement: float | None
    plain: str
    peer: str
    texts: tuple[Writing, ...]


@dataclass(frozen=True, slots=True)
class ForwardRow:
    """One method at one work. `share`: of the bandwidth of the same turn. `faster`: by rival, how many times."""

    method: str
    kind: str
    rows: int
    depth: int
    ms: float
    ms_spread: float
    read_gbs: float
    share: float
    faster: dict[str, Ratio]


@dataclass(frozen=True, slots=True)
class TextRow:
    """One writer. `agreement` is what was forced, `accepted` what came of it; `same`: texts equal to plain's.

    `times_plain`, `times_peer`: how many times as fast as the same format's plain, and as llama.cpp's.
    """

    method: str
    k: str
    agreement: float | None
    accepted: float | None
    tokens_per_round: float
    tokens_per_second: float
    tokens_per_second_spread: float
    same: str | None
    times_plain: Ratio | None
    times_peer: Ratio | None


@dataclass(frozen=True, slots=True)
class ShapeReport:
    """Everything of one run on one shape."""

    shape: str
    seed: int
    repeats: int
    machine: dict[str, str]
    memory: Timed
    works: tuple[Work, ...]
    methods: tuple[Timed, ...]
    times: Times
    writers: tuple[Written, ...] = ()
    notes: tuple[str, ...] = ()

    def forwards(self) -> list[ForwardRow]:
        return [self.forward(one, work) for work in self.works for one in self.methods if work in self.times[one.name]]

    def forward(self, method: Timed, work: Work) -> ForwardRow:
        own = self.times[method.name][work]
        bandwidths = [self.memory.num_bytes[work] / spent / 1e9 for spent in self.times[self.memory.name][work]]
        speeds = [method.num_bytes[work] / spent / 1e9 for spent in own]
        theirs = {name: self.times[name][work] for name in method.rivals if work in self.times.get(name, {})}
        return ForwardRow(
            method.name,
            work.kind,
            work.rows,
            work.depth,
            1000 * median(own),
            1000 * spread(own),
            method.num_bytes[work] / median(own) / 1e9,
            median([speed / most for speed, most in zip(speeds, bandwidths, strict=True)]),
            {name: ratio([b / a for a, b in zip(own, times, strict=True)]) for name, times in theirs.items()},
        )

    @property
    def bandwidth(self) -> Ratio:
        """GB/s that memory gave, while taking turns with the forwards."""
        found = self.times[self.memory.name]
        return ratio([self.memory.num_bytes[work] / spent / 1e9 for work in found for spent in found[work]])

    def texts(self) -> list[TextRow]:
        return [self.text(writer) for writer in self.writers]

    def text(self, writer: Written) -> TextRow:
        texts = {one.name: one.texts for one in self.writers}
        plain, peer = texts.get(writer.plain), texts.get(writer.peer)
        speeds = [text.tokens_per_second for text in writer.texts]
        tested = sum(text.tested for text in writer.texts)
        return TextRow(
            writer.name,
            writer.k,
            writer.agreement,
            sum(text.accepted for text in writer.texts) / tested if tested else None,
            sum(len(text.ids) for text in writer.texts) / sum(text.rounds for text in writer.texts),
            median(speeds),
            spread(speeds),
            equal(writer.texts, plain) if plain else None,
            faster(writer.texts, plain) if plain else None,
            faster(writer.texts, peer) if peer else None,
        )

    def to_markdown(self) -> str:
        machine = " · ".join(f"{name} {value}" for name, value in self.machine.items())
        head = f"{self.shape} · random weights, seed {self.seed} · {self.repeats} turns · medians ± median deviation"
        parts = [f"{head}\n{machine}\nbandwidth {ratio_text(self.bandwidth)} GB/s, in turn with the forwards"]
        parts += [markdown(forward_table(self.forwards()))] if self.methods else []
        if self.writers:
            about = "Speculation with forced agreement: every forward runs, a coin decides whether a proposal is right."
            parts += [about, markdown(text_table(self.texts()))]
        return "\n\n".join([*parts, *self.notes])

    def to_json(self) -> str:
        return json.dumps(
            {
                "shape": self.shape,
                "seed": self.seed,
                "repeats": self.repeats,
                "machine": self.machine,
                "bandwidth_gbs": self.bandwidth[0],
                "forwards": [asdict(row) for row in self.forwards()],
                "forced_agreement": [asdict(row) for row in self.texts()],
                "notes": self.notes,
            },
            indent=1,
        )

    def to_csv(self) -> str:
        """A line for every figure's row; cells that a row has not are empty."""
        found = [*map(asdict, self.forwards()), *map(asdict, self.texts())]
        return csv_text([{"shape": self.shape, **flat(row)} for row in found])


def spread(values: Sequence[float]) -> float:
    """Median absolute deviation."""
    centre = median(values)
    return median(abs(value - centre) for value in values)


def ratio(values: Sequence[float]) -> Ratio:
    return median(values), spread(values)


def faster(own: Sequence[Writing], theirs: Sequence[Writing]) -> Ratio:
    return ratio([a.tokens_per_second / b.tokens_per_second for a, b in zip(own, theirs, strict=True)])


def equal(own: Sequence[Writing], plain: Sequence[Writing]) -> str:
    return f"{sum(a.ids == b.ids for a, b in zip(own, plain, strict=True))}/{len(own)}"


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """Ratios as two columns each, their spread beside them."""
    ratios = {f"times_{name}": value for name, value in row.pop("faster", {}).items()}
    ratios |= {name: value for name, value in row.items() if name.startswith("times_")}
    cells = {name: value for name, value in row.items() if name not in ratios}
    for name, value in ratios.items():
        cells[name], cells[f"{name}_spread"] = value or (None, None)
    return cells


def forward_table(rows: Sequence[ForwardRow]) -> list[list[str]]:
    """A line for every work; columns for every method."""
    methods = list(dict.fromkeys(row.method for row in rows))
    cells = {(row.kind, row.rows, row.depth, row.method): row for row in rows}
    rivals = {row.method: list(row.faster) for row in rows if row.kind == "forward"}
    head = ["forward", "rows", "depth"]
    for method in methods:
        head += [f"{method} ms", "GB/s", *(f"× {name}" for name in rivals[method])]
    table = [head]
    for kind, count, depth in dict.fromkeys((row.kind, row.rows, row.depth) for row in rows):
        line = [kind, str(count), str(depth)]
        for method in methods:
            line += forward_cells(cells.get((kind, count, depth, method)), rivals[method])
        table.append(line)
    return table


def forward_cells(row: ForwardRow | None, rivals: Sequence[str]) -> list[str]:
    if row is None:
        return ["–"] * (2 + len(rivals))
    compared = [ratio_text(row.faster.get(name)) for name in rivals]
    return [plus_minus(row.ms, row.ms_spread), f"{row.read_gbs:.1f} ({row.share:.0%})", *compared]


def text_table(rows: Sequence[TextRow]) -> list[list[str]]:
    head = ["method", "k", "agreement", "accepted", "tok/round", "tok/s", "× own plain", "× llama.cpp", "same"]
    return [head, *(text_cells(row) for row in rows)]


def text_cells(row: TextRow) -> list[str]:
    return [
        row.method,
        row.k,
        percent(row.agreement),
        percent(row.accepted),
        f"{row.tokens_per_round:.2f}",
        plus_minus(row.tokens_per_second, row.tokens_per_second_spread, 1),
        ratio_text(row.times_plain),
        ratio_text(row.times_peer),
        row.same or "–",
    ]


def ratio_text(found: Ratio | None) -> str:
    return plus_minus(*(found or (None, None)))
