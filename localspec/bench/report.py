"""Medians of what was measured with their 95 % intervals, as Markdown, JSON or CSV.

Speed is tokens of a whole answer over its time, prompt included; a speed-up is the ratio to plain decoding on the same
prompt in the same repeat. Knows nothing about how the runs were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import comb
from statistics import median
from typing import Any  # Any: JSON

from localspec.bench.tables import csv_text, markdown, percent, plus_minus
from localspec.core.events import Stats
from localspec.runtime.bench_table import RowLength, bench_table, conclusion, which_counts

PLAIN = "plain"
OURS = "localspec"
CONFIDENCE = 0.95
ALL_COLUMNS = "All columns, and each kind of prompt: -o md"
Key = tuple[int, int]
"""Prompt and repeat."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way of decoding: what a row is about. Those of one `kind` are compared across engines."""

    name: str
    k: RowLength
    quant: str
    kind: str = PLAIN
    engine: str = OURS
    threads: int = 1


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One answer: its ids and how long it took; `stats` where the engine is ours."""

    ids: tuple[int, ...]
    seconds: float
    stats: Stats | None = None

    @property
    def tokens_per_second(self) -> float:
        return len(self.ids) / self.seconds


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One way's medians; `_spread` is half the median's 95 % interval. No figures where it failed.

    `speedup`: over the first row; `times_own_plain`: over the same engine's plain in the same format; `times_theirs`:
    over the same kind of another engine, in the same format where there is one, else in its fastest. `same`: answers
    token-identical to own plain's, or for a plain to the first row's. `first_accepted`: acceptance of a draft's first
    token. `read_gbs` of `peak_gbs`: weights read per second while answering, and what the machine can read at best.
    """

    method: str
    k: RowLength
    quant: str
    threads: int
    tokens_per_second: float | None = None
    tokens_per_second_spread: float | None = None
    speedup: float | None = None
    speedup_spread: float | None = None
    times_own_plain: float | None = None
    times_own_plain_spread: float | None = None
    times_theirs: float | None = None
    times_theirs_spread: float | None = None
    acceptance: float | None = None
    first_accepted: float | None = None
    tokens_per_round: float | None = None
    ttft_ms: float | None = None
    read_gbs: float | None = None
    peak_gbs: float | None = None
    same: str | None = None


