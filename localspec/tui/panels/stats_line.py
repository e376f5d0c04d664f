"""The state line, and the line below an answer. Knows no engine."""

from __future__ import annotations

from asyncio import TimerHandle

from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from localspec.core.events import FinishReason, Loading, Stats, Waiting
from localspec.core.sanitize import one_line
from localspec.core.server_speculation import is_served, speculation
from localspec.tui.chat.explained import CONTEXT
from localspec.tui.chat.gain import cost
from localspec.tui.chat.info import ChatInfo, context, info
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


def summary(stats: Stats, band: float | None = None) -> str:
    """The line below an answer: what the header does not say. A word comes first where it did not end by itself. `band`
    is the speed-up's; without one that is left out."""
    unusual = [words] if (words := ending(stats)) else []
    length = (
        f"{stats.predicted_n:,} token{'' if stats.predicted_n == 1 else 's'}" if counts(stats) else "tokens not counted"
    )
    drafts = [speculation(stats)] if is_served(stats) else accepted(stats)
    return " · ".join([*unusual, length, *first_token(stats), *drafts, *filter(None, [cost(stats, band)])])


def counts(stats: Stats) -> bool:
    """Whether the tokens are known: not every server counts them."""
    return bool(stats.predicted_n) or not is_served(stats)


def ending(stats: Stats) -> str:
    """How it ended; "" where the model ended it."""
    if stats.stop_text:
        spelled = stats.stop_text.replace("\n", r"\n").replace("\t", r"\t")
        return f"ended by the stop text “{one_line(spelled)}”"
    if stats.loops:
        return "stopped: it repeats itself"
    return ENDINGS.get(stats.finish_reason, "") if stats.finish_reason else ""


def accepted(stats: Stats) -> list[str]:
    """The share of the tested draft tokens that was accepted."""
    if stats.acceptance_rate is None:
        return []
    tested = stats.draft_n_accepted + stats.draft_n_rejected
    return [f"{100 * stats.acceptance_rate:.0f} % of {tested:,} drafted accepted"]


def first_token(stats: Stats) -> list[str]:
    return [f"first token {stats.ttft_ms / 1000:.2f} s"] if stats.ttft_ms else []


def loading_words(event: Loading) -> str:
    """The state while a model loads."""
    if event.unit == "steps":
        return one_line(f"{event.stage} {event.done}/{event.total}" if event.total > 1 else event.stage)
    words = one_line(event.stage)
    if event.total:
        words += f" {100 * event.done // event.total} %"
    return f"{words} · eta {event.eta_s:.0f} s" if event.eta_s is not None and round(event.eta_s) else words


def waiting_words(event: Waiting) -> str:
    """The state while a server has not begun the answer."""
    return one_line(f"waiting: {event.reason}")


class StatsLine(Widget):
    """The state, and the current settings. A hint takes the whole line while there is one, and
    as many more as it needs."""

    state: reactive[str] = reactive("")
    stats: reactive[Stats] = reactive(Stats())
    info: reactive[ChatInfo] = reactive(ChatInfo())
    hint: reactive[str] = reactive("")
    _hint_timer: TimerHandle | None = None
    _hint_stays = False

    def give_hint(self, text: str, seconds: float | None = None, *, stays: bool = False) -> None:
        """Say something for a while, or until it can have been read; `stays`: whatever the engine does meanwhile.
        Whatever it quotes comes in clean."""
        self._hint_stays = stays
        if self._hint_timer is not None:
            self._hint_timer.cancel()
        self.hint = one_line(text)
        self._hint_timer = once(self, seconds or max(HINT_SECONDS, len(text) / READ_PER_SECOND), self.end_hint)

    def end_hint(self) -> None:
        self.hint = ""

    def contradict_hint(self) -> None:
        """Ends a hint that is about what the engine did before."""
        if not self._hint_stays:
            self.end_hint()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """The tooltip says what the context is where it stands."""
        at, used = event.get_content_offset(self), context(self.stats)
        start = self.render().plain.rfind(used) if used else -1
        is_there = at is not None and 0 <= start <= at.x < start + len(used)
        self.tooltip = Content(CONTEXT.sentence) if is_there else None

    def watch_hint(self, hint: str) -> None:
        self.set_class(bool(hint), "-hints")
        self.refresh(layout=bool(hint))

    def render(self) -> Content:
        if self.hint:
            return Content.styled(self.hint, "$text-warning")
        width = self.content_size.width
        used = info(self.info, self.stats, width - len(self.state) - len(GAP))
        gap = " " * max(0, width - len(self.state) - len(GAP) - used.cell_length)
        tone = "$foreground-muted" if self.state in AT_REST else "bold $text-accent"
        return Content.assemble((self.state, tone), GAP, gap, used)
