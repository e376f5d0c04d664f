"""The known models: the packaged models.toml, the user's own over it, downloaded models, those of other programs, and
any folder or GGUF file.

Resolves a name to an Entry with a folder or file on this machine. Knows nothing about the network, the files' contents
or torch.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal  # Any: TOML before it is checked

import msgspec

from localspec.core import paths
from localspec.core.errors import CatalogError, NotDownloaded
from localspec.core.events import DraftLength
from localspec.core.plain_file import plain
from localspec.core.requests import MAX_DRAFT, DraftRequest, SamplingOptions
from localspec.core.strict_toml import shallow
from localspec.core.weight_formats import ListedFormat
from localspec.models import hub_cache
from localspec.models.gguf import stores
from localspec.models.gguf.header import name_of

SCHEMA_VERSION = 1
MOST_BYTES = 1 << 20
LONGEST_FAULT = 300  # characters of a file's fault in a message
NAME = r"^\w[\w.:+-]{0,99}$"
NAME_WORDS = "a name of letters, digits and any of _ . : + -"
ELSE = "Use the built-in model, guide, or a model's folder or GGUF file: ./FOLDER or ./FILE.gguf."
EDIT = "Edit the file and try again."
HELD = "Give its folder or GGUF file: ./FOLDER or ./FILE.gguf."
LISTED = "List the models on this machine: Ctrl+O in the chat."

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
Drafted = Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAFT)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Context = Annotated[int, msgspec.Meta(ge=2)]


class DraftTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[models.KEY.draft] and [models.KEY.drafts.NAME] as written. Which kinds there are, the engine's table says."""

    kind: str
    model: str | None = None
    exit_layer: Count | None = None
    k: Drafted | Literal["auto"] = "auto"


class FoldingTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[models.KEY.folding]: corrects what the user types, by the `words` of a file in the model's folder; `sums`
    replaces a bare sum."""

    words: Annotated[str, msgspec.Meta(pattern=r"^[^\x00]+$")]
    sums: str = ""


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[models.KEY] as written, with exactly one of repo and path. `quant`, `ctx`, `system`, `preset` and `template` are
    defaults for `chat` and `run`."""

    repo: str | None = None
    path: str | None = None
    name: str | None = None
    aliases: tuple[Name, ...] = ()
    quant: ListedFormat | None = None
    ctx: Context | None = None
    system: str | None = None
    preset: str | None = None
    template: str | None = None
    sampling: SamplingOptions = SamplingOptions()
    folding: FoldingTable | None = None
    draft: DraftTable | None = None
    drafts: dict[Name, DraftTable] = {}


class CatalogFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """models.toml as written."""

    schema_version: int
    models: dict[Name, ModelTable] = {}


TABLES = (CatalogFile, ModelTable, FoldingTable, DraftTable, SamplingOptions)
FIELDS = sorted({name for table in TABLES for name in table.__struct_fields__})


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """The drafter of a model. A draft model has a `folder`, or names a `model` that the catalogue knows."""

    kind: str
    model: str | None = None
    folder: Path | None = None
    exit_layer: int | None = None
    k: DraftLength = "auto"

    @property
    def request(self) -> DraftRequest:
        """The request that --draft would make."""
        return DraftRequest(self.kind, self.model or (str(self.exit_layer) if self.exit_layer else ""))