@dataclass(frozen=True, slots=True)
class KindRow:
    """One way's figures on the prompts of one kind; `times_own_plain` None for plain decoding itself."""

    kind: str
    method: str
    k: RowLength
    quant: str
    tokens_per_second: float
    times_own_plain: float | None
    acceptance: float | None


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All runs of a measurement, by way and (prompt, repeat); the first way is plain decoding.

    `failed` names those that went on without their drafter, `faults` those that did not go on, and why; `notes` are
    sentences for the reader, and `to_try` commands. `kinds`: the kind of each prompt.
    """

    model: str
    quant: str
    max_tokens: int
    repeats: int
    machine: dict[str, str]
    runs: dict[Way, dict[Key, TimedRun]]
    failed: frozenset[Way] = frozenset()
    faults: dict[Way, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    to_try: tuple[str, ...] = ()

    def rows(self) -> list[BenchRow]:
        fallen = [
            BenchRow(f"{way.name} (failed: {why})", way.k, way.quant, way.threads) for way, why in self.faults.items()
        ]
        return [*map(self.row, self.runs), *fallen]

    @property
    def first(self) -> dict[Key, TimedRun]:
        return next(iter(self.runs.values()))

    @property
    def peak_gbs(self) -> float | None:
        """The machine's best, of what was measured as each contender was loaded."""
        stats = [run.stats for runs in self.runs.values() for run in runs.values() if run.stats is not None]
        return max((one.bandwidth_peak_gbs for one in stats if one.bandwidth_peak_gbs is not None), default=None)

    def row(self, way: Way) -> BenchRow:
        runs, plain = self.runs[way], self.own_plain(way)
        several = sum(one.kind == PLAIN for one in self.runs) > 1
        stats = [run.stats for run in runs.values() if run.stats is not None]
        return BenchRow(
            f"{way.name} (failed: decoded plain)" if way in self.failed else way.name,
            way.k,
            way.quant,
            way.threads,
            *middle([run.tokens_per_second for run in runs.values()]),
            *lead(runs, self.first),
            *lead(runs, plain if several else None),
            *lead(runs, self.rival(way)),
            pooled_acceptance(stats),
            pooled_first(stats),
            pooled_tokens_per_round(stats),
            known_median(one.ttft_ms for one in stats),
            known_median(one.bandwidth_gbs for one in stats),
            self.peak_gbs,
            same(runs, self.first if way.kind == PLAIN or plain is None else plain),
        )

    def own_plain(self, way: Way) -> dict[Key, TimedRun] | None:
        """Plain decoding by this engine in the same format; None where that failed."""
        own = [one for one in self.runs if (one.engine, one.quant, one.kind) == (way.engine, way.quant, PLAIN)]
        return self.runs[own[0]] if own else None

    def kind_rows(self) -> list[KindRow]:
        """Kind by kind, in the order in which they are asked; none where all prompts are of one kind."""
        kinds = list(dict.fromkeys(self.kinds))
        return [self.only(kind).kind_row(kind, way) for kind in kinds for way in self.runs] if len(kinds) > 1 else []

    def only(self, kind: str) -> BenchReport:
        """The same report about the prompts of one kind."""
        chosen = {index for index, one in enumerate(self.kinds) if one == kind}
        runs = {way: {key: run for key, run in all.items() if key[0] in chosen} for way, all in self.runs.items()}
        return replace(self, runs=runs)

    def kind_row(self, kind: str, way: Way) -> KindRow:
        row = self.row(way)
        times = None if way.kind == PLAIN else lead(self.runs[way], self.own_plain(way))[0]
        return KindRow(kind, row.method, way.k, way.quant, row.tokens_per_second or 0.0, times, row.acceptance)

    def rival(self, way: Way) -> dict[Key, TimedRun] | None:
        """Finds another engine's runs of the same kind: in the same format, or in its fastest."""
        others = [one for one in self.runs if way.engine == OURS != one.engine and one.kind == way.kind]
        alike = [one for one in others if one.quant == way.quant] or others
        return max((self.runs[one] for one in alike), key=median_speed, default=None)

    @property
    def title(self) -> str:
        return f"{self.model}, {self.quant}"

    def speeds(self) -> dict[str, dict[str, float]]:
        """Tokens/s by kind of prompt and way of decoding; the one group is "all" where there is one kind."""
        several = len({way.quant for way in self.runs}) > 1
        rows = self.kind_rows() or [self.kind_row("all", way) for way in self.runs]
        found: dict[str, dict[str, float]] = {row.kind: {} for row in rows}
        for row in rows:
            found[row.kind][f"{row.method} {row.quant}" if several else row.method] = row.tokens_per_second
        return found

    @property
    def head(self) -> str:
        """What was measured, and on what machine."""
        repeats = f"{self.repeats} repeat{'' if self.repeats == 1 else 's'}"
        machine = " · ".join(f"{name} {value}" for name, value in self.machine.items())
        return f"{self.model} · {self.quant} · greedy · {self.max_tokens} tokens · {repeats}\n{machine}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes and commands, and last which column counts where two do not fit together; "" where all do."""
        return *self.notes, *(f"Try: {command}" for command in self.to_try), which_counts(self.rows())

    def to_markdown(self) -> str:
        by_kind = [markdown(kind_table(rows))] if (rows := self.kind_rows()) else []
        return "\n\n".join([self.head, markdown(table(self.rows())), *by_kind, *filter(None, self.remarks)])

    def to_text(self) -> str:
        """Text for a terminal of 80 columns: what matters most, and last what follows from it."""
        ours = [self.row(way) for way in self.runs if way.engine == OURS and way not in self.failed]
        below = filter(None, (*self.remarks, ALL_COLUMNS, conclusion(ours)))
        return "\n\n".join([self.head, bench_table(self.rows()), "\n".join(below)])

    def to_json(self) -> str:
        fields = {"model": self.model, "quant": self.quant, "max_tokens": self.max_tokens, "repeats": self.repeats}
        everything: dict[str, Any] = {
            **fields,
            "machine": self.machine,
            "rows": [fields_of(row) for row in self.rows()],
        }
        by_kind = [fields_of(row) for row in self.kind_rows()]
        return json.dumps({**everything, "kinds": by_kind, "notes": self.notes, "try": self.to_try}, indent=1)

    def to_csv(self) -> str:
        return csv_text([{"model": self.model, **fields_of(row)} for row in self.rows()])


