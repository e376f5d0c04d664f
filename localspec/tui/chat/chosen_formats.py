"""The weight format that the user chose for a model in the chat: it stays the model's there, over all starts."""

from __future__ import annotations

from localspec.core import paths
from localspec.core.json_store import JsonStore
from localspec.core.weight_formats import AUTO, LISTED

STORE = JsonStore(paths.chosen_formats_file, str)


def read() -> dict[str, str]:
    """The formats that this version knows. Reads the disk."""
    return {name: quant for name, quant in STORE.read().items() if quant in LISTED}


def keep(name: str, quant: str) -> None:
    """`auto` forgets the choice; a disk that cannot be written costs no more than that. Waits for the disk."""
    if quant == AUTO:
        STORE.remove(name)
    elif quant and read().get(name) != quant:
        STORE.put(name, quant)
