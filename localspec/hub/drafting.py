"""The drafter that goes with a repository: the catalogue's early exit with its source, a draft model, or none with the
reason.

Knows the catalogue and verdicts, and nothing about memory or the download.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import IncompatiblePair, LocalspecError
from localspec.core.events import DraftLength
from localspec.engine.drafters.table import EARLY_EXIT
from localspec.hub.client import Client
from localspec.hub.records import DraftOffer
from localspec.hub.repository import Inspected, denied, files_of, inspect, see
from localspec.models.catalog import Catalog, DraftTable, ModelTable
from localspec.models.checkpoint import Snapshot
from localspec.runtime.draft_choice import exit_layers
from localspec.runtime.pairs import pair

AUTO, NONE = "auto", "none"
UNKNOWN = "the catalogue knows no drafter for it; localspec pair {} --hub looks for one"


@dataclass(frozen=True, slots=True)
class Drafter:
    """An offer, and the model that drafts if it is one."""

    offer: DraftOffer
    model: Inspected | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        return self.model.snapshot if self.model else None


def drafter_for(client: Client, target: Inspected, asked: str, scratch: Path) -> Drafter:
    """The drafter that is asked for: "auto" is the catalogue's, "none" is none, else a repository, whose fault is the
    user's to hear."""
    if asked == NONE:
        return Drafter(DraftOffer("none", detail="none was asked for"))
    if asked != AUTO:
        return draft_model(client, target, asked, "auto", scratch, source="asked for")
    draft = drafted_by(target.seen.repo)
    if draft is None or draft.kind == "off":
        return Drafter(DraftOffer("none", detail=UNKNOWN.format(target.seen.repo)))
    if draft.kind == EARLY_EXIT.name:
        return Drafter(early_exit(target, draft))
    try:
        return draft_model(client, target, repository_of(draft.model or ""), draft.k, scratch, source=draft.source)
    except LocalspecError as fault:
        return Drafter(DraftOffer("none", name=draft.model or "", detail=fault.message.rstrip(".")))


def early_exit(target: Inspected, draft: DraftTable) -> DraftOffer:
    """The catalogue's exit layer; a quarter of the layers where it names none."""
    layers = exit_layers(target.snapshot) if target.snapshot else 0
    layer = draft.exit_layer or max(layers // 4, 1)
    if layers and layer >= layers:
        return DraftOffer("none", detail=f"the catalogue's exit layer {layer} is beyond its {layers} layers")
    return DraftOffer("early-exit", name=f"early exit after layer {layer}", exit_layer=layer, k=draft.k, source=draft.source)


def draft_model(
    client: Client, target: Inspected, name: str, k: DraftLength, scratch: Path, *, source: str
) -> Drafter:
    """A repository that drafts; an error where it may not be read, cannot be loaded, or does not speak the target's
    tokens."""
    repo, _, variant = repository_of(name).partition(":")
    seen = see(client, repo, "", scratch)
    if not seen.access.may_read:
        raise denied(seen)
    found = inspect(seen, files_of(seen, variant))
    if found.snapshot is None:
        raise IncompatiblePair(f"{repo} cannot draft: {found.unloadable}", hint="Use another draft model.")
    if target.snapshot is None:
        return Drafter(DraftOffer("model", name=repo, k=k, source=source), found)
    verdict = pair(target.snapshot, found.snapshot)
    if not verdict.ok:
        raise IncompatiblePair(
            f"{repo} cannot draft for {target.seen.repo}: {verdict.detail}.",
            hint="Use a model with the same tokenizer, or --draft none.",
        )
    return Drafter(DraftOffer("model", name=repo, k=k, source=source, verdict=verdict, detail=verdict.detail), found)


def tables_of(repo: str) -> Iterator[ModelTable]:
    """The catalogue's entries for a repository."""
    yield from (table for table in Catalog.load().models.values() if table.repo == repo)


def drafted_by(repo: str) -> DraftTable | None:
    """The drafter that the catalogue names for a repository."""
    return next((table.draft for table in tables_of(repo) if table.draft), None)


def preset_of(repo: str) -> str:
    """The preset that the catalogue names for a repository."""
    return next((table.preset for table in tables_of(repo) if table.preset), "")


def repository_of(name: str) -> str:
    """The repository of a key or alias of the catalogue; any other name is one already."""
    for key, table in Catalog.load().models.items():
        if table.repo and name in (key, *table.aliases):
            return table.repo
    return name