def fields_of(row: BenchRow | KindRow) -> dict[str, Any]:
    """A row as JSON and CSV have it, where a draft length is always text."""
    return {**asdict(row), "k": str(row.k)}


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median by order statistics, whatever the distribution: from the kth lowest to the kth
    highest value, interpolated to the next ones (Hettmansperger and Sheather, "Confidence intervals based on
    interpolated order statistics", Statistics & Probability Letters 4, 1986). None of fewer than six values: even the
    lowest and the highest of those are less sure."""
    ordered, count = sorted(values), len(values)
    sure = [1 - sum(comb(count, below) for below in range(k)) / 2 ** (count - 1) for k in range(count // 2 + 1)]
    k = sum(one >= CONFIDENCE for one in sure) - 1
    if k < 1:
        return None
    share = (sure[k] - CONFIDENCE) / (sure[k] - sure[k + 1])
    inwards = (count - k) * share / (k + (count - 2 * k) * share)
    low = ordered[k - 1] + inwards * (ordered[k] - ordered[k - 1])
    return low, ordered[-k] - inwards * (ordered[-k] - ordered[-k - 1])


def middle(values: Sequence[float]) -> tuple[float, float | None]:
    """The median, and half its interval."""
    found = interval(values)
    return median(values), None if found is None else (found[1] - found[0]) / 2


def lead(runs: dict[Key, TimedRun], others: dict[Key, TimedRun] | None) -> tuple[float | None, float | None]:
    """How many times as fast as others, prompt by prompt; nothing where there are none."""
    if others is None:
        return None, None
    return middle([run.tokens_per_second / others[key].tokens_per_second for key, run in runs.items()])


def median_speed(runs: dict[Key, TimedRun]) -> float:
    return median(run.tokens_per_second for run in runs.values())


def known_median(values: Iterable[float | None]) -> float | None:
    """Median of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def pooled_acceptance(stats: Sequence[Stats]) -> float | None:
    """Accepted over tested, all answers together."""
    accepted = sum(one.draft_n_accepted for one in stats)
    tested = accepted + sum(one.draft_n_rejected for one in stats)
    return accepted / tested if tested else None


def pooled_first(stats: Sequence[Stats]) -> float | None:
    """Drafted rounds that accepted a token or more."""
    rounds = sum(sum(one.accepted_counts) for one in stats)
    return 1 - sum(sum(one.accepted_counts[:1]) for one in stats) / rounds if rounds else None


def pooled_tokens_per_round(stats: Sequence[Stats]) -> float | None:
    rounds = sum(one.rounds for one in stats)
    return sum(one.predicted_n for one in stats) / rounds if rounds else None


def same(runs: dict[Key, TimedRun], plain: dict[Key, TimedRun]) -> str:
    """How many answers equal plain's token for token, and where the first difference is."""
    positions = [difference(run.ids, plain[key].ids) for key, run in runs.items()]
    differing = [position for position in positions if position is not None]
    count = f"{len(positions) - len(differing)}/{len(positions)}"
    return f"{count}, first at {min(differing)}" if differing else count


def difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """The first position where two answers differ; None where they do not."""
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))


def table(rows: Sequence[BenchRow]) -> list[list[str]]:
    """A line for every row; what is compared with more than one plain has columns only where there is such."""
    compared = {"× own plain", "× theirs"}
    lines = [cells(row) for row in rows]
    names = [name for name in lines[0] if name not in compared or any(line[name] != "–" for line in lines)]
    return [names, *([line[name] for name in names] for line in lines)]


def cells(row: BenchRow) -> dict[str, str]:
    """What each column says."""
    peak = f" of {row.peak_gbs:.1f}" if row.peak_gbs else ""
    return {
        "method": row.method,
        "format": row.quant,
        "threads": str(row.threads),
        "k": str(row.k),
        "tok/s": plus_minus(row.tokens_per_second, row.tokens_per_second_spread, 1),
        "× plain": plus_minus(row.speedup, row.speedup_spread, 2),
        "× own plain": plus_minus(row.times_own_plain, row.times_own_plain_spread, 2),
        "× theirs": plus_minus(row.times_theirs, row.times_theirs_spread, 2),
        "accepted": percent(row.acceptance),
        "1st": percent(row.first_accepted),
        "tok/round": "–" if row.tokens_per_round is None else f"{row.tokens_per_round:.2f}",
        "ttft ms": "–" if row.ttft_ms is None else f"{row.ttft_ms:.1f}",
        "read GB/s": "–" if row.read_gbs is None else f"{row.read_gbs:.1f}{peak}",
        "same": row.same or "–",
    }


def kind_table(rows: Sequence[KindRow]) -> list[list[str]]:
    """A line for every kind: tokens/s, and of what drafts × own plain and the acceptance."""
    several = len({row.quant for row in rows}) > 1
    columns = list(dict.fromkeys((row.method, row.quant) for row in rows))
    titles = [f"{method} {quant}" if several else method for method, quant in columns]
    cells = {(row.kind, row.method, row.quant): kind_cell(row) for row in rows}
    kinds = dict.fromkeys(row.kind for row in rows)
    return [["tok/s", *titles], *([kind, *(cells[kind, *column] for column in columns)] for kind in kinds)]


def kind_cell(row: KindRow) -> str:
    times = "" if row.times_own_plain is None else f" ×{row.times_own_plain:.2f}"
    accepted = "" if row.acceptance is None else f" {percent(row.acceptance)}"
    return f"{row.tokens_per_second:.1f}{times}{accepted}"
