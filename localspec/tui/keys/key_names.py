"""The keys as the user has mapped them, for every text that names one: of an action, and all that the settings change.

Reads bindings. Knows no file of settings and no screen by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from textual.app import App
from textual.binding import Binding, BindingType
from textual.message_pump import MessagePump

from localspec.core.events import Notice
from localspec.tui.keys.keymap import Bound, remap, spelled, twins


class KeyedApp(App[None]):
    """An app whose ids have keys of the user's; `usual_keys` are those without."""

    keys: Mapping[str, tuple[str, ...]] = {}
    usual_keys: Mapping[str, tuple[str, ...]] = {}

    def map_keys(self, known: Mapping[str, Bound], wanted: Mapping[str, str]) -> tuple[Notice, ...]:
        """Sets the key bindings; returns a notice for each that cannot be set."""
        remapped = remap(wanted, known)
        self.set_keymap(remapped.keys)
        self.usual_keys = {name: each.keys for name, each in known.items()}
        self.keys = {**self.usual_keys, **{name: tuple(key.split(",")) for name, key in remapped.keys.items()}}
        return tuple(Notice("warning", "keymap", trouble) for trouble in remapped.troubles)


def keyed(node: MessagePump) -> KeyedApp:
    app = node.app
    assert isinstance(app, KeyedApp)
    return app


def keys_of(node: MessagePump, name: str) -> tuple[str, ...]:
    """All keys of an id, as Textual calls them."""
    return keyed(node).keys[name]


def shown(node: MessagePump, name: str) -> str:
    """All keys of an id, as they stand on a keyboard."""
    return all_spelled(keys_of(node, name))


def all_spelled(keys: Sequence[str]) -> str:
    return " ".join(spelled(key) for key in keys if key not in twins(keys))


def changed(node: MessagePump) -> list[tuple[str, str]]:
    """The keys of each id that has others than usual, and these."""
    usual = keyed(node).usual_keys
    return [
        (shown(node, name), f"{name}, usually {all_spelled(keys)}")
        for name, keys in usual.items()
        if keys_of(node, name) != keys
    ]


def named(node: MessagePump) -> str:
    """Every id with its keys, as one text."""
    return " · ".join(f"{name} {shown(node, name)}" for name in keyed(node).keys)


def rows(node: MessagePump, bindings: Iterable[BindingType]) -> list[tuple[str, str]]:
    """Keys, and what they do; those that do the same in one row. Only what has an id."""
    found: dict[str, list[str]] = {}
    for binding in bindings:
        if isinstance(binding, Binding) and binding.id:
            found.setdefault(binding.description, []).append(shown(node, binding.id))
    return [(" ".join(keys), what) for what, keys in found.items()]


def with_keys(node: MessagePump, text: str) -> str:
    """A text of ours in which an id in braces stands for its first key: `Press {stop}.`"""
    return re.sub(r"\{([a-z.]+)\}", lambda found: spelled(keys_of(node, found[1])[0]), text)
