"""Which models are on this machine: those of the catalogue, those fetched, and folders that chats were held with.

Reads headers and the list of chats. Knows nothing about torch or how any of it is shown.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from localspec import hub_cache
from localspec.catalog import Catalog, DraftEntry, Entry
from localspec.checkpoint import Snapshot, open_snapshot
from localspec.errors import LocalspecError, NotDownloaded
from localspec.fit import fit_word
from localspec.formats import stored_kind
from localspec.history import peek
from localspec.main_memory import available_bytes

STORED = {"F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16"}
UNREADABLE = "cannot be loaded"  # loading it says why
MOST_CHATS = 200  # that are looked through for folders


@dataclass(frozen=True, slots=True)
class Shelved:
    """`name` loads it. `quant` is how its weights are stored, and before that how they are loaded, if they are; `fit`
    whether they fit."""

    name: str
    quant: str
    num_bytes: int
    fit: str
    drafts: tuple[tuple[str, str], ...]


def on_disk(catalog: Catalog, now: str, *, held_bytes: int = 0, loaded: str = "") -> list[Shelved]:
    """With the model that is loaded `now`, in this format, whose `held_bytes` are given back before another is."""
    free = available_bytes() + held_bytes
    found = []
    for name in dict.fromkeys((*catalog.models, now, *folders_of_chats(catalog))):
        with suppress(NotDownloaded):
            found.append(shelved(name, catalog.resolve(name), free))
    named = {one.name for one in found} | {table.repo for table in catalog.models.values()}
    fetched = [name for name in hub_cache.repositories() if name not in named]
    others = [shelved(name, catalog.resolve(name), free) for name in fetched]
    found += [one for one in others if one.fit != UNREADABLE]  # there are models that write no text, too
    return [as_loaded(one, loaded) if one.name == now else one for one in found]


def as_loaded(model: Shelved, quant: str) -> Shelved:
    return replace(model, quant=f"{quant}, stored {model.quant}") if quant not in ("", model.quant) else model


def shelved(name: str, entry: Entry, free: int) -> Shelved:
    try:
        snapshot = open_snapshot(entry.path, entry.key)
        word = fit_word(snapshot, free)
    except LocalspecError:
        return Shelved(name, "–", 0, UNREADABLE, drafters(entry))
    return Shelved(name, stored(snapshot), snapshot.total_bytes, word, drafters(entry))


def stored(snapshot: Snapshot) -> str:
    """The format of most of its weights."""
    if kind := stored_kind(snapshot.config) or snapshot.stored_as:
        return kind
    sizes: Counter[str] = Counter()
    for info in snapshot.tensors.values():
        sizes[info.dtype] += info.num_bytes
    most = sizes.most_common(1)
    return STORED.get(most[0][0], most[0][0].lower()) if most else "–"


def drafters(entry: Entry) -> tuple[tuple[str, str], ...]:
    """What --draft may say for it, in words: models.toml's drafter first, and none last."""
    found = []
    if entry.draft is not None and entry.draft.kind != "off":
        found.append(("auto", described(entry.draft)))
    found += [(name, f"{name}, {described(draft)}") for name, draft in entry.drafts]
    return (*found, ("off", "off, decode plain"))


def described(draft: DraftEntry) -> str:
    if draft.kind == "early-exit":
        return f"early exit after layer {draft.exit_layer}" if draft.exit_layer else "early exit"
    return f"a smaller model ({Path(str(draft.model)).name})"


def folders_of_chats(catalog: Catalog) -> list[str]:
    """Model folders of recent chats that are still there; a history that cannot be read has none."""
    names = dict.fromkeys(chat.model_key for chat in peek(limit=MOST_CHATS))
    return [name for name in names if name not in catalog.models and Path(name).is_absolute()]
