"""The state line and the figures of a generation, in words. Knows no engine."""

from __future__ import annotations

from asyncio import TimerHandle

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from localspec.core.events import FinishReason, Loading, Stats
from localspec.core.sanitize import one_line
from localspec.tui.chat.info import Info, info
from localspec.tui.terminal.timer import once

GAP = "   "
HINT_SECONDS = 4.0  # at least
READ_PER_SECOND = 20  # letters
AT_REST = ("idle", "stopped")
ENDINGS: dict[FinishReason, str] = {
    "cancelled": "stopped",
    "length": "cut at the length limit",
    "context": "the context is full",
    "error": "ended by an error",
}


def live(stats: Stats) -> list[str]:
    """The state line's figures, beyond the header's; the most important first, so that a narrow line drops the rest."""
    return [*accepted(stats), *per_step(stats), *ttft(stats)]


def summary(stats: Stats) -> str:
    """The line below an answer. A word comes first where it did not end by itself."""
    unusual = [ENDINGS[stats.finish_reason]] if stats.finish_reason in ENDINGS else []
    speed = [f"{stats.predicted_per_second:.1f} tok/s"] if stats.predicted_n else []
    gain = [f"×{stats.speedup:.2f}" if stats.speedup else "×–"] if speed and stats.draft_kind != "off" else []
    usual = ["stop"] if stats.finish_reason == "stop" else []
    length = f"{stats.predicted_n:,} tok"
    return " · ".join(
        [*unusual, *speed, *ttft(stats), length, *per_step(stats), *accepted(stats, of="drafted "), *gain, *usual]
    )


def accepted(stats: Stats, *, of: str = "") -> list[str]:
    """The share of the tested draft tokens that was accepted; `of` names them where their number is shown too."""
    if stats.acceptance_rate is None:
        return []
    tested = stats.draft_n_accepted + stats.draft_n_rejected
    return [f"{100 * stats.acceptance_rate:.0f} % {f'of {tested:,} {of}' if of else ''}accepted"]


def per_step(stats: Stats) -> list[str]:
    return [f"{stats.tokens_per_step:.1f} tok/step"] if stats.draft_kind != "off" and stats.rounds else []


def ttft(stats: Stats) -> list[str]:
    return [f"ttft {stats.ttft_ms / 1000:.2f} s"] if stats.ttft_ms else []


def loading_words(event: Loading) -> str:
    """The state while a model loads."""
    if event.unit == "steps":
        return one_line(f"{event.stage} {event.done}/{event.total}" if event.total > 1 else event.stage)
    words = one_line(event.stage)
    if event.total:
        words += f" {100 * event.done // event.total} %"
    return f"{words} · eta {event.eta_s:.0f} s" if event.eta_s is not None else words


def fitting(parts: list[str], width: int) -> str:
    """Joins as many parts as fit."""
    while parts and len(" · ".join(parts)) > width:
        parts = parts[:-1]
    return " · ".join(parts)


class StatsLine(Widget):
    """The state, figures if they fit, current settings. A hint takes the whole line while there is one, and
    as many more as it needs."""

    state: reactive[str] = reactive("")
    stats: reactive[Stats] = reactive(Stats())
    info: reactive[Info] = reactive(Info())
    hint: reactive[str] = reactive("")
    _hint_timer: TimerHandle | None = None

    def give_hint(self, text: str, seconds: float | None = None) -> None:
        """Say something for a while, or until it can have been read. Whatever it quotes comes in clean."""
        if self._hint_timer is not None:
            self._hint_timer.cancel()
        self.hint = one_line(text)
        self._hint_timer = once(self, seconds or max(HINT_SECONDS, len(text) / READ_PER_SECOND), self.end_hint)

    def end_hint(self) -> None:
        self.hint = ""

    def watch_hint(self, hint: str) -> None:
        self.set_class(bool(hint), "-hints")
        self.refresh(layout=bool(hint))

    def render(self) -> Content:
        if self.hint:
            return Content.styled(self.hint, "$text-warning")
        width = self.content_size.width
        used = info(self.info, self.stats, width - len(self.state) - len(GAP))
        found = fitting(live(self.stats), width - len(self.state) - used.cell_length - 2 * len(GAP))
        gap = " " * max(0, width - len(self.state) - len(GAP) - len(found) - used.cell_length)
        tone = "$foreground-muted" if self.state in AT_REST else "bold $text-accent"
        return Content.assemble((self.state, tone), GAP, found, gap, used)
