"""The known models: the packaged models.toml, the user's own over it, downloaded models, those of other programs, and
any folder or GGUF file.

Resolves a name to an Entry with a folder or file on this machine. Knows nothing about the network, the files' contents
or torch.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.core import paths
from localspec.core.errors import NotDownloaded, UsageError
from localspec.core.events import DraftLength
from localspec.core.requests import DraftRequest, SamplingOptions
from localspec.core.weight_formats import ListedFormat
from localspec.models import hub_cache, typed_names
from localspec.models.catalog_file import (
    CatalogFile,
    DraftTable,
    FoldingTable,
    ModelTable,
    RemoteTable,
    checked,
    over,
    read,
)
from localspec.models.gguf import stores
from localspec.models.gguf.header import name_of
from localspec.models.gguf.quants import quant_of, whole
from localspec.models.gguf.stores import GgufModel
from localspec.models.model_paths import local_path, means_file, missing_file

FETCH = "Fetch it: localspec pull"
ELSE = "Use the built-in model, guide, or a model's folder or GGUF file: ./FOLDER or ./FILE.gguf."
DOWNLOAD = "Download another: localspec pull ORG/NAME"
MOST_SHOWN = 6  # names in a message
LISTED = "List the models on this machine: localspec ls"


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """The drafter of a model. A draft model has a `folder`, or names a `model`: a key or a repository."""

    kind: str
    model: str | None = None
    folder: Path | None = None
    exit_layer: int | None = None
    k: DraftLength = "auto"
    source: str = ""

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
    fallback_template: str | None = None
    folding: FoldingTable | None = None

    def named_draft(self, name: str) -> DraftEntry | None:
        """The alternative draft that models.toml calls `name`."""
        return dict(self.drafts).get(name)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The known models and servers, in the file's order."""

    models: dict[str, ModelTable]
    remotes: dict[str, RemoteTable] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path | None = None) -> Catalog:
        """Loads this models.toml; by default the packaged one and the user's own over it."""
        source = file or paths.packaged("models.toml")
        found, own = read(source), None if file else _own_file()
        if own is None:
            return cls._of(checked(found, source))
        return cls._of(checked(over(read(own), found, own.parent), own))

    @classmethod
    def _of(cls, written: CatalogFile) -> Catalog:
        return cls(written.models, written.remotes)

    def resolve(self, name: str) -> Entry:
        """The Entry of a key, an alias, a folder, a GGUF file, a cached repository or a model of another program, as
        `plain_name` understands them; NotDownloaded for anything else."""
        if key := self.key_of(name):
            return _entry(key, self.models[key])
        try:
            return self._folder(name)
        except NotDownloaded:
            if (plain := self.plain_name(name)) == name:
                raise
        return self.resolve(plain)

    def plain_name(self, typed: str) -> str:
        """The name of the model that was typed in another case, with a slash at the end or as its address; any other
        stays as it is. UsageError for an address that is no model's."""
        return typed_names.plain_name(typed, self.words, self._repositories())

    def key_of(self, name: str) -> str:
        """The key that this key or alias means; "" for none."""
        return next((key for key, table in self.models.items() if name in (key, *table.aliases)), "")

    @property
    def words(self) -> list[str]:
        """The keys and aliases."""
        return [word for key, table in self.models.items() for word in (key, *table.aliases)]

    def _repositories(self) -> Iterator[str]:
        """Yields those in the cache and those of models.toml, of drafters too."""
        yield from hub_cache.folders()
        for table in self.models.values():
            yield from filter(None, (table.repo, table.draft.model if table.draft else None))

    def of_repository(self, repo: str) -> tuple[str, ModelTable] | None:
        """The first model with this repository, and its key."""
        return next(((key, table) for key, table in self.models.items() if table.repo == repo), None)

    def repository(self, name: str) -> str:
        """The repository that is pulled for a name: that of a key or an alias, or of ORG/NAME and ORG/NAME@REV; "" if
        it can be none."""
        if key := self.key_of(name):
            return self.models[key].repo or ""
        repo = name.partition("@")[0]
        return repo if "/" in repo and not is_path(repo) and hub_cache.REPOSITORY.fullmatch(repo) else ""

    def lasting_name(self, name: str) -> str:
        """A name that stays valid in any folder: a key, a repository, or an absolute path."""
        entry = self.resolve(name)
        has_no_key = entry.key not in self.models and os.path.exists(paths.expanded(entry.key))
        return str(entry.path.absolute()) if has_no_key else entry.key

    def _folder(self, name: str) -> Entry:
        if path := local_path(name):
            return Entry(key=name, name=name_of(path) if path.is_file() else path.absolute().name, path=path)
        found = hub_cache.snapshot(name)
        if (found is None or not (found / "config.json").exists()) and (files := stores.in_repository(name)):
            return Entry(key=name, name=name, path=one_of(name, files).file)
        if found is not None:
            return self._fetched(name, found)
        if file := stores.find(name):
            return Entry(key=name, name=name, path=file)
        if means_file(name):
            raise missing_file(name)
        if is_path(name):
            raise NotDownloaded(f"There is no folder or file {name[:200]}.", hint=ELSE)
        if name.partition(":")[0] in stores.STORES:
            near = difflib.get_close_matches(name, [one.name for one in stores.kept()], n=1)
            raise NotDownloaded(f"'{name[:200]}' is not on this machine" + meant(near), hint=fetched_by(name))
        if self.repository(name.partition(":")[0]):
            raise absent(name)
        if "/" in name:
            raise NotDownloaded(f"There is no folder or file {name[:200]}.", hint=ELSE)
        near = difflib.get_close_matches(name, self.words, n=1)
        raise NotDownloaded(f"There is no model '{name[:200]}'" + meant(near), hint=f"{ELSE} {DOWNLOAD}")

    def _fetched(self, name: str, folder: Path) -> Entry:
        """A cached repository, at whatever revision, with what the catalogue says of it."""
        known = self.of_repository(name.partition("@")[0])
        return replace(_at(folder, *known), key=name, name=name) if known else Entry(name, name, folder)


