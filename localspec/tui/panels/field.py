"""A line to write in, wherever there is one. Knows what a key does there, and nothing of what is written."""

from __future__ import annotations

from textual import events
from textual.widget import Widget
from textual.widgets import Input

LONGEST = 1000  # letters; a longer paste is a mistake


async def runs_binding(widget: Widget, key: str) -> bool:
    """Run what the key is bound to there; False if it is bound to nothing, or that could do nothing.

    Textual does so for a key that a widget binds only when it has come back from the app: letters that were typed after
    it would be there first, and a backspace would take one.
    """
    found = (bindings for node, bindings in widget.screen._binding_chain if node is widget)  # none: the focus has left
    for binding in [each for bindings in found for each in bindings.key_to_bindings.get(key, ())]:
        if not binding.priority and await widget.app.run_action(binding.action, widget):
            return True
    return False


class Field(Input):
    """Takes what is typed in the order it was typed."""

    async def on_key(self, event: events.Key) -> None:
        """Runs before the input's own."""
        if not event.is_printable and await runs_binding(self, event.key):
            event.stop()
            event.prevent_default()
