"""Medians with spread of what was measured, as Markdown, JSON or CSV.

Speed is tokens of a whole answer over its time, prompt included; a speed-up is the ratio to plain decoding on the same
prompt in the same repeat. Knows nothing about how the runs were made.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any  # Any: JSON

from localspec.events import Stats

PLAIN = "plain"
Key = tuple[int, int]
"""Prompt and repeat."""


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: its ids and how long it took; `stats` where the engine is ours."""

    ids: tuple[int, ...]
    seconds: float
    stats: Stats | None = None

    @property
    def tokens_per_second(self) -> float:
        return len(self.ids) / self.seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One contender's medians; `_spread` is the median absolute deviation. `same`: answers token-identical to plain.

    `read_gbs` of `peak_gbs`: weights read per second while answering, and what the machine can read at best.
    """

    method: str
    k: str
    tokens_per_second: float
    tokens_per_second_spread: float
    speedup: float
    speedup_spread: float
    acceptance: float | None
    tokens_per_round: float | None
    ttft_ms: float | None
    read_gbs: float | None
    peak_gbs: float | None
    same: str


@dataclass(frozen=True, slots=True)
class Report:
    """All runs of a measurement, by contender and (prompt, repeat).

    `failed` names the contenders that went on without their drafter; `notes` are sentences for the reader.
    """

    model: str
    quant: str
    max_tokens: int
    repeats: int
    machine: dict[str, str]
    contenders: tuple[tuple[str, str], ...]
    runs: dict[str, dict[Key, Run]]
    failed: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        return [self.row(name, k) for name, k in self.contenders]

    @property
    def peak_gbs(self) -> float | None:
        """The machine's best, of what was measured as each contender was loaded."""
        stats = [run.stats for runs in self.runs.values() for run in runs.values() if run.stats is not None]
        return max((one.bandwidth_peak_gbs for one in stats if one.bandwidth_peak_gbs is not None), default=None)

    def row(self, name: str, k: str) -> Row:
        runs, plain = self.runs[name], self.runs[PLAIN]
        speeds = [run.tokens_per_second for run in runs.values()]
        ratios = [run.tokens_per_second / plain[key].tokens_per_second for key, run in runs.items()]
        stats = [run.stats for run in runs.values() if run.stats is not None]
        return Row(
            f"{name} (failed: decoded plain)" if name in self.failed else name,
            k,
            median(speeds),
            spread(speeds),
            median(ratios),
            spread(ratios),
            pooled_acceptance(stats),
            pooled_tokens_per_round(stats),
            known_median(one.ttft_ms for one in stats),
            known_median(one.bandwidth_gbs for one in stats),
            self.peak_gbs,
            same(runs, plain),
        )

    def to_markdown(self) -> str:
        head = f"{self.model} · {self.quant} · greedy · {self.max_tokens} tokens · {self.repeats} repeats"
        machine = " · ".join(f"{name} {value}" for name, value in self.machine.items())
        lines = [
            f"{head}\n{machine}\n",
            "| method | k | tok/s | × plain | accepted | tok/round | ttft ms | read GB/s | same |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        return "\n".join([*lines, *map(markdown, self.rows()), *(f"\n{note}" for note in self.notes)])

    def to_json(self) -> str:
        fields = {"model": self.model, "quant": self.quant, "max_tokens": self.max_tokens, "repeats": self.repeats}
        everything: dict[str, Any] = {**fields, "machine": self.machine, "rows": [asdict(row) for row in self.rows()]}
        return json.dumps({**everything, "notes": self.notes}, indent=1)

    def to_csv(self) -> str:
        out = io.StringIO()
        rows = [asdict(row) for row in self.rows()]
        writer = csv.DictWriter(out, ["model", "quant", *rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"model": self.model, "quant": self.quant, **row} for row in rows)
        return out.getvalue().rstrip("\n")


def spread(values: Sequence[float]) -> float:
    """Median absolute deviation."""
    middle = median(values)
    return median(abs(value - middle) for value in values)


def known_median(values: Iterable[float | None]) -> float | None:
    """Median of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def pooled_acceptance(stats: Sequence[Stats]) -> float | None:
    """Accepted over tested, all answers together."""
    accepted = sum(one.draft_n_accepted for one in stats)
    tested = accepted + sum(one.draft_n_rejected for one in stats)
    return accepted / tested if tested else None


def pooled_tokens_per_round(stats: Sequence[Stats]) -> float | None:
    rounds = sum(one.rounds for one in stats)
    return sum(one.predicted_n for one in stats) / rounds if rounds else None


def same(runs: dict[Key, Run], plain: dict[Key, Run]) -> str:
    """How many answers equal plain's token for token, and where the first difference is."""
    places = [difference(run.ids, plain[key].ids) for key, run in runs.items()]
    differing = [place for place in places if place is not None]
    count = f"{len(places) - len(differing)}/{len(places)}"
    return f"{count}, first at {min(differing)}" if differing else count


def difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """The first place where two answers differ; None where they do not."""
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return None if len(left) == len(right) else min(len(left), len(right))


def markdown(row: Row) -> str:
    cells = [
        row.method.replace("|", "\\|"),
        row.k,
        f"{row.tokens_per_second:.1f} ± {row.tokens_per_second_spread:.1f}",
        f"{row.speedup:.2f} ± {row.speedup_spread:.2f}",
        "–" if row.acceptance is None else f"{row.acceptance:.0%}",
        "–" if row.tokens_per_round is None else f"{row.tokens_per_round:.2f}",
        "–" if row.ttft_ms is None else f"{row.ttft_ms:.1f}",
        "–" if row.read_gbs is None else f"{row.read_gbs:.1f}" + (f" of {row.peak_gbs:.1f}" if row.peak_gbs else ""),
        row.same,
    ]
    return f"| {' | '.join(cells)} |"
