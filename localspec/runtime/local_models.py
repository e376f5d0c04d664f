"""Lists the models on this machine: the catalogue's, downloaded ones, folders of recent chats, and other programs'
GGUF files.

Reads headers and the list of chats. Knows nothing about torch or how any of it is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from localspec.core.errors import CheckpointError, LocalspecError, NotDownloaded
from localspec.core.main_memory import available_bytes
from localspec.core.requests import DraftRequest
from localspec.engine.drafters.table import LOOKUP, MODEL, summary
from localspec.engine.generic_arch import read_any
from localspec.history import peek
from localspec.loading.plan import fit_word
from localspec.models import hub_cache
from localspec.models.catalog import Catalog, Entry
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.gguf import stores
from localspec.models.gguf.header import read_gguf
from localspec.models.gguf.stores import GgufModel
from localspec.models.prequantised.stored_format import stored_format
from localspec.runtime.known_pairs import NOTHING, KnownDrafters, KnownPairs
from localspec.runtime.origins import UNKNOWN, ModelOrigin, origin_of

STORED = {"F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16"}
UNREADABLE = "cannot be loaded"  # loading it says why
MOST_CHATS = 200  # that are searched for folders


@dataclass(frozen=True, slots=True)
class ListedModel:
    """`name` loads it. `quant` is how its weights are stored, and before that how they are loaded, if they are; `fit`
    whether they fit. `used_at`: when a chat last had it; "" for never."""

    name: str
    quant: str
    num_bytes: int
    fit: str
    drafts: tuple[tuple[str, str], ...]
    origin: ModelOrigin = UNKNOWN
    used_at: str = ""


def on_disk(catalog: Catalog, now: str, *, held_bytes: int = 0, loaded: str = "") -> Iterator[ListedModel]:
    """Lists them, with the model that is loaded `now` in this format; its `held_bytes` are freed before another is. One
    after the other, as they are found: the headers of many take a while."""
    used = last_used()
    for model in found_on_disk(catalog, now, available_bytes() + held_bytes, loaded=loaded):
        yield replace(model, used_at=used.get(model.name, ""))


def in_repository(
    catalog: Catalog, repo: str, now: str, *, held_bytes: int = 0, loaded: str = ""
) -> Iterator[ListedModel]:
    """Lists what a fetched repository has, as `on_disk` does: the headers of no other model are read."""
    used, free, pairs = last_used(), available_bytes() + held_bytes, known_pairs(catalog)
    known = catalog.of_repository(repo)
    name = known[0] if known and now != repo else repo
    found = [of_another(one, free, pairs) for one in stores.in_repository(repo)]
    with suppress(NotDownloaded):
        found = found or [listed_model(name, catalog.resolve(name), free, pairs)]
    for model in found:
        if model is not None and model.fit != UNREADABLE:
            listed = as_loaded(model, loaded) if model.name == now else model
            yield replace(listed, used_at=used.get(model.name, ""))


def found_on_disk(catalog: Catalog, now: str, free: int, *, loaded: str) -> Iterator[ListedModel]:
    """`free`: bytes of memory."""
    pairs, named = known_pairs(catalog), set[str]()
    files = {file_of(now, catalog)}  # each is listed once, as the user calls it
    keys = [key for key, table in catalog.models.items() if now == key or now != table.repo]
    for name in dict.fromkeys((*keys, now, *folders_of_chats(catalog))):
        with suppress(NotDownloaded):
            entry = catalog.resolve(name)
            if name == now or entry.path not in files:
                model = listed_model(name, entry, free, pairs)
                named.add(name)
                files.add(file_of(name, catalog))
                yield as_loaded(model, loaded) if name == now else model
    named |= {table.repo for table in catalog.models.values() if table.repo}
    for name in fetched():
        if name not in named:
            model = listed_model(name, catalog.resolve(name), free, pairs)
            if model.fit != UNREADABLE:  # there are models that write no text, too
                yield model
    for one in stores.kept():
        if one.file not in files and (found := of_another(one, free, pairs)):
            yield found


def file_of(name: str, catalog: Catalog) -> Path | None:
    """The GGUF file that a name means; None for a folder, and for what is not here."""
    with suppress(LocalspecError):
        path = catalog.resolve(name).path
        return path if path.is_file() else None
    return None


def names() -> tuple[str, ...]:
    """Names of downloaded repositories, without reading headers."""
    return (*fetched(), *(one.name for one in stores.kept()))


def fetched() -> list[str]:
    """Repositories in Hugging Face's layout; those of GGUF files are among what other programs keep."""
    folders = {name: hub_cache.snapshot(name) for name in hub_cache.repositories()}
    return [name for name, folder in folders.items() if folder and (folder / "config.json").exists()]


def of_another(one: GgufModel, free: int, pairs: KnownPairs) -> ListedModel | None:
    """A file of another program; None if it is only a part of a model."""
    entry = Entry(one.name, one.name, one.file)
    with suppress(LocalspecError, OSError):
        state = one.file.stat()
        model = inspected(one, state.st_size, state.st_mtime_ns)
        if model is None:
            return None
        if isinstance(model, Snapshot):
            drafts = drafters(entry, pairs.of(entry, model), looks_up=can_rewind(model))
            origin = origin_of(one.name, one.file)
            return ListedModel(one.name, stored(model), model.total_bytes, fit_word(model, free), drafts, origin)
    return ListedModel(one.name, "–", 0, UNREADABLE, drafters(entry), origin_of(one.name, one.file))


