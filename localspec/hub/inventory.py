"""The models on this machine, with what their files, the catalogue and the chats say of each.

Reads headers. Knows nothing about the network or how a list is shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from localspec.core import paths
from localspec.core.arguments import checked
from localspec.core.errors import LocalspecError
from localspec.core.events import Record
from localspec.core.main_memory import available_bytes
from localspec.engine.drafters.table import EARLY_EXIT
from localspec.engine.generic_arch import read_any
from localspec.history import History, ModelTotals
from localspec.hub.card import licence_at, licence_text
from localspec.hub.licences import read_licence
from localspec.hub.older import Older, older_of
from localspec.hub.records import DraftOffer, Licence
from localspec.hub.unlisted import Unlisted, unlisted
from localspec.models import hub_cache
from localspec.models.catalog import Catalog, Entry
from localspec.models.checkpoint import open_snapshot
from localspec.models.named_templates import OWN
from localspec.models.template_choice import template_name
from localspec.runtime.draft_choice import exit_layers
from localspec.runtime.load_marks import is_loaded
from localspec.runtime.local_models import ListedModel, known_pairs, last_used, listed_model, on_disk


class LocalModel(Record, frozen=True):
    """A model that `name` loads. `repo` and `commit`: of one from the hub; `newer`: refs/main names another commit than
    models.toml. `drafter`: who drafts by default; `last_used`: when a chat with it was, "" for never. `unlisted`: other
    versions of its repository, pulled as ORG/NAME@REV."""

    name: str
    path: str
    quant: str
    num_bytes: int
    fit: str
    repo: str = ""
    commit: str = ""
    licence: Licence = Licence()
    drafter: str = ""
    last_used: str = ""
    loaded: bool = False
    newer: bool = False
    unlisted: Unlisted | None = None


@checked
def list_models() -> tuple[LocalModel, ...]:
    """Every model on this machine, as `localspec ls` lists them."""
    catalog, used = Catalog.load(), last_used()
    found = [described(one, catalog.resolve(one.name), catalog, used) for one in on_disk(catalog, "")]
    others = {one.repo: one for one in unlisted({(one.repo, one.commit) for one in found})}
    return tuple(msgspec.structs.replace(one, unlisted=others.get(one.repo)) for one in found)


def described(one: ListedModel, entry: Entry, catalog: Catalog, used: Mapping[str, str]) -> LocalModel:
    repo, commit = hub_cache.fetched_from(entry.path)
    key = catalog.key_of(one.name)
    known = catalog.models[key] if key else (catalog.of_repository(repo) or ("", None))[1]
    licence = licence_at(entry.path)
    drafted = dict(one.drafts).get("auto", "")
    return LocalModel(
        one.name,
        str(entry.path),
        one.quant,
        one.num_bytes,
        one.fit,
        repo,
        commit,
        licence if licence.tag or known is None else read_licence({"license": known.licence}, ()),
        drafted,
        max((used.get(name, "") for name in {one.name, repo, key, str(entry.path)}), default=""),
        is_loaded(entry.path),
        bool(known and known.revision and repo and hub_cache.commit_of(repo) not in ("", known.revision)),
    )


class ModelFile(Record, frozen=True):
    path: str
    num_bytes: int


class ModelDetails(Record, frozen=True):
    """Everything about one model on this machine. `layers` 0: transformers runs it; `template`: its chat template, ""
    for a base model; `named_template`: the one of models.toml, where that is used; `drafts`: what --draft takes, with a
    description; `answers`: how its answers went, model by model as the history has them; `older`: commits of its
    repository that nothing names any more; `early_exit`: that of models.toml, with the source of its layer."""

    model: LocalModel
    architecture: str
    layers: int
    context: int
    vocabulary: int
    template: str
    drafts: tuple[tuple[str, str], ...]
    files: tuple[ModelFile, ...]
    licence_text: str = ""
    answers: tuple[ModelTotals, ...] = ()
    older: Older | None = None
    named_template: str = ""
    early_exit: DraftOffer | None = None


def details(name: str) -> ModelDetails:
    """One model's, by any name that loads it; NotDownloaded where it is not here."""
    catalog = Catalog.load()
    entry = catalog.resolve(name)
    snapshot = open_snapshot(entry.path, name)
    arch, folder = read_any(snapshot.config), folder_of(entry.path)
    one = listed_model(name, entry, available_bytes(), known_pairs(catalog))
    return ModelDetails(
        described(one, entry, catalog, last_used()),
        str(snapshot.config.get("model_type", "")),
        exit_layers(snapshot),
        arch.max_context,
        snapshot.vocab_size or 0,
        snapshot.chat_template or "",
        one.drafts,
        files(entry.path),
        licence_text(folder),
        answers({name, entry.name, entry.key}),
        older_of(repo) if (repo := hub_cache.fetched_from(entry.path)[0]) else None,
        named if (named := template_name(entry)) != OWN else "",
        early_exit(entry),
    )


def early_exit(entry: Entry) -> DraftOffer | None:
    draft = entry.draft
    if draft is None or draft.kind != EARLY_EXIT.name or draft.exit_layer is None:
        return None
    return DraftOffer(draft.kind, exit_layer=draft.exit_layer, k=draft.k, source=draft.source)


def folder_of(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def files(path: Path) -> tuple[ModelFile, ...]:
    """The files of a model, below its folder, or the GGUF file alone."""
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    folder = folder_of(path)
    return tuple(ModelFile(str(one.relative_to(folder)), one.stat().st_size) for one in found if one.is_file())


def answers(named: Collection[str]) -> tuple[ModelTotals, ...]:
    """What the history measured of its answers; none where it cannot be read."""
    if not paths.history_file().exists():
        return ()
    with suppress(LocalspecError), History(reading=True) as kept:
        return tuple(one for one in kept.totals().models if one.target in named)
    return ()
