"""Sums a generation's events into Stats, and measures the speed-up from rounds without a draft.

The speed-up is tokens x what a plain round takes meanwhile (plain_rounds.py) / time spent in rounds. Rounds of three
times the median of rounds as wide as themselves are left out: those are the machine's hiccups, and wide ones are none.
Knows nothing about clocks, engines or screens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from math import hypot
from statistics import fmean, median, stdev, variance
from typing import Any

import msgspec

from localspec.core.events import AnyEvent, Done, DrafterSums, Event, Prefill, Ready, Stats, Step
from localspec.core.server_speculation import SERVER, UNREPORTED
from localspec.runtime.plain_rounds import OUTLIER, PlainRounds, steady, student_95

PROBES_NEEDED = 10  # in a mean of fewer a single one decides: the screen shows ×–
MEDIAN_OF = 3  # rounds, at least
BELIEVED = 1.2  # of the most that a speed-up can be
RATES = (
    "predicted_per_second",
    "acceptance_rate",
    "tokens_per_step",
    "mean_accept_len",
    "accept_per_pos",
    "overhead_ms",
    "bandwidth_gbs",
)


def steady_mean(times: Sequence[float]) -> float:
    return fmean(steady(times))


def spread_of_sum(times: Sequence[float], usual: float = 0.0) -> float:
    """Standard deviation of the sum of steady times; one time alone spreads by its `usual` share."""
    kept = steady(times)
    return (len(kept) * variance(kept)) ** 0.5 if len(kept) > 1 else usual * sum(kept)


def usual_spread(times: Sequence[float]) -> float | None:
    """Standard deviation of one steady time, as a share of their mean; None of fewer than two."""
    kept = steady(times) if times else []
    return stdev(kept) / fmean(kept) if len(kept) > 1 else None


class SpeedMeter:
    """Compares the cost of rounds without a draft, kept across turns, with this generation's rounds."""

    def __init__(self) -> None:
        self.plain = PlainRounds()
        self.restart()

    def restart(self) -> None:
        """A new generation: its rounds are forgotten, the plain ones' times are not."""
        self.plain.restart()
        self.times: defaultdict[int, list[float]] = defaultdict(list)
        self.tokens = 0

    def observe(self, *, drafted: int, tokens: int, milliseconds: float) -> None:
        if drafted == 0:
            self.plain.add(milliseconds)
        else:
            self.plain.pass_over(tokens)
        self.times[drafted].append(milliseconds)
        self.tokens += tokens

    @property
    def baseline_ms(self) -> float | None:
        """Mean time of a plain round of this start; None until it means something."""
        return steady_mean(self.plain.latest) if len(self.plain.latest) >= PROBES_NEEDED else None

    @property
    def speedup(self) -> float | None:
        """The speed-up over plain decoding; None until it is clear of the noise, and where the times cannot be
        right. A round costs what a plain one does at least, so more than its tokens is a machine that changed speed."""
        found, band = self._ratio, self._share_of_band or 0.0
        if found is None or not any(self.times):
            return found
        return found if band < 1 and found * (1 - band) <= self.most else None

    @property
    def band(self) -> float | None:
        """Half the 95 % interval of the speed-up, by how the rounds' times spread; None while that was not measured."""
        share = self._share_of_band
        return None if self.speedup is None or share is None else self.speedup * share

    @property
    def most(self) -> float:
        """The most that its speed-up over plain decoding can be, and be believed."""
        return BELIEVED * self.tokens / sum(map(len, self.times.values()))

    def against(self, other: SpeedMeter) -> tuple[float, float] | None:
        """How many times as fast this generation was as another, by the rounds of both, and half the 95 % interval of
        that; None where that is not known."""
        usual = usual_spread(max(other.times.values(), key=len, default=[]))
        if usual is None or not self.times:
            return None
        found = other.ms_per_token / self.ms_per_token
        return found, found * hypot(self.share_of_spread(usual), other.share_of_spread(usual))

    @property
    def ms_per_token(self) -> float:
        return sum(len(times) * self._round_ms(drafted) for drafted, times in self.times.items()) / self.tokens

    def share_of_spread(self, usual: float) -> float:
        """Half the 95 % interval of this generation's time, as a share of it; `usual`: that of one time."""
        spent = sum(map(sum, map(steady, self.times.values())))
        drafted = sum(len(times) for k, times in self.times.items() if k)
        count = max(3, drafted or len(self.times.get(0, ())))
        return student_95(count) * hypot(*(spread_of_sum(t, usual) for t in self.times.values())) / spent

    @property
    def _ratio(self) -> float | None:
        if self.baseline_ms is None or not self.times:
            return None
        if not any(self.times):  # no round had a draft: whatever the times say, nothing was sped up
            return 1.0
        spent = sum(len(times) * self._round_ms(drafted) for drafted, times in self.times.items())
        return self.tokens * self.plain.level()[0] / spent if spent else None

    @property
    def _share_of_band(self) -> float | None:
        if not self._ratio or not any(self.times):
            return None
        _, of_plain = self.plain.level()
        return hypot(of_plain, self.share_of_spread(usual_spread(self.plain.latest) or 0.0))

    def _round_ms(self, drafted: int) -> float:
        """Mean time of rounds with so long a draft. One or two such rounds are no median to know a hiccup by: rounds
        of other lengths are, since a draft costs at most a plain round a token, and a shorter one not more."""
        times = self.times[drafted]
        others = {k: median(times) for k, times in self.times.items() if len(times) >= MEDIAN_OF}
        if drafted in others or not others:
            return steady_mean(times)
        usual = min(ms * max(1, (drafted + 1) / (k + 1)) for k, ms in others.items())
        return fmean(t if t <= OUTLIER * usual else usual for t in times)