@dataclass(frozen=True, slots=True)
class Entry:
    """A model that can be loaded from `path`. `draft` None: the catalogue names no drafter."""

    key: str
    name: str
    path: Path
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    draft: DraftEntry | None = None
    drafts: tuple[tuple[str, DraftEntry], ...] = ()
    quant: ListedFormat | None = None
    ctx: int | None = None
    system: str | None = None
    preset: str | None = None
    template: str | None = None
    folding: FoldingTable | None = None

    def named_draft(self, name: str) -> DraftEntry | None:
        """The alternative draft that models.toml calls `name`."""
        return dict(self.drafts).get(name)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The known models, in the file's order."""

    models: dict[str, ModelTable]

    @classmethod
    def load(cls, file: Path | None = None) -> Catalog:
        """Loads this models.toml; by default the packaged one and the user's own over it."""
        source = file or paths.packaged("models.toml")
        found, own = _read(source), None if file else _own_file()
        if own is None:
            return cls(_checked(found, source))
        return cls(_checked(_over(_read(own), found, own.parent), own))

    def resolve(self, name: str) -> Entry:
        """The Entry of a key, an alias, a folder, a GGUF file, a cached repository or a model of another program;
        NotDownloaded for anything else."""
        for key, table in self.models.items():
            if name in (key, *table.aliases):
                return _entry(key, table)
        return self._folder(name)

    def lasting_name(self, name: str) -> str:
        """A name that stays valid in any folder: a key, a repository, or an absolute path."""
        entry = self.resolve(name)
        is_path = entry.key not in self.models and os.path.exists(paths.expanded(entry.key))
        return str(entry.path.absolute()) if is_path else entry.key

    def _folder(self, name: str) -> Entry:
        path = paths.expanded(name)
        if name and os.path.isdir(path):  # False, too, for what cannot be a path
            return Entry(key=name, name=path.absolute().name, path=path)
        if is_gguf(name, path):
            return Entry(key=name, name=name_of(path), path=path)
        if found := hub_cache.snapshot(name) or stores.find(name):
            return Entry(key=name, name=name, path=found)
        if name.startswith((".", "~", "/")) or "\\" in name:
            raise NotDownloaded(f"There is no folder or file {name[:200]}.", hint=ELSE)
        if name.partition(":")[0] in stores.STORES:
            near = difflib.get_close_matches(name, [one.name for one in stores.kept()], n=1)
            raise NotDownloaded(f"'{name[:200]}' is not on this machine" + meant(near), hint=LISTED)
        if "/" in name:
            raise NotDownloaded(f"'{name[:200]}' is not on this machine.", hint=HELD)
        known = [word for key, table in self.models.items() for word in (key, *table.aliases)]
        near = difflib.get_close_matches(name, known, n=1)
        raise NotDownloaded(f"There is no model '{name[:200]}'" + meant(near), hint=ELSE)


def meant(near: Sequence[str]) -> str:
    """The end of a sentence about an unknown name: a suggestion, if there is one."""
    return f"; did you mean '{near[0]}'?" if near else "."


def is_gguf(name: str, path: Path) -> bool:
    """True if the name means this file: it ends in .gguf, or is a path, since Ollama's files have no ending."""
    return os.path.exists(path) and (path.suffix.lower() == ".gguf" or path.name != name)


def _entry(key: str, table: ModelTable) -> Entry:
    path = _shipped(table.path) if table.path is not None else hub_cache.snapshot(table.repo or "")
    if path is None:
        raise NotDownloaded(f"'{key}' ({table.repo}) is not on this machine.", hint=HELD)
    return Entry(
        key=key,
        name=table.name or key,
        path=path,
        sampling=table.sampling,
        draft=_draft(table.draft) if table.draft else None,
        drafts=tuple((name, _draft(draft)) for name, draft in table.drafts.items()),
        quant=table.quant,
        ctx=table.ctx,
        system=table.system,
        preset=table.preset,
        template=table.template,
        folding=table.folding,
    )


def _draft(table: DraftTable) -> DraftEntry:
    folder = _shipped(table.model) if table.model else None
    found = folder is not None and os.path.exists(folder)
    return DraftEntry(table.kind, table.model, folder if found else None, table.exit_layer, table.k)


def _shipped(name: str) -> Path:
    """A path in models.toml: absolute, from the user's home, or among the packaged files."""
    path = paths.expanded(name)
    return path if path.is_absolute() else paths.packaged(name)


def _own_file() -> Path | None:
    with suppress(ImportError):  # platformdirs may be missing on a machine that is only benchmarked
        return file if os.path.lexists(file := paths.models_file()) else None
    return None