@lru_cache(maxsize=512)
def inspected(one: GgufModel, _size: int, _written_ns: int) -> Snapshot | str | None:
    """The model as its headers say, read once as long as the file stays as it is; why it cannot be loaded; None for
    what need not be."""
    try:
        return open_snapshot(one.file, one.name)
    except LocalspecError as fault:
        return fault.message if writes_text(one.file) else None


def writes_text(file: Path) -> bool:
    """Whether a file that cannot be loaded should be: not what sees for a model, changes one, or makes embeddings."""
    try:
        metadata = read_gguf(file).metadata
    except CheckpointError:
        return True
    architecture = str(metadata.get("general.architecture"))
    pools = f"{architecture}.pooling_type" in metadata
    return metadata.get("general.type", "model") == "model" and architecture != "clip" and not pools


def as_loaded(model: ListedModel, quant: str) -> ListedModel:
    return replace(model, quant=f"{quant}, stored {model.quant}") if quant not in ("", model.quant) else model


def listed_model(name: str, entry: Entry, free: int, pairs: KnownPairs | None = None) -> ListedModel:
    """`pairs`: what is known of drafters beside models.toml."""
    try:
        snapshot = open_snapshot(entry.path, entry.key)
        word = fit_word(snapshot, free)
    except LocalspecError:
        return ListedModel(name, "–", 0, UNREADABLE, drafters(entry), origin_of(name, entry.path))
    drafts = drafters(entry, pairs.of(entry, snapshot) if pairs else NOTHING, looks_up=can_rewind(snapshot))
    return ListedModel(name, stored(snapshot), snapshot.total_bytes, word, drafts, origin_of(name, entry.path))


def stored(snapshot: Snapshot) -> str:
    """The format of most of its weights."""
    if kind := stored_format(snapshot.config) or snapshot.stored_as:
        return kind
    sizes: Counter[str] = Counter()
    for info in snapshot.tensors.values():
        sizes[info.dtype] += info.num_bytes
    most = sizes.most_common(1)
    return STORED.get(most[0][0], most[0][0].lower()) if most else "–"


def can_rewind(model: Snapshot) -> bool:
    """Whether anything can draft for it."""
    with suppress(LocalspecError):
        return read_any(model.config).can_rewind
    return False


def drafters(entry: Entry, known: KnownDrafters = NOTHING, *, looks_up: bool = False) -> tuple[tuple[str, str], ...]:
    """What --draft takes for the model, with a description: models.toml's drafter first, else the one it was pulled
    with, else look-up where it `looks_up`; then others that are known; "off" last."""
    found, usual, pulled = [], entry.draft or known.pulled, known.pulled
    if usual is not None and usual.kind != "off":
        found.append(("auto", summary(usual.request)))
    elif usual is None and looks_up:
        found.append(("auto", LOOKUP.summary("")))
    found += [(name, summary(draft.request)) for name, draft in entry.drafts]
    named = dict.fromkeys((*([str(pulled.model)] if pulled else []), *known.compared))
    others = [name for name in named if usual is None or name != usual.model]
    found += [(name, summary(DraftRequest(MODEL.name, name))) for name in others]
    return (*found, ("off", "decode plain"))


def known_pairs(catalog: Catalog) -> KnownPairs:
    return KnownPairs(catalog, partial(snapshots, catalog))


def snapshots(catalog: Catalog) -> Iterator[Snapshot]:
    """Every model on this machine that can be opened, and is of a kind that can be loaded."""
    for name in dict.fromkeys((*catalog.models, *names())):
        with suppress(LocalspecError):
            model = open_snapshot(catalog.resolve(name).path, name)
            read_any(model.config)
            yield model


def own_drafts(entry: Entry) -> Iterator[Snapshot]:
    """The draft models that come with a model, by the names that models.toml gives them there."""
    for name, draft in entry.drafts:
        if draft.folder is not None:
            with suppress(LocalspecError):
                yield open_snapshot(draft.folder, name)


def folders_of_chats(catalog: Catalog) -> list[str]:
    """Model folders of recent chats that are still there; a history that cannot be read has none."""
    names = dict.fromkeys(chat.model_key for chat in peek(limit=MOST_CHATS))
    return [name for name in names if name not in catalog.models and Path(name).is_absolute()]


def last_used() -> dict[str, str]:
    """The time of each model's last chat, by the names that load it."""
    used, chats = dict[str, str](), peek()
    is_by_path = any(chat.model_key.startswith(f"{stores.HUGGING_FACE}:") for chat in chats)
    names = {one.by_path: one.name for one in stores.kept()} if is_by_path else {}
    for chat in chats:
        for name in {chat.model_key, names.get(chat.model_key, chat.model_key)}:
            used[name] = max(used.get(name, ""), chat.updated_at)
    return used