class Tally:
    """Reads one engine's events and holds the Stats of the current generation."""

    def __init__(self) -> None:
        self.meter = SpeedMeter()
        self._base = Stats()  # what a load decides: sizes, context, the kind of draft
        self._stats = Stats()
        self._ended = self._compared = True

    @property
    def stats(self) -> Stats:
        """Sums so far; the final ones after Done."""
        if self._ended:
            return self._stats
        baseline = self.meter.baseline_ms
        return msgspec.structs.replace(
            self._stats,
            baseline_tps=1000 / baseline if baseline else None,
            speedup=self.meter.speedup,
        )

    def begin(self, *, compared: bool = True) -> None:
        """Starts a generation: the figures of the one before are dropped. `compared`: its rounds are those of a single
        text, whose speed-up means something."""
        self._stats, self._ended, self._compared = self._base, False, compared
        self.meter.restart()

    def add(self, event: AnyEvent) -> None:
        match event:
            case Ready():
                self._load(event)
            case Prefill():
                self._prefill(event)
            case Step():
                self._step(event)
            case Done():
                self._stats, self._ended = event.stats, True

    def _load(self, ready: Ready) -> None:
        self.meter = SpeedMeter()
        memory = ready.memory
        self._base = self._stats = Stats(
            draft_kind=UNREPORTED if ready.spec.kind == SERVER else ready.spec.kind,
            target_bytes=memory.target_bytes,
            drafter_bytes=memory.drafter_bytes,
            kv_bytes=memory.kv_bytes,
            bandwidth_peak_gbs=memory.bandwidth_peak_gbs,
            context_max=ready.model.context_max,
        )

    def _prefill(self, event: Prefill) -> None:
        if self._ended:
            self.begin()
        used = event.cached + event.done
        self._stats = msgspec.structs.replace(
            self._stats, prompt_n=event.total, cached_n=event.cached, context_used=used
        )

    def _step(self, step: Step) -> None:
        if self._ended:
            self.begin()
        if self._compared and not step.shared:
            spent = step.draft_ms + step.verify_ms
            self.meter.observe(drafted=step.drafted, tokens=len(step.tokens), milliseconds=spent)
        self._stats = add_step(self._stats, step)


