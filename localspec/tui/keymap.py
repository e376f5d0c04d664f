"""Which keys do what once the user has said so: checked, two on one key settled, troubles in words. No widgets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from textual.binding import Binding, BindingType
from textual.keys import Keys, key_to_character

from localspec.config.tables import SendKey
from localspec.sanitize import one_line
from localspec.tui.commands import nearest

SEND_KEYS: dict[SendKey, dict[str, str]] = {
    "enter": {},
    "ctrl+j": {"send": "ctrl+j", "newline": "enter,alt+enter,shift+enter"},
}
NO_KEY = "unbound"  # no terminal sends it, and the list of keys shows it
MODIFIERS = {"ctrl", "alt", "shift", "super", "meta", "hyper"}
NAMED = {key.value.rpartition("+")[2] for key in Keys if not key.value.startswith("<")}
SAME_IN_TERMINALS = {"ctrl+m": "Enter", "ctrl+i": "Tab"}
SHIFTED = 12  # a terminal sends Shift+F3 as F15
SPELLED = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn", "delete": "Del", "backspace": "⌫", "slash": "/"}
SPELLED |= {"up": "↑", "down": "↓", "left": "←", "right": "→"}


@dataclass(frozen=True, slots=True)
class Keymap:
    """`keys` of an id are as Textual takes them: joined by commas. `troubles` are sentences."""

    keys: dict[str, str]
    troubles: tuple[str, ...] = ()


def default_keys(bindings: Iterable[BindingType]) -> dict[str, tuple[str, ...]]:
    """Of every binding that has an id."""
    named = (binding for binding in bindings if isinstance(binding, Binding) and binding.id)
    return {str(binding.id): tuple(binding.key.split(",")) for binding in named}


def remap(wanted: Mapping[str, str], known: Mapping[str, tuple[str, ...]]) -> Keymap:
    """What is wanted, as far as there is such an id and such a key. A key that is given to one id leaves all others."""
    troubles: list[str] = []
    given = {name: pressable(name, keys, troubles) for name, keys in wanted.items() if exists(name, known, troubles)}
    given = {name: keys for name, keys in given.items() if keys}
    owner: dict[str, str] = {}
    for name, keys in given.items():
        for key in keys:
            if owner.setdefault(key, name) != name:
                troubles.append(f"[keymap] {name}: {key} is {owner[key]}'s already.")
    for name in [name for name in known if name not in given]:
        if lost := [key for key in known[name] if key in owner]:
            given[name] = [key for key in known[name] if key not in owner]
            troubles += [f"[keymap] {owner[key]}: {key} no longer means {name}." for key in lost]
    kept = {name: [key for key in keys if owner.get(key, name) == name] for name, keys in given.items()}
    return Keymap({name: ",".join(keys) or NO_KEY for name, keys in kept.items()}, tuple(troubles))


def exists(name: str, known: Mapping[str, object], troubles: list[str]) -> bool:
    if name not in known:
        troubles.append(f"[keymap] {one_line(name)}: there is no such id.{nearest(name, tuple(known))}")
    return name in known


def pressable(name: str, keys: str, troubles: list[str]) -> list[str]:
    """Those that can be bound, each as a terminal may send it."""
    found: list[str] = []
    for key in (key.strip().lower() for key in keys.split(",")):
        if fault := fault_of(key):
            troubles.append(f"[keymap] {name}: {one_line(key)} {fault}.")
        else:
            found.append(key)
    return [*found, *twins(found)]


def twins(keys: Iterable[str]) -> list[str]:
    """What else a terminal may send for keys such as Shift+F3."""
    shifted = (re.fullmatch(r"shift\+f(\d+)", key) for key in keys)
    return [f"f{int(found[1]) + SHIFTED}" for found in shifted if found]


def spelled(key: str) -> str:
    """As it stands on a keyboard."""
    return key if len(key) == 1 else "+".join(SPELLED.get(part, part.capitalize()) for part in key.split("+"))


def fault_of(key: str) -> str:
    """Why a key cannot be bound, if it cannot."""
    *modifiers, base = key.split("+")
    character = key_to_character(base)
    if key in SAME_IN_TERMINALS:
        return f"is {SAME_IN_TERMINALS[key]} in a terminal"
    if not MODIFIERS.issuperset(modifiers) or (base not in NAMED and character is None):
        return "is no key"
    if character is not None and character.isprintable() and {"shift"}.issuperset(modifiers):
        return "is for writing"
    return ""