def fetched_by(name: str) -> str:
    """How another program's model comes here."""
    program, _, rest = name.partition(":")
    can_pull = program == stores.OLLAMA and re.fullmatch(r"[\w./:-]+", rest)
    return f"Fetch it (ollama pull {rest}), or list what is here: localspec ls" if can_pull else LISTED


def one_of(name: str, files: Sequence[GgufModel]) -> GgufModel:
    """The only one of a repository's GGUF models; UsageError where there are several."""
    if len(files) == 1:
        return files[0]
    shown = ", ".join(one.name for one in files[:MOST_SHOWN])
    raise UsageError(f"'{name}' has {len(files)} models on this machine.", hint=f"Name one: {shown}")


def absent(name: str) -> NotDownloaded:
    """The error for a repository that is not here, or for ORG/NAME:Q8_0 of which at most others are."""
    repository, _, variant = name.partition(":")
    if not variant:
        return NotDownloaded(f"'{name}' is not on this machine.", hint=fetch(name))
    others = [one.name.removeprefix(f"{repository}:") for one in stores.in_repository(repository)][:MOST_SHOWN]
    here = f"; {', '.join(others)} {'is' if len(others) == 1 else 'are'}" if others else ""
    return NotDownloaded(f"{variant[:200]} of {repository} is not on this machine{here}.", hint=fetch(name))


def fetch(name: str) -> str:
    """The next command for a model that is not on this machine."""
    return f"{FETCH} {name}"


def meant(near: Sequence[str]) -> str:
    """The end of a sentence about an unknown name: a suggestion, if there is one."""
    return f"; did you mean '{near[0]}'?" if near else "."


def is_path(name: str) -> bool:
    """True for what can only mean a folder or a file."""
    return name.startswith((".", "~", "/")) or "\\" in name


def _entry(key: str, table: ModelTable) -> Entry:
    path = _shipped(table.path) if table.path is not None else hub_cache.snapshot(table.repo or "", table.revision)
    if table.file is not None and (path is None or not (path / table.file).is_file()):
        named = f"{table.repo}:{variant_of(table.file)}"
        raise NotDownloaded(f"'{key}' ({named}) is not on this machine.", hint=f"{fetch(named)} --as {key}")
    if path is None:
        raise NotDownloaded(f"'{key}' ({table.repo}) is not on this machine.", hint=fetch(key))
    return _at(path / table.file if table.file else path, key, table)


def variant_of(file: str) -> str:
    """What `localspec pull ORG/NAME:` takes for this GGUF file: its quantisation, else its path."""
    return quant_of(file) or whole(file)


def _at(path: Path, key: str, table: ModelTable) -> Entry:
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
        fallback_template=table.fallback_template,
        folding=table.folding,
    )


def _draft(table: DraftTable) -> DraftEntry:
    folder = _shipped(table.model) if table.model else None
    found = folder is not None and os.path.exists(folder)
    return DraftEntry(table.kind, table.model, folder if found else None, table.exit_layer, table.k, table.source)


def _shipped(name: str) -> Path:
    """A path in models.toml: absolute, from the user's home, or among the packaged files."""
    path = paths.expanded(name)
    return path if path.is_absolute() else paths.packaged(name)


def _own_file() -> Path | None:
    with suppress(ImportError):  # platformdirs may be missing on a machine that is only benchmarked
        return file if os.path.lexists(file := paths.models_file()) else None
    return None