def add_step(stats: Stats, step: Step) -> Stats:
    """The sums with one more round in them."""
    drafted = step.drafted > 0
    return msgspec.structs.replace(
        stats,
        predicted_n=stats.predicted_n + len(step.tokens),
        predicted_ms=stats.predicted_ms + step.draft_ms + step.verify_ms,
        draft_rounds=stats.draft_rounds + drafted,
        plain_rounds=stats.plain_rounds + (not drafted),
        draft_n=stats.draft_n + step.drafted,
        draft_n_accepted=stats.draft_n_accepted + step.accepted,
        draft_n_rejected=stats.draft_n_rejected + len(step.rejected),
        draft_n_ignored=stats.draft_n_ignored + step.ignored,
        accepted_counts=count(stats.accepted_counts, step.accepted) if drafted else stats.accepted_counts,
        tested_counts=count(stats.tested_counts, step.drafted - step.ignored) if drafted else stats.tested_counts,
        draft_ms=stats.draft_ms + step.draft_ms,
        verify_ms=stats.verify_ms + step.verify_ms,
        context_used=max(stats.context_used, step.position) + len(step.tokens),
        by_drafter=added_by_drafter(stats.by_drafter, sums_of(step)) if step.drafters else stats.by_drafter,
    )


def sums_of(step: Step) -> dict[str, DrafterSums]:
    """A round's draft by the kind of drafter of each of its tokens."""
    kinds, accepted, tested = step.drafters, step.accepted, step.accepted + len(step.rejected)
    return {
        kind: DrafterSums(kinds.count(kind), kinds[:accepted].count(kind), kinds[accepted:tested].count(kind))
        for kind in dict.fromkeys(kinds)
    }


def added_by_drafter(first: dict[str, DrafterSums], then: dict[str, DrafterSums]) -> dict[str, DrafterSums]:
    """Two sums as one."""
    none = DrafterSums()
    pairs = {kind: (first.get(kind, none), then.get(kind, none)) for kind in (*first, *then)}
    return {
        kind: DrafterSums(a.drafted + b.drafted, a.accepted + b.accepted, a.rejected + b.rejected)
        for kind, (a, b) in pairs.items()
    }


SUMS = (
    "prompt_ms",
    "predicted_n",
    "predicted_ms",
    "draft_rounds",
    "plain_rounds",
    "draft_n",
    "draft_n_accepted",
    "draft_n_rejected",
    "draft_n_ignored",
    "draft_ms",
    "verify_ms",
    "read_bytes",
)


def joined(first: Stats, then: Stats) -> Stats:
    """Adds up the two parts of a continued answer; the prompt is the first part's, all else the last's."""
    measured = [part for part in (first, then) if part.speedup and part.predicted_ms]
    spent = sum(part.predicted_ms for part in measured)
    return msgspec.structs.replace(
        then,
        **{name: getattr(first, name) + getattr(then, name) for name in SUMS},
        prompt_n=first.prompt_n,
        cached_n=first.cached_n,
        ttft_ms=first.ttft_ms or then.ttft_ms,
        accepted_counts=added(first.accepted_counts, then.accepted_counts),
        tested_counts=added(first.tested_counts, then.tested_counts),
        by_drafter=added_by_drafter(first.by_drafter, then.by_drafter),
        speedup=sum((part.speedup or 0) * part.predicted_ms for part in measured) / spent if spent else None,
    )


def added(first: tuple[int, ...], then: tuple[int, ...]) -> tuple[int, ...]:
    """Two histograms as one."""
    return tuple(map(sum, zip_longest(first, then, fillvalue=0)))


def count(counts: tuple[int, ...], index: int) -> tuple[int, ...]:
    """The histogram with one more at `index`."""
    longer = list(counts) + [0] * (index + 1 - len(counts))
    longer[index] += 1
    return tuple(longer)


def to_dict(record: Event | Stats) -> dict[str, Any]:  # Any: this is JSON
    """A record as JSON knows it, Stats with their rates."""
    plain: dict[str, Any] = msgspec.to_builtins(record)
    stats = record if isinstance(record, Stats) else getattr(record, "stats", None)
    if isinstance(stats, Stats):
        where = plain if stats is record else plain["stats"]
        where.update({name: getattr(stats, name) for name in RATES})
        for kind, sums in stats.by_drafter.items():
            where["by_drafter"][kind]["acceptance_rate"] = sums.acceptance_rate
    if "spec" in plain:
        plain["spec"]["k"] = str(plain["spec"]["k"])  # text, even for a number
    return plain