def _read(source: Path) -> dict[str, Any]:
    """Reads a models.toml, unchecked."""
    try:
        if plain(source).stat().st_size > MOST_BYTES:
            raise CatalogError(f"{source} is too large: at most {MOST_BYTES:,} bytes are read.", hint=EDIT)
        found: dict[str, Any] = msgspec.toml.decode(shallow(source.read_text(encoding="utf-8")))
        return found
    except OSError as error:
        raise CatalogError(f"{source} cannot be read ({error.strerror or error}).", hint=EDIT) from error
    except RecursionError as error:
        raise CatalogError(f"{source} is nested too deep.", hint=EDIT) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{source}: {_explain(str(error))}.", hint=EDIT) from error


def _checked(found: Mapping[str, Any], source: Path) -> dict[str, ModelTable]:
    try:
        read = msgspec.convert(found, CatalogFile, builtin_types=(datetime, date, time))
    except (msgspec.ValidationError, RecursionError) as error:
        raise CatalogError(f"{source}: {_explain(str(error))}.", hint=EDIT) from error
    _check(source, read)
    return read.models


def _over(own: dict[str, Any], shipped: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Merges the user's file over the packaged one, field by field. A model with another repo or path also loses the
    packaged folding words."""
    models = own.get("models", {})
    if not isinstance(models, dict):
        return own
    merged = dict(shipped["models"])
    for key, table in models.items():
        if isinstance(table, dict):
            elsewhere = {"repo", "path", "folding"} if table.keys() & {"repo", "path"} else set()
            known = {name: value for name, value in merged.get(key, {}).items() if name not in elsewhere}
            merged[key] = {**known, **_with_full_paths(table, folder)}
        else:
            merged[key] = table
    return {**own, "models": merged}


def _with_full_paths(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolves the user's paths against the folder of the user's file."""
    for draft in _drafts(table):
        if isinstance(model := draft.get("model"), str) and os.path.exists(path := folder / paths.expanded(model)):
            draft["model"] = str(path)
    template = table.get("template")
    if isinstance(template, str) and os.path.isfile(file := folder / paths.expanded(template)):
        table = {**table, "template": str(file)}
    own = table.get("path")
    return {**table, "path": str(folder / paths.expanded(own))} if isinstance(own, str) else table


def _drafts(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    named = table.get("drafts")
    for draft in (table.get("draft"), *(named.values() if isinstance(named, dict) else ())):
        if isinstance(draft, dict):
            yield draft


def _check(source: Path, read: CatalogFile) -> None:
    """Checks what the types cannot express."""
    if read.schema_version != SCHEMA_VERSION:
        newer = read.schema_version > SCHEMA_VERSION
        hint = "Upgrade localspec: pip install --upgrade localspec" if newer else f"Write {SCHEMA_VERSION}."
        raise CatalogError(f"{source} has schema_version {read.schema_version}, not {SCHEMA_VERSION}.", hint=hint)
    seen: dict[str, str] = {}
    for key, table in read.models.items():
        if (table.repo is None) == (table.path is None):
            raise CatalogError(f"{source}: '{key}' must have exactly one of repo and path.", hint=EDIT)
        for word in (key, *table.aliases):
            if seen.setdefault(word, key) != key:
                raise CatalogError(f"{source}: '{word}' names both '{seen[word]}' and '{key}'.", hint=EDIT)


def _explain(message: str) -> str:
    """msgspec's message, with the nearest known name for an unknown one."""
    named = message.replace(f"`str` matching regex {NAME!r}", NAME_WORDS)
    message = " ".join(named.split())[:LONGEST_FAULT].rstrip(".")
    unknown = re.search(r"unknown field `([^`]*)`(.*)", message)
    if not unknown:
        return message
    near = difflib.get_close_matches(unknown[1], FIELDS, n=1)
    return f"unknown key '{unknown[1]}'{unknown[2]}" + (f"; did you mean '{near[0]}'?" if near else "")
