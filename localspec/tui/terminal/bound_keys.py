"""A widget's own key bindings, run by the widget itself. Textual keeps the bindings that hold now under private names,
and runs those of a widget only when the key has come back from the app."""

from __future__ import annotations

from textual.widget import Widget


async def runs_binding(widget: Widget, key: str) -> bool:
    """Run what the key is bound to there; False if it is bound to nothing, or that could do nothing.

    Left to Textual, letters that were typed after the key would be there first, and a backspace would take one.
    """
    found = (bindings for node, bindings in widget.screen._binding_chain if node is widget)  # none: the focus has left
    for binding in [each for bindings in found for each in bindings.key_to_bindings.get(key, ())]:
        if not binding.priority and await widget.app.run_action(binding.action, widget):
            return True
    return False
