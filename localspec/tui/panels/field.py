"""A line to write in, wherever there is one. Knows what a key does there, and nothing of what is written."""

from __future__ import annotations

from textual import events
from textual.widgets import Input

from localspec.tui.terminal.bound_keys import runs_binding
from localspec.tui.terminal.written import unprintable

LONGEST = 1000  # letters; a longer paste is a mistake


class Field(Input):
    """Takes what is typed in the order it was typed."""

    async def on_key(self, event: events.Key) -> None:
        """Runs before the input's own."""
        if not event.is_printable and await runs_binding(self, event.key):
            event.stop()
            event.prevent_default()
        elif typed := unprintable(event):
            event.stop()
            event.prevent_default()
            self.replace(typed, *self.selection)
