"""Speed in words: the figures of a generation, and the line that shows them live. Knows no engine and no events."""

from __future__ import annotations

from asyncio import TimerHandle

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from localspec.events import FinishReason, Loading, Stats
from localspec.sanitize import one_line
from localspec.tui.once import once

GAP = "   "
NEARLY_FULL = 0.8
HINT_SECONDS = 4.0
AT_REST = ("idle", "stopped")
ENDINGS: dict[FinishReason, str] = {
    "cancelled": "stopped",
    "length": "cut at the length limit",
    "context": "the context is full",
    "error": "ended by an error",
}


def figures(stats: Stats) -> list[str]:
    """Most wanted first, so that a narrow line can drop the rest."""
    if not stats.predicted_n:
        return []
    found = [f"{stats.predicted_per_second:.1f} tok/s"]
    if stats.draft_kind != "off":
        found.append(f"×{stats.speedup:.2f}" if stats.speedup else "×–")
    if stats.acceptance_rate is not None:
        found.append(f"{100 * stats.acceptance_rate:.0f} % accepted")
    return found


def live(stats: Stats) -> list[str]:
    """What the state line says, in the same order."""
    return [*figures(stats), *per_step(stats), *ttft(stats)]


def summary(stats: Stats) -> str:
    """What stands under an answer, in one line of 80 columns."""
    ending = [ENDINGS[stats.finish_reason]] if stats.finish_reason in ENDINGS else []
    start = [] if ending else ttft(stats)
    return " · ".join([*ending, *figures(stats), *per_step(stats), *start, f"{stats.predicted_n:,} tok"])


def per_step(stats: Stats) -> list[str]:
    return [f"{stats.tokens_per_step:.1f} tok/step"] if stats.draft_kind != "off" and stats.rounds else []


def ttft(stats: Stats) -> list[str]:
    return [f"ttft {stats.ttft_ms / 1000:.2f} s"] if stats.ttft_ms else []


def context(stats: Stats) -> str:
    """Tokens used of those there are; with the share once it matters."""
    if not stats.context_max:
        return ""
    share = stats.context_used / stats.context_max
    nearly = f" {100 * share:.0f} % full" if share >= NEARLY_FULL else ""
    return f"ctx {stats.context_used:,}/{stats.context_max:,}{nearly}"


def loading_words(event: Loading) -> str:
    """The state while a model loads."""
    if event.unit == "steps":
        return one_line(f"{event.stage} {event.done}/{event.total}" if event.total > 1 else event.stage)
    words = one_line(f"loading {event.stage}")
    if event.total:
        words += f" {100 * event.done // event.total} %"
    return f"{words} · eta {event.eta_s:.0f} s" if event.eta_s is not None else words


def fitting(parts: list[str], width: int) -> str:
    """As many parts as fit, joined."""
    while parts and len(" · ".join(parts)) > width:
        parts = parts[:-1]
    return " · ".join(parts)


class StatsLine(Widget):
    """State, figures, whether answers are drafted for, context. A hint takes the whole line while there is one."""

    state: reactive[str] = reactive("")
    stats: reactive[Stats] = reactive(Stats())
    spec: reactive[str] = reactive("")
    hint: reactive[str] = reactive("")
    _hint_timer: TimerHandle | None = None

    def give_hint(self, text: str, seconds: float = HINT_SECONDS) -> None:
        """Say something for a while. Whatever it quotes comes in clean."""
        if self._hint_timer is not None:
            self._hint_timer.cancel()
        self.hint = one_line(text)
        self._hint_timer = once(self, seconds, self.end_hint)

    def end_hint(self) -> None:
        self.hint = ""

    def render(self) -> Content:
        if self.hint:
            return Content.styled(self.hint, "$text-warning")
        width = self.content_size.width
        used = fitting([part for part in (self.spec, context(self.stats)) if part], width - len(self.state) - len(GAP))
        found = fitting(live(self.stats), width - len(self.state) - len(used) - 2 * len(GAP))
        gap = " " * max(0, width - len(self.state) - len(GAP) - len(found) - len(used))
        tone = "$foreground-muted" if self.state in AT_REST else "bold $text-accent"
        return Content.assemble((self.state, tone), GAP, found, gap, (used, "$foreground-muted"))
