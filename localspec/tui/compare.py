"""One question answered twice by one engine, plain and drafted, side by side. Nothing of it enters the conversation.

One after the other: at once, each would take the processor from the other. Knows no engine; who opened the screen
hands it the engine's events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from localspec.events import Done, Failure, Prefill, Stats, Step
from localspec.requests import GenerateRequest
from localspec.sanitize import clean, one_line
from localspec.stats import Tally

TWO_COLUMNS = 80
SEED = 1  # where the user has none: both then draw the same tokens, if the engine computes the same
AROUND = 24  # characters shown where the texts part
IN_TURN = "First plain, then drafted: one after the other, so that neither slows the other down."

OfAnswer = Prefill | Step | Done | Failure


def fair(request: GenerateRequest, *, speculate: bool) -> GenerateRequest:
    """The same chances for both."""
    seed = SEED if request.sampling.seed is None else request.sampling.seed
    sampling = msgspec.structs.replace(request.sampling, seed=seed)
    return msgspec.structs.replace(request, sampling=sampling, speculate=speculate)


class Side(VerticalScroll):
    """One of the two answers, as it comes: its figures, its text."""

    def __init__(self, name: str, *, speculate: bool) -> None:
        super().__init__()
        self.speculate = speculate
        self.text = ""
        self.tally = Tally()
        self._label = Static(one_line(name), markup=False, classes="speaker")
        self._figures = Static("waiting", markup=False, classes="figures")
        self._body = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield from (self._label, self._figures, self._body)

    def on_mount(self) -> None:
        self.anchor()

    def begin(self) -> None:
        self.tally.begin()
        self._figures.update("reading prompt")

    def add(self, event: Prefill | Step | Done) -> None:
        self.tally.add(event)
        self.text += event.text if isinstance(event, Step) else ""

    def follow(self) -> None:
        """Show what was added."""
        if self.tally.stats.predicted_n:
            self._figures.update(figures(self.tally.stats))
            self._body.update(Content(clean(self.text)))

    def part_at(self, place: int) -> None:
        """Mark the text from here on as its own."""
        shared, own = clean(self.text[:place]), clean(self.text[place:])
        self._body.update(Content.assemble(shared, (own, "underline $text-warning")))

    def fail(self, sentence: str) -> None:
        self._figures.update(clean(sentence))


class CompareScreen(Screen[None]):
    """Two columns where there is room, else one above the other; `over` when nothing more will come."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", key_display="Esc", priority=True, id="compare.close")
    ]

    def __init__(self, request: GenerateRequest, drafted: str, ask: Callable[[GenerateRequest], None]) -> None:
        super().__init__()
        self.request = request
        self.ask = ask
        self.plain, self.drafted = Side("plain", speculate=False), Side(drafted, speculate=True)
        self.now = self.plain
        self.over = self.closed = False
        self._verdict = Static(IN_TURN, markup=False, id="verdict")

    def compose(self) -> ComposeResult:
        asked = self.request.messages[-1].content if self.request.messages else ""
        yield Static(one_line(asked), markup=False, id="asked")
        yield Container(self.plain, self.drafted, id="sides")
        yield self._verdict
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.plain.focus()
        self.begin()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < TWO_COLUMNS, "-narrow")

    def begin(self) -> None:
        self.now.begin()
        self.ask(fair(self.request, speculate=self.now.speculate))

    def receive(self, event: OfAnswer) -> None:
        """The next of the engine's events; a screen that was closed only waits for the last."""
        ended = isinstance(event, Done | Failure)
        if self.closed:
            self.over = ended
        elif isinstance(event, Failure):
            self.over = True
            self.now.fail(f"{event.message} {event.hint}".strip())
            self._verdict.update("Nothing was compared.")
        else:
            self.now.add(event)
            if ended:
                self.end_side()

    def follow(self) -> None:
        if not self.closed:
            self.now.follow()

    def end_side(self) -> None:
        self.now.follow()
        if self.now is self.drafted:
            self.over = True
            self.conclude()
        else:
            self.now = self.drafted
            self.begin()

    def conclude(self) -> None:
        """What came of it; the texts' own parts marked."""
        one, other = self.plain.text, self.drafted.text
        if one != other:
            place = parting(one, other)
            self.plain.part_at(place)
            self.drafted.part_at(place)
        self._verdict.update(verdict(self.plain, self.drafted))

    def action_close(self) -> None:
        self.closed = True
        self.dismiss()


def figures(stats: Stats) -> str:
    """The prompt's time is left out: the second finds it read."""
    seconds = stats.predicted_ms / 1000
    return f"{seconds:.2f} s · {stats.predicted_per_second:.1f} tok/s · {stats.predicted_n:,} tok"


def verdict(plain: Side, drafted: Side) -> str:
    """How much faster the second was, by the token, and whether it wrote the same."""
    slow, fast = plain.tally.stats.predicted_per_second, drafted.tally.stats.predicted_per_second
    ratio = f"×{fast / slow:.2f}" if slow and fast else "×–"
    if plain.text == drafted.text:
        return f"{ratio} · the same text"
    place = parting(plain.text, drafted.text)
    here, there = (one_line(side.text[place : place + AROUND]) or "the end" for side in (plain, drafted))
    return f"{ratio} · the texts differ from character {place + 1:,} on: “{here}” against “{there}”"


def parting(one: str, other: str) -> int:
    """The first place where they are not the same."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
