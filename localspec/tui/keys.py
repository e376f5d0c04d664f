"""The user's own keys: config.toml's [keymap] and send_key, checked against the keys there are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from textual.binding import Binding, BindingType

from localspec.config.tables import Config
from localspec.errors import UsageError

TURNED = {"send": "ctrl+j", "newline": "enter,alt+enter,shift+enter"}  # send_key = "ctrl+j"
EDIT = "Edit it: localspec config edit"


def keymap(config: Config, bindings: Iterable[BindingType]) -> dict[str, str]:
    """As Textual takes it: ids to keys. UsageError for an id that nobody has, and a key that two would share."""
    ids = {binding.id: binding.key for binding in bindings if isinstance(binding, Binding) and binding.id}
    chosen = (TURNED if config.chat.send_key == "ctrl+j" else {}) | config.keymap
    for name, keys in chosen.items():
        if name not in ids:
            near = difflib.get_close_matches(name, ids, n=1)
            known = f"did you mean '{near[0]}'" if near else f"there are {', '.join(sorted(ids))}"
            raise UsageError(f"config.toml: keymap has no '{name}'; {known}.", hint=EDIT)
        if not all(key.strip() for key in keys.split(",")):
            raise UsageError(f"config.toml: keymap.{name} has no key.", hint=EDIT)
    taken: dict[str, str] = {}
    for name, keys in (ids | chosen).items():
        for key in keys.split(","):
            if (other := taken.setdefault(key.strip(), name)) != name:
                raise UsageError(f"config.toml: the key {key.strip()} is both {other} and {name}.", hint=EDIT)
    return {name: ",".join(key.strip() for key in keys.split(",")) for name, keys in chosen.items()}
