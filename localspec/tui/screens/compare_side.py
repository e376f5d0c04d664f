"""One of the answers that are compared."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from localspec.core.events import Done, Prefill, Stats, Step, Text, Waiting
from localspec.core.sanitize import clean, one_line
from localspec.runtime.stats import Tally
from localspec.tui.panels.stats_line import waiting_words
from localspec.tui.screens.compare_methods import CompareMethod


class Side(Vertical):
    """One of the two answers, as it comes: who drafts and the figures, which stay in sight, and its text below."""

    def __init__(self, way: CompareMethod) -> None:
        super().__init__()
        self.way = way
        self.text = ""
        self.tally = Tally()
        self._label = Static(one_line(way.name), markup=False, classes="speaker")
        self._figures = Static("waiting", markup=False, classes="figures")
        self._body = Static(markup=False)
        self.words = VerticalScroll(Vertical(self._body))

    def compose(self) -> ComposeResult:
        yield from (self._label, self._figures, self.words)

    def on_mount(self) -> None:
        self.words.anchor()

    def begin(self) -> None:
        self.tally.begin()
        self._figures.update("reading prompt")

    def add(self, event: Waiting | Prefill | Step | Text | Done) -> None:
        if isinstance(event, Waiting):
            self._figures.update(waiting_words(event))
        self.tally.add(event)
        self.text += event.text if isinstance(event, Step | Text) else ""

    def follow(self) -> None:
        """Show what was added."""
        if self.tally.stats.predicted_n:
            self._figures.update(figures(self.tally.stats))
            self._body.update(Content(clean(self.text)))

    def rest(self) -> None:
        """Ends the text: it scrolls to its beginning, unless the user has scrolled already."""
        followed = self.words.scroll_y >= self.words.max_scroll_y
        self.words.anchor(False)
        if followed:
            self.words.scroll_home(animate=False)

    def part_at(self, position: int) -> None:
        """Mark the text from here on as its own."""
        shared, own = clean(self.text[:position]), clean(self.text[position:])
        self._body.update(Content.assemble(shared, (own, "underline $text-warning")))

    def fail(self, sentence: str) -> None:
        self._figures.update(clean(sentence))


def figures(stats: Stats) -> str:
    """The prompt's time is left out: the second finds it read."""
    seconds = stats.predicted_ms / 1000
    return f"{seconds:.2f} s · {stats.predicted_per_second:.1f} tok/s · {stats.predicted_n:,} tok"
