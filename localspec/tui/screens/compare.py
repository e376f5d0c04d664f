"""One question answered in two ways by one engine, side by side. Nothing of it enters the conversation.

One after the other: at once, each would take the processor from the other. Knows no engine; who opened the screen
hands it the engine's events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Footer, Static

from localspec.core.events import Done, Failure, Prefill, Stats, Step, Text, Waiting
from localspec.core.requests import GenerateRequest
from localspec.core.sanitize import one_line
from localspec.core.server_speculation import UNREPORTED, is_served
from localspec.runtime.stats import PROBES_NEEDED
from localspec.tui.chat.gain import UNKNOWN, is_certain
from localspec.tui.screens.compare_methods import CompareMethod
from localspec.tui.screens.compare_side import Side
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall

TWO_COLUMNS = 80
AROUND = 24  # characters shown where the texts part
REST_SECONDS = 0.5
SHORT_MS, FEW = 300, 128  # of an answer, in time and tokens: a hiccup of the machine's is as long
HARDLY_ANY = 1 / 20  # drafted tokens for each of the answer; all accepted, they make it no faster than ×1.05
NOT_ASKED = "not asked"
IN_TURN = "one after the other, so that neither slows the other down."

OfAnswer = Waiting | Prefill | Step | Text | Done | Failure


class CompareScreen(DismissedOnce, Screen[None]):
    """Two columns if they fit, else one above the other; `over` when nothing more will come."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", key_display="Esc", priority=True, id="compare.close")
    ]

    def __init__(
        self,
        request: GenerateRequest,
        ways: tuple[CompareMethod, CompareMethod],
        ask: Callable[[GenerateRequest], None],
    ) -> None:
        super().__init__()
        self.request = request
        self.ask = ask
        self.first, self.second = map(Side, ways)
        self.now = self.first
        self.begun = self.over = self.closed = False
        in_turn = f"First {ways[0].name}, then {ways[1].name}: {IN_TURN}"
        self._verdict = Static(one_line(in_turn), markup=False, id="verdict")

    def compose(self) -> ComposeResult:
        asked = self.request.messages[-1].content if self.request.messages else ""
        yield Static(one_line(asked), markup=False, id="asked")
        yield self._verdict
        yield Container(self.first, self.second, id="sides")
        yield Footer(show_command_palette=False)
        yield TooSmall()

    def on_mount(self) -> None:
        self.first.words.focus()
        self.set_timer(REST_SECONDS, self.start)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < TWO_COLUMNS, "-narrow")

    def start(self) -> None:
        """Starts once this screen has been drawn: else the first of the two would pay for that."""
        if not (self.begun or self.over):
            self.begun = True
            self.begin()

    def begin(self) -> None:
        self.now.begin()
        self.ask(self.now.way.asks(self.request))

    def receive(self, event: OfAnswer) -> None:
        """The next of the engine's events; a screen that was closed only waits for the last."""
        ended = isinstance(event, Done | Failure)
        if self.closed:
            self.over = ended
        elif isinstance(event, Failure):
            self.over = True
            self.now.fail(f"{event.message} {event.hint}".strip())
            if self.now is self.first:
                self.second.fail(NOT_ASKED)
            self.decide("Nothing was compared.")
        else:
            self.now.add(event)
            if ended:
                self.end_side()

    def follow(self) -> None:
        if not self.closed:
            self.now.follow()

    def end_side(self) -> None:
        self.now.follow()
        if self.now is self.second:
            self.over = True
            self.conclude()
        else:
            self.now = self.second
            self.begin()

    def conclude(self) -> None:
        """Shows the result, and marks where the texts differ."""
        one, other = self.first.text, self.second.text
        if one != other:
            position = parting(one, other)
            self.first.part_at(position)
            self.second.part_at(position)
        self.first.rest()
        self.second.rest()
        self.decide(verdict(self.first, self.second))

    def decide(self, words: str) -> None:
        self._verdict.update(words)
        self._verdict.add_class("-decided")

    def action_close(self) -> None:
        self.start()  # whoever closes it waits for an answer's end
        self.closed = True
        self.dismiss()


def verdict(first: Side, second: Side) -> str:
    """How much faster the second was, by the token, whether it wrote the same, and whether that is sure."""
    sums = first.tally.stats, second.tally.stats
    found = ratio(first, second)
    name = f"{one_line(second.way.name)} " if first.way.speculate else ""  # compared with plain, it goes without saying
    figure = f"{name}×{UNKNOWN if found is None else f'{found:.2f}'}"
    same = texts(first.text, second.text)
    if written(sums[0]) >= PROBES_NEEDED and drafted_hardly(sums[1]):
        return f"{figure}: hardly anything was drafted · {same}"
    if found is not None and is_sure(found, first, second):
        return f"{figure}{' faster' if found > 1 else ': slower'} · {same}"
    tokens = min(stats.predicted_n for stats in sums)
    return f"{figure} · {same} · {tokens:,} token{'' if tokens == 1 else 's'}, too few to be sure"


def ratio(first: Side, second: Side) -> float | None:
    """How many times as fast; None where so few rounds are compared with that one of them decides, and where drafts
    cannot have done that: the machine changed its speed."""
    slow, fast = first.tally.stats, second.tally.stats
    if written(slow) < PROBES_NEEDED or not slow.predicted_per_second:
        return None
    found, meter = fast.predicted_per_second / slow.predicted_per_second, second.tally.meter
    return found if slow.draft_n or not meter.times or found <= meter.most else None


def is_sure(found: float, first: Side, second: Side) -> bool:
    """Applies the one rule to what the clock says, and to what the rounds say: the clock has the machine's hiccups, and
    the rounds have what changed between the two answers. Where a server reports no rounds: both are long."""
    rounds = second.tally.meter.against(first.tally.meter)
    if rounds is None:
        sums = first.tally.stats, second.tally.stats
        return all(stats.predicted_n >= FEW and stats.predicted_ms >= SHORT_MS for stats in sums)
    speedup, band = rounds
    return is_certain(found, band) and is_certain(speedup, band) and (found > 1) == (speedup > 1)


def drafted_hardly(stats: Stats) -> bool:
    return stats.draft_kind != UNREPORTED and stats.draft_n <= HARDLY_ANY * stats.predicted_n


def written(stats: Stats) -> int:
    """The rounds that wrote it; its tokens, where a server reports no rounds."""
    return stats.rounds or (stats.predicted_n if is_served(stats) or stats.draft_kind == "off" else 0)


def texts(one: str, other: str) -> str:
    if one == other:
        return "same text"
    position = parting(one, other)
    here, there = (one_line(text[position : position + AROUND]) or "the end" for text in (one, other))
    return f"the texts differ from character {position + 1:,} on: “{here}” against “{there}”"


def parting(one: str, other: str) -> int:
    """The first position where they differ."""
    pairs = zip(one, other, strict=False)
    return next((position for position, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
