"""Totals since the server started, as Prometheus reads them: llama-server's names where they mean the same, ours
otherwise. Knows no HTTP."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from localspec.core.events import Stats, per_second

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
THEIRS, OURS = "llamacpp:", "localspec:"


class AnswerTotals:
    """Sums over all answers; of an answer whose client left, too."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self.milliseconds: defaultdict[str, float] = defaultdict(float)
        self.answers: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.at_position: tuple[int, ...] = ()
        self.latest = Stats()

    def add(self, stats: Stats) -> None:
        self.latest = stats
        names = "prompt_n cached_n predicted_n draft_rounds plain_rounds draft_n draft_n_accepted draft_n_rejected"
        self.sums.update({name: getattr(stats, name) for name in names.split()})
        for name in ("prompt_ms", "predicted_ms", "draft_ms", "verify_ms"):
            self.milliseconds[name] += getattr(stats, name)
        self.answers[stats.finish_reason or "error"] += 1
        counts = stats.accepted_counts
        accepted = tuple(sum(counts[position + 1 :]) for position in range(len(counts) - 1))
        self.at_position = tuple(map(sum, zip_longest(self.at_position, accepted, fillvalue=0)))

    def refuse(self, status: int) -> None:
        """Counts a request that was refused."""
        self.refused[status] += 1

    def text(self, *, answering: int, waiting: int, starts: int, is_loaded: bool, parallel: int) -> str:
        """All metrics, in Prometheus' text format."""
        gauges = {
            f"{THEIRS}requests_processing": ("Requests that are answered.", answering),
            f"{THEIRS}requests_deferred": ("Requests that wait.", waiting),
            f"{OURS}answers_parallel": ("Answers that are written at once, at most.", parallel),
            f"{OURS}model_loaded": ("1 while the model is in memory.", int(is_loaded)),
        }
        lines = [*self._counters(), *self._labelled()]
        for name, (about, value) in {**gauges, **self._speeds()}.items():
            lines += described(name, about, "gauge", {"": value})
        lines += described(f"{OURS}engine_starts_total", "Times that the engine was started.", "counter", {"": starts})
        return "\n".join([*lines, ""])

    def _counters(self) -> Iterator[str]:
        sums, milliseconds = self.sums, self.milliseconds
        found = {
            f"{THEIRS}prompt_tokens_total": ("Prompt tokens read.", sums["prompt_n"] - sums["cached_n"]),
            f"{THEIRS}prompt_seconds_total": ("Seconds of reading prompts.", milliseconds["prompt_ms"] / 1000),
            f"{THEIRS}tokens_predicted_total": ("Tokens written.", sums["predicted_n"]),
            f"{THEIRS}tokens_predicted_seconds_total": ("Seconds of writing.", milliseconds["predicted_ms"] / 1000),
            f"{THEIRS}spec_decode_num_drafts_total": ("Rounds with a draft.", sums["draft_rounds"]),
            f"{THEIRS}spec_decode_num_draft_tokens_total": ("Tokens drafted.", sums["draft_n"]),
            f"{THEIRS}spec_decode_num_accepted_tokens_total": ("Drafted tokens kept.", sums["draft_n_accepted"]),
            f"{OURS}draft_tokens_rejected_total": ("Drafted tokens rejected.", sums["draft_n_rejected"]),
            f"{OURS}plain_rounds_total": ("Rounds without a draft.", sums["plain_rounds"]),
            f"{OURS}prompt_tokens_cached_total": ("Prompt tokens that the cache held.", sums["cached_n"]),
            f"{OURS}draft_seconds_total": ("Seconds of drafting.", milliseconds["draft_ms"] / 1000),
            f"{OURS}verify_seconds_total": ("Seconds of verifying.", milliseconds["verify_ms"] / 1000),
        }
        for name, (about, value) in found.items():
            yield from described(name, about, "counter", {"": value})

    def _labelled(self) -> Iterator[str]:
        positions = {f'{{position="{at}"}}': count for at, count in enumerate(self.at_position)}
        reasons = {f'{{finish_reason="{reason}"}}': count for reason, count in sorted(self.answers.items())}
        statuses = {f'{{status="{status}"}}': count for status, count in sorted(self.refused.items())}
        name = f"{THEIRS}spec_decode_num_accepted_tokens_per_pos_total"
        yield from described(name, "Drafted tokens kept, by position in the draft.", "counter", positions)
        yield from described(f"{OURS}answers_total", "Answers, by how they ended.", "counter", reasons)
        yield from described(f"{OURS}requests_refused_total", "Requests refused, by status.", "counter", statuses)

    def _speeds(self) -> dict[str, tuple[str, float]]:
        stats = self.latest
        reading = per_second(stats.prompt_n - stats.cached_n, stats.prompt_ms)
        return {
            f"{THEIRS}prompt_tokens_seconds": ("Prompt tokens per second, last answer.", reading),
            f"{THEIRS}predicted_tokens_seconds": ("Tokens per second, last answer.", stats.predicted_per_second),
        }


def described(name: str, about: str, kind: str, values: Mapping[str, float]) -> list[str]:
    """One metric with its values by label; nothing where it has none yet."""
    if not values:
        return []
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *(f"{name}{at} {value}" for at, value in values.items())]
