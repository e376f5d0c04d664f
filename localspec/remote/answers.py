"""An answer as it streams in, from events or lines to text, rounds and figures. Checks what a stranger sends.

Knows no sockets and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any  # Any: JSON from a stranger

import msgspec

from localspec.core.events import FinishReason, Notice, SpecCard, Stats, Step
from localspec.core.requests import MAX_DRAFT
from localspec.remote import faults
from localspec.remote.figures import MOST_POSITIONS, Figures, added, counted, of_ollama, part

THINKS, THOUGHT = "<think>\n", "\n</think>\n\n"
FINISHED: dict[str, FinishReason] = {"stop": "stop", "eos": "stop", "length": "length", "cancelled": "cancelled"}
MOST_TOKENS = 1024  # of a round
MOST_NOTICES = 16


@dataclass(frozen=True, slots=True)
class AnswerChunk:
    """What one chunk brought. `step`: who wrote each of its tokens, where the server says so."""

    text: str = ""
    step: Step | None = None
    spec: SpecCard | None = None
    notices: tuple[Notice, ...] = ()


class AnswerReader:
    """Reads one answer. `figures` are those that the server reported, `own` localspec's own Stats where it is one, and
    `streamed` the sums of its rounds so far; `finish`: why it ended, None while it has not."""

    def __init__(self, server: str, *, lines: bool = False, echo: str = "") -> None:
        """`echo`: the beginning of the answer, which the server repeats before it goes on."""
        self.server, self.lines, self._echo = server, lines, echo
        self.figures = self.streamed = Figures()
        self.own: Stats | None = None
        self.finish: FinishReason | None = None
        self._thinking = False

    def read(self, data: str) -> AnswerChunk:
        """One event's data, or one line."""
        try:
            found = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            raise faults.unreadable(self.server) from None
        if not isinstance(found, dict):
            raise faults.unreadable(self.server)
        if found.get("error"):
            raise faults.reported(self.server, found)
        return self._line(found) if self.lines else self._chunk(found)

    def _line(self, found: Mapping[str, Any]) -> AnswerChunk:
        message = found.get("message")
        if found.get("done") is True:
            self.finish = FINISHED.get(str(found.get("done_reason")), "stop")
            self.figures = of_ollama(found)
        return AnswerChunk(self._text(message, "thinking") if isinstance(message, dict) else "")

    def _chunk(self, found: Mapping[str, Any]) -> AnswerChunk:
        self.figures = added(self.figures, found)
        choices = found.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self.finish = FINISHED.get(reason, "stop")
        delta = choice.get("delta")
        text = self._text(delta, "reasoning_content") if isinstance(delta, dict) else ""
        step = step_of(delta) if isinstance(delta, dict) else None
        step = step if step is not None and step.text == text else None
        if step is not None:
            self.streamed = counted(self.streamed, step)
        return AnswerChunk(text, step, *self._own(found))

    def _text(self, message: Mapping[str, Any], thought: str) -> str:
        """The text, and thoughts as the transcript knows them."""
        content, thinks = message.get("content"), message.get(thought, message.get("reasoning"))
        found = ""
        if isinstance(thinks, str) and thinks:
            found += thinks if self._thinking else THINKS + thinks
            self._thinking = True
        if isinstance(content, str) and content:
            found += THOUGHT + content if self._thinking else content
            self._thinking = False
        return self._without_echo(found)

    def _without_echo(self, text: str) -> str:
        """The text without what was there before. The echo may come in pieces, and one that does not match is none."""
        shared = min(len(text), len(self._echo))
        if text[:shared] != self._echo[:shared]:
            shared = 0
            self._echo = ""
        self._echo = self._echo[shared:]
        return text[shared:]

    def _own(self, found: Mapping[str, Any]) -> tuple[SpecCard | None, tuple[Notice, ...]]:
        """localspec's own figures, in its last chunk."""
        own = found.get("localspec")
        if not isinstance(own, dict):
            return None, ()
        stats = part(own, "stats", Stats)
        self.own = stats if stats is not None and is_sane(stats) else None
        noticed = own.get("notices")
        several = noticed[:MOST_NOTICES] if isinstance(noticed, list) else []
        notices = tuple(one for item in several if (one := part({"notice": item}, "notice", Notice)) is not None)
        return part(own, "spec", SpecCard), notices


def step_of(delta: Mapping[str, Any]) -> Step | None:
    """The round that a chunk of localspec's carries."""
    step = part(delta, "localspec", Step)
    if step is None or len(step.tokens) > MOST_TOKENS:
        return None
    counts = step.drafted, step.accepted, step.ignored
    is_sane_draft = min(counts) >= 0 and step.accepted + step.ignored <= step.drafted <= 4 * MAX_DRAFT
    is_sane_time = all(isfinite(one) and 0 <= one < 1e9 for one in (step.draft_ms, step.verify_ms))
    return step if is_sane_draft and is_sane_time and len(step.rejected) <= step.drafted else None


def is_sane(stats: Stats) -> bool:
    """Whether the sums can be shown: numbers that a hostile server made up could cost memory."""
    plain = (value for name in Stats.__struct_fields__ if isinstance(value := getattr(stats, name), int | float))
    lists = stats.accepted_counts, stats.tested_counts, tuple(stats.by_drafter)
    return all(isfinite(value) and 0 <= value < 1e15 for value in plain) and all(
        len(one) <= MOST_POSITIONS for one in lists
    )
