"""The drafters known for a model besides those of models.toml: the one it was pulled with, and those that an earlier
comparison found fit. Compares nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from localspec.core import paths
from localspec.core.errors import LocalspecError
from localspec.core.json_store import JsonStore
from localspec.engine.drafters.table import MODEL
from localspec.models import hub_cache
from localspec.models.catalog import Catalog, DraftEntry, Entry
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.sandbox_jobs import TRANSLATE
from localspec.runtime.pairs import REMEMBERED, hash_of, is_small, side

PULLED = JsonStore(paths.pulled_pairs_file, str)  # the drafter's name, by the target's repository


@dataclass(frozen=True, slots=True)
class KnownDrafters:
    """`pulled`: came with the model. `compared`: names of smaller models on this machine, found fit before."""

    pulled: DraftEntry | None = None
    compared: tuple[str, ...] = ()


NOTHING = KnownDrafters()


def pulled_draft(entry: Entry, catalog: Catalog) -> DraftEntry | None:
    """The drafter that a model was pulled with; None where it is not on this machine any more."""
    name = PULLED.read().get(hub_cache.fetched_from(entry.path)[0], "")
    with suppress(LocalspecError):
        catalog.resolve(name)
        return DraftEntry(MODEL.name, name)
    return None


class KnownPairs:
    """What is known of the models of one list: every tokenizer is read at most once. `models`: all on this machine."""

    def __init__(self, catalog: Catalog, models: Callable[[], Iterable[Snapshot]]) -> None:
        self._catalog, self._models = catalog, models

    def of(self, entry: Entry, target: Snapshot) -> KnownDrafters:
        return KnownDrafters(pulled_draft(entry, self._catalog), self.compared(target))

    def compared(self, target: Snapshot) -> tuple[str, ...]:
        if not self._fit or (own := self._side(target)) is None:
            return ()
        fit = [one for one, there in self._sides if f"{own} {there}" in self._fit]
        return tuple(one.name for one in fit if is_small(one.total_bytes, target.total_bytes))

    @cached_property
    def _fit(self) -> frozenset[str]:
        """The pairs of tokenizers that were found fit, with the same tokens."""
        return frozenset(
            key for key, verdict in REMEMBERED.read().items() if verdict.ok and verdict.reason != TRANSLATE
        )

    @cached_property
    def _rows(self) -> frozenset[str]:
        return frozenset(one.rpartition(":")[2] for key in self._fit for one in key.split())

    @cached_property
    def _sides(self) -> list[tuple[Snapshot, str]]:
        found = {one.folder: one for one in reversed([*self._models()])}  # by its first name
        return [(one, there) for one in reversed([*found.values()]) if (there := self._side(one)) is not None]

    def _side(self, model: Snapshot) -> str | None:
        """The model's half of a remembered pair; None where no pair has as many rows, before its tokenizer is read."""
        if model.tokenizer_file is None or str(model.vocab_size) not in self._rows:
            return None
        with suppress(LocalspecError, OSError):
            state = model.tokenizer_file.stat()
            return side(tokenizer_hash(model.folder, state.st_size, state.st_mtime_ns), model.vocab_size)
        return None


@lru_cache(maxsize=512)
def tokenizer_hash(folder: Path, _size: int, _written_ns: int) -> str:
    """The hash of a model's tokenizer, read once as long as the file stays as it is."""
    return hash_of(open_snapshot(folder).read_tokenizer())
