"""The cost of the chat's screen in figures: the chat's speed over `run`'s, keys, frames, first paint. Measures
nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from statistics import median
from typing import Any  # Any: JSON

from localspec.bench.tables import csv_text

ASKED_RATIO, ASKED_ECHO_MS, ASKED_PAINT_MS = 0.95, 50, 500  # at least, at most, at most
ASKED_FRAME_MS = 50  # at most, through the progress of a download


@dataclass(frozen=True, slots=True)
class Played:
    """One answer as its reader saw it: from the key that asked to the end. `cpu_seconds`: of the program that shows it
    (for `run` the engine's too). `engine_seconds`: that the model itself worked. `frames_ms`: what the screen's thread
    did between two looks for keys, if it drew. `longest_ms`: without such a look. `changes`: of the chat's word for how
    far a download is."""

    tokens: int
    seconds: float
    cpu_seconds: float
    engine_seconds: float
    frames_ms: tuple[float, ...] = ()
    longest_ms: float = 0.0
    changes: int = 0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def rest_seconds(self) -> float:
        return self.seconds - self.engine_seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One turn of both. `engine_ratio`: of the model's own speed; what else there is in `ratio` are the seconds in
    which the model rests, from the key to the prompt and from its last word to the end."""

    turn: int
    run_tokens_per_second: float
    chat_tokens_per_second: float
    ratio: float
    engine_ratio: float
    run_rest_seconds: float
    chat_rest_seconds: float
    screen_core_share: float
    frame_p95_ms: float
    frame_max_ms: float
    longest_ms: float


@dataclass(frozen=True, slots=True)
class UiReport:
    """Turns in the order they were played, keys and first paints in milliseconds. `downloading`: a download reported
    its progress in the chat meanwhile. `watched`: answers behind the list of downloads, from when it was open."""

    shape: str
    quant: str
    tokens: int
    repeats: int
    machine: dict[str, str]
    runs: tuple[Played, ...]
    chats: tuple[Played, ...]
    echoes_ms: tuple[float, ...]
    paints_ms: tuple[float, ...]
    watched: tuple[Played, ...] = ()
    downloading: bool = False

    def rows(self) -> list[Row]:
        pairs = zip(self.runs, self.chats, strict=True)
        return [row(turn, run, chat) for turn, (run, chat) in enumerate(pairs, start=1)]

    @property
    def ratio(self) -> float:
        """The chat's tokens per second over run's: the median over the turns."""
        return median(one.ratio for one in self.rows())

    def figures(self) -> dict[str, float]:
        """Medians and 95th percentiles over all turns."""
        return {
            "ratio": self.ratio,
            "engine_ratio": median(one.engine_ratio for one in self.rows()),
            "run_rest_seconds": median(one.run_rest_seconds for one in self.rows()),
            "chat_rest_seconds": median(one.chat_rest_seconds for one in self.rows()),
            "screen_core_share": median(one.screen_core_share for one in self.rows()),
            "frame_p95_ms": median(one.frame_p95_ms for one in self.rows()),
            "frame_max_ms": max(one.frame_max_ms for one in self.rows()),
            "longest_ms": max(one.longest_ms for one in self.rows()),
            "echo_p50_ms": percentile(self.echoes_ms, 0.5),
            "echo_p95_ms": percentile(self.echoes_ms, 0.95),
            "first_paint_ms": median(self.paints_ms),
            **(self.figures_of_downloads() if self.downloading else {}),
        }

    def figures_of_downloads(self) -> dict[str, float]:
        """How often the chat's word for the download changed, and the frames behind the list of downloads."""
        return {
            "changes_per_second": median(one.changes / one.seconds for one in self.chats),
            "watched_frames": float(sum(len(one.frames_ms) for one in self.watched)),
            "watched_frame_p95_ms": median(percentile(one.frames_ms, 0.95) for one in self.watched),
            "watched_frame_max_ms": max(max(one.frames_ms, default=0.0) for one in self.watched),
            "watched_longest_ms": max(one.longest_ms for one in self.watched),
        }

    def to_markdown(self) -> str:
        lines = [
            f"{self.shape} · random weights, {self.quant} · forced agreement · {self.tokens} tokens · "
            f"{self.repeats} turns{' · while downloading' if self.downloading else ''}",
            " · ".join(f"{name} {value}" for name, value in self.machine.items()),
            "",
            "| turn | run tok/s | chat tok/s | ratio | engine | run rests s | chat rests s | screen | frame p95 ms "
            "| max | longest |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {one.turn} | {one.run_tokens_per_second:.1f} | {one.chat_tokens_per_second:.1f} | {one.ratio:.3f} "
            f"| {one.engine_ratio:.3f} | {one.run_rest_seconds:.2f} | {one.chat_rest_seconds:.2f} "
            f"| {one.screen_core_share:.2f} | {one.frame_p95_ms:.0f} | {one.frame_max_ms:.0f} "
            f"| {one.longest_ms:.0f} |"
            for one in self.rows()
        ]
        found = self.figures()
        lines += [
            "",
            "| | measured | asked |",
            "|---|---|---|",
            f"| chat over run, median | ×{found['ratio']:.3f} | ≥ {ASKED_RATIO} |",
            f"| of which the engine's own speed | ×{found['engine_ratio']:.3f} | |",
            f"| seconds in which the engine rests, run and chat "
            f"| {found['run_rest_seconds']:.2f}, {found['chat_rest_seconds']:.2f} | |",
            f"| key to echo while it writes, median of {len(self.echoes_ms)} keys | {found['echo_p50_ms']:.0f} ms | |",
            f"| the same, 95th percentile | {found['echo_p95_ms']:.0f} ms | ≤ {ASKED_ECHO_MS} ms |",
            f"| first paint, median | {found['first_paint_ms']:.0f} ms | ≤ {ASKED_PAINT_MS} ms |",
            f"| screen, share of a core, median | {found['screen_core_share']:.2f} | |",
            f"| frame, p95 and max | {found['frame_p95_ms']:.0f} ms, {found['frame_max_ms']:.0f} ms | |",
            f"| longest without a look for keys | {found['longest_ms']:.0f} ms | {self.asked_of_frames} |",
            *(self.lines_of_downloads(found) if self.downloading else ()),
            "",
            "engine: the ratio of the model's own speed, without the seconds in which it rests. screen: its share of a",
            "core. A frame: what the screen's thread does between two looks for keys, if it draws. longest: without",
            "such a look, whether it draws or not.",
        ]
        return "\n".join(lines)

    def lines_of_downloads(self, found: Mapping[str, float]) -> list[str]:
        names = "frames", "frame_p95_ms", "frame_max_ms"
        count, frame, longest = (f"{found[f'watched_{name}']:.0f}" for name in names)
        return [
            f"| changes of the download in the chat, a second | {found['changes_per_second']:.1f} | |",
            f"| behind the list of downloads, {count} frames: p95 and max | {frame} ms, {longest} ms | |",
            f"| the same: longest without a look for keys | {found['watched_longest_ms']:.0f} ms "
            f"| {self.asked_of_frames} |",
        ]

    @property
    def asked_of_frames(self) -> str:
        return f"≤ {ASKED_FRAME_MS} ms" if self.downloading else ""

    def to_json(self) -> str:
        found: dict[str, Any] = {**asdict(self), "figures": self.figures()}
        return json.dumps(found, indent=2)

    def to_csv(self) -> str:
        return csv_text([asdict(one) for one in self.rows()])


def row(turn: int, run: Played, chat: Played) -> Row:
    return Row(
        turn,
        run.tokens_per_second,
        chat.tokens_per_second,
        chat.tokens_per_second / run.tokens_per_second,
        run.engine_seconds / chat.engine_seconds,
        run.rest_seconds,
        chat.rest_seconds,
        chat.cpu_seconds / chat.seconds,
        percentile(chat.frames_ms, 0.95),
        max(chat.frames_ms, default=0.0),
        chat.longest_ms,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed; 0 of none."""
    ranked = sorted(values)
    return ranked[max(0, ceil(share * len(ranked)) - 1)] if ranked else 0.0
