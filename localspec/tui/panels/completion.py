"""The completion list: a few lines above the prompt with what a command may become. Never focused; the prompt asks
it."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.widgets import Static

from localspec.tui.control.commands import Known, Offer, awaited, offers

MOST_ROWS = 8
WIDEST_USAGE = 26
CHOSEN, OTHER = "› ", "  "


class Completion(Static):
    """Follows a text. Open while there is something to choose; the usage of a typed command is only read."""

    def __init__(self, known: Callable[[], Known]) -> None:
        super().__init__(markup=False)
        self._known = known
        self.display = False
        self._text = ""
        self._offers: tuple[Offer, ...] = ()
        self._place: int | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._offers)

    @property
    def chosen(self) -> Offer | None:
        return None if self._place is None else self._offers[self._place]

    @property
    def best(self) -> Offer | None:
        """The chosen one, or the first."""
        return self._offers[self._place or 0] if self._offers else None

    def follow(self, text: str) -> None:
        """A text that has been followed already opens nothing again. An argument not begun is not chosen by itself."""
        if text == self._text:
            return
        self._text, self._offers = text, offers(text, self._known())
        self._place = 0 if self._offers and not text.endswith(" ") else None
        self._draw()

    def move(self, direction: int) -> bool:
        """Choose the next one or the one before, if there is a choice."""
        if self._offers:
            before = self._place if self._place is not None else min(-direction, 0)
            self._place = (before + direction) % len(self._offers)
            self._draw()
        return self.is_open

    def close(self) -> bool:
        """Closes the list until something else is typed; returns whether it was open."""
        was_open, self._offers, self._place = self.is_open, (), None
        self._draw()
        return was_open

    def _draw(self) -> None:
        lines = self._rows() if self._offers else self._usage()
        if lines or self.display:  # else every key would lay out the screen
            self.display = bool(lines)
            self.update(Content("\n").join(lines))

    def _rows(self) -> list[Content]:
        first = max(0, (self._place or 0) - MOST_ROWS + 1)
        shown = list(enumerate(self._offers))[first : first + MOST_ROWS]
        width = min(WIDEST_USAGE, max(len(offer.usage) for _, offer in shown))
        return [row(offer, width, chosen=place == self._place) for place, offer in shown]

    def _usage(self) -> list[Content]:
        command = awaited(self._text)
        return [Content.styled(f"{OTHER}{command.usage}  {command.says}", "$foreground-muted")] if command else []


def row(offer: Offer, width: int, *, chosen: bool) -> Content:
    """The argument and the help are quieter than the name."""
    name, space, argument = offer.usage.partition(" ")
    rest = f"{space}{argument}".ljust(width - len(name)) + f"  {offer.says}"
    return Content.assemble(
        (CHOSEN if chosen else OTHER, "bold"),
        (name, "bold $text-accent" if chosen else ""),
        (rest, "$foreground-muted"),
    )
