"""The key bindings as the user's file has them: checked, two ids on one key settled, troubles in words. No widgets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from textual.binding import Binding, BindingType
from textual.keys import Keys, key_to_character

from localspec.config.tables import SendKey
from localspec.core.sanitize import one_line
from localspec.tui.control.command_search import did_you_mean

SEND_KEYS: dict[SendKey, dict[str, str]] = {
    "enter": {},
    "ctrl+j": {"send": "ctrl+j", "newline": "enter,alt+enter,shift+enter"},
}
NO_KEY = "unbound"  # no terminal sends it, and the list of keys shows it
MODIFIERS = {"ctrl", "alt", "shift", "super", "meta", "hyper"}
NAMED = {key.value.rpartition("+")[2] for key in Keys if not key.value.startswith("<")}
SAME_IN_TERMINALS = {"ctrl+m": "Enter", "ctrl+i": "Tab"}
FUNCTION_KEYS = 12
SHIFTED = (12, 10)  # terminals send Shift+F3 as F15 or F13; Shift+F1 as F13, or as F11, which is a key of its own
SPELLED = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "delete": "Del", "backspace": "⌫"}
SPELLED |= {"slash": "/", "backslash": "\\", "minus": "-", "plus": "+", "at": "@", "underscore": "_"}
SPELLED |= {"up": "↑", "down": "↓", "left": "←", "right": "→"}


@dataclass(frozen=True, slots=True)
class Bound:
    """The keys of an id before the user changes them. `heard` is where, as a path: `chat.prompt` is inside of `chat`,
    and what is heard in one is heard in the other. `writes`: text is typed there, so that no letter can be a key.
    """

    keys: tuple[str, ...]
    heard: str = ""
    writes: bool = True

    def meets(self, other: Bound) -> bool:
        """Whether one press may be heard by both."""
        ours, theirs = self.path, other.path
        return ours[: len(theirs)] == theirs[: len(ours)]

    @property
    def path(self) -> list[str]:
        return self.heard.split(".") if self.heard else []


@dataclass(frozen=True, slots=True)
class Keymap:
    """`keys` of an id are as Textual takes them: joined by commas. `troubles` are sentences."""

    keys: dict[str, str]
    troubles: tuple[str, ...] = ()


def default_keys(bindings: Iterable[BindingType]) -> dict[str, tuple[str, ...]]:
    """The keys of every binding that has an id."""
    named = (binding for binding in bindings if isinstance(binding, Binding) and binding.id)
    return {str(binding.id): tuple(binding.key.split(",")) for binding in named}


def bound(bindings: Iterable[BindingType], heard: str = "", *, writes: bool = True) -> dict[str, Bound]:
    """Every id among them."""
    return {name: Bound(keys, heard, writes) for name, keys in default_keys(bindings).items()}


def remap(wanted: Mapping[str, str], known: Mapping[str, Bound]) -> Keymap:
    """The keymap with the `wanted` keys, as far as the ids and keys exist. A key that is given to one id is taken
    from all others that would receive it."""
    troubles: list[str] = []
    asked = [name for name in wanted if exists(name, known, troubles)]
    pressed = {name: pressable(name, wanted[name], troubles, writes=known[name].writes) for name in asked}
    given: dict[str, list[str]] = {}
    for name, keys in pressed.items():
        if keys:
            owners = {key: owner(key, name, given, known) for key in keys}
            troubles += [
                f"[keymap] {name}: {key} already belongs to {first}." for key, first in owners.items() if first
            ]
            given[name] = [key for key, first in owners.items() if not first]
    for name in [name for name in known if name not in given]:
        takers = {key: owner(key, name, given, known) for key in known[name].keys}
        troubles += [f"[keymap] {taker}: {key} no longer means {name}." for key, taker in takers.items() if taker]
        if any(takers.values()) or shares_key(name, given, known):
            given[name] = [key for key, taker in takers.items() if not taker]
    return Keymap({name: ",".join(keys) or NO_KEY for name, keys in given.items()}, tuple(troubles))


def owner(key: str, name: str, given: Mapping[str, list[str]], known: Mapping[str, Bound]) -> str:
    """The id that has been given this key where this one would hear it."""
    return next((one for one, keys in given.items() if key in keys and known[one].meets(known[name])), "")


def shares_key(name: str, given: Mapping[str, list[str]], known: Mapping[str, Bound]) -> bool:
    """Whether the id shares a key with one whose keys change: Textual would take the key from both."""
    return any(
        known[one].heard == known[name].heard and {*known[one].keys} & {*known[name].keys}
        for one in given
        if one != name
    )


def exists(name: str, known: Mapping[str, object], troubles: list[str]) -> bool:
    if name not in known:
        troubles.append(f"[keymap] {one_line(name)}: there is no such id.{did_you_mean(name, known)}")
    return name in known


def pressable(name: str, keys: str, troubles: list[str], *, writes: bool) -> list[str]:
    """The keys among these that can be bound, each as a terminal may send it; adds a sentence to `troubles` for
    others."""
    found: list[str] = []
    for key in (key if len(key) == 1 else key.lower() for key in map(str.strip, keys.split(","))):  # "U" is not "u"
        if fault := fault_of(key, writes=writes):
            troubles.append(f"[keymap] {name}: {one_line(key)} {fault}.")
        else:
            found.append(key)
    named = [binding.key for binding in Binding.make_bindings(Binding(key, "") for key in found)]  # "?" as its name
    return [*named, *twins(named)]


def twins(keys: Iterable[str]) -> list[str]:
    """Other names under which a terminal may send keys such as Shift+F3."""
    shifted = [int(found[1]) for key in keys if (found := re.fullmatch(r"shift\+f(\d+)", key))]
    return [f"f{number + more}" for number in shifted for more in SHIFTED if number + more > FUNCTION_KEYS]


def spelled(key: str) -> str:
    """The key's name as it stands on a keyboard."""
    character = key_to_character(key)
    if character is not None and character.isprintable() and not character.isspace():
        return character
    return "+".join(SPELLED.get(part, part.capitalize()) for part in key.split("+"))


def fault_of(key: str, *, writes: bool) -> str:
    """The reason why a key cannot be bound; "" if it can."""
    *modifiers, base = key.split("+")
    character = key_to_character(base)
    if key in SAME_IN_TERMINALS:
        return f"is {SAME_IN_TERMINALS[key]} in a terminal"
    if not MODIFIERS.issuperset(modifiers) or (base not in NAMED and character is None):
        return "is not a key"
    if writes and character is not None and character.isprintable() and {"shift"}.issuperset(modifiers):
        return "is needed for typing"
    return ""
