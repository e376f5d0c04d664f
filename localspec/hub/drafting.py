"""The drafter that goes with a repository: the catalogue's early exit with its source, a draft model, or none with the
reason.

Knows the catalogue and verdicts, and nothing about memory or the download.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import IncompatiblePair, LocalspecError
from localspec.core.events import DraftLength
from localspec.engine.drafters.table import EARLY_EXIT
from localspec.hub.client import Client
from localspec.hub.records import DraftOffer
from localspec.hub.repository import Inspected, denied, files_of, inspect, see
from localspec.models.catalog import Catalog
from localspec.models.catalog_file import DraftTable
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
    known = Catalog.load().of_repository(target.seen.repo)
    draft = known[1].draft if known else None
    if draft is None or draft.kind == "off":
        return Drafter(DraftOffer("none", detail=UNKNOWN.format(target.seen.repo)))
    if draft.kind == EARLY_EXIT.name:
        return Drafter(early_exit(target, draft))
    name = draft.model or ""
    try:
        found = draft_model(client, target, name, draft.k, scratch, source=draft.source)
    except LocalspecError as fault:
        return Drafter(DraftOffer("none", name=name, detail=fault.message.rstrip(".")))
    if found.model and not found.model.seen.access.may_read:
        why = denied(found.model.seen).message.rstrip(".")
        return Drafter(DraftOffer("none", name=name, detail=why))
    return found


def early_exit(target: Inspected, draft: DraftTable) -> DraftOffer:
    """The catalogue's exit layer; a quarter of the layers where it names none."""
    layers = exit_layers(target.snapshot) if target.snapshot else 0
    layer = draft.exit_layer or max(layers // 4, 1)
    if layers and layer >= layers:
        return DraftOffer("none", detail=f"the catalogue's exit layer {layer} is beyond its {layers} layers")
    return DraftOffer(
        "early-exit", name=f"early exit after layer {layer}", exit_layer=layer, k=draft.k, source=draft.source
    )


def draft_model(client: Client, target: Inspected, name: str, k: DraftLength, scratch: Path, *, source: str) -> Drafter:
    """A repository that drafts, which may be behind a gate; an error where it cannot be loaded, or does not speak the
    target's tokens."""
    repo, _, variant = repository_of(name).partition(":")
    seen = see(client, repo, "", scratch)
    found = inspect(seen, files_of(seen, variant))
    if found.unloadable:
        raise IncompatiblePair(f"{repo} cannot draft: {found.unloadable}", hint="Use another draft model.")
    if not found.files:
        raise IncompatiblePair(f"{repo} has several files that could draft.", hint=f"Name one: {repo}:Q8_0")
    if target.snapshot is None or found.snapshot is None:
        return Drafter(DraftOffer("model", name=name, k=k, source=source), found)
    verdict = pair(target.snapshot, found.snapshot)
    if not verdict.ok:
        raise IncompatiblePair(
            f"{repo} cannot draft for {target.seen.repo}: {verdict.detail}.",
            hint="Use a model with the same tokenizer, or --draft none.",
        )
    return Drafter(DraftOffer("model", name=name, k=k, source=source, verdict=verdict, detail=verdict.detail), found)


def repository_of(name: str) -> str:
    """The repository of a key or alias of the catalogue; any other name is one already."""
    return Catalog.load().repository(name) or name
