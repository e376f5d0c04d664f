"""The drafter that goes with a repository: the catalogue's early exit with its source, a draft model of the catalogue,
of this machine or of the hub, or none with the reason.

Knows the catalogue and verdicts, and nothing about memory or the download.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import IncompatiblePair, LocalspecError
from localspec.core.events import DraftLength
from localspec.engine.drafters.table import EARLY_EXIT, MODEL, has_model, kind_name
from localspec.hub.blobs import known_hash
from localspec.hub.client import Client
from localspec.hub.faults import skipping_unusable
from localspec.hub.records import DraftOffer
from localspec.hub.remote_pair import of_the_hub
from localspec.hub.repository import Inspected, denied, files_of, inspect, see
from localspec.hub.request import asked_repository
from localspec.hub.selection import weights_of
from localspec.models.catalog import Catalog
from localspec.models.catalog_file import DraftTable
from localspec.models.checkpoint import Snapshot
from localspec.runtime.draft_choice import exit_layers
from localspec.runtime.local_models import snapshots
from localspec.runtime.pairs import MOST_COMPARED, by_promise, is_small, pair

AUTO, NONE = "auto", "none"
HERE, ON_HUB = "on this machine", "the best of its family on the hub with the same tokens"  # sources
NOT_FOUND = "no small model with its tokens was found; localspec pair {} --hub lists what there is"
UNREAD = "the catalogue knows no drafter for it, and its tokens cannot be read yet"


@dataclass(frozen=True, slots=True)
class OfferedDrafter:
    """An offer, and the model that drafts if it is one: to be fetched, or `here` on this machine."""

    offer: DraftOffer
    model: Inspected | None = None
    here: Snapshot | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        return self.model.snapshot if self.model else self.here


def drafter_for(
    client: Client, target: Inspected, asked: str, scratch: Path, *, heard: Callable[[], None] = lambda: None
) -> OfferedDrafter:
    """The drafter that is asked for: "auto" is the catalogue's, else the best that is found, "none" is none, else a
    repository, whose fault is the user's to hear. `heard` is called before each model that is compared."""
    if asked == NONE:
        return OfferedDrafter(DraftOffer("none", detail="none was asked for"))
    if asked != AUTO:
        return draft_model(client, target, asked, "auto", scratch, source="asked for")
    known = Catalog.load().of_repository(target.seen.repo)
    draft = known[1].draft if known else None
    if draft is None:
        return found_drafter(client, target, scratch, heard)
    if draft.kind == "off":
        return OfferedDrafter(DraftOffer("none", detail="the catalogue has none for it"))
    if draft.kind == EARLY_EXIT.name:
        return OfferedDrafter(early_exit(target, draft))
    if not has_model(draft.kind):
        return OfferedDrafter(DraftOffer("none", detail=f"{kind_name(draft.kind)} needs no download"))
    return of_the_catalogue(client, target, draft, scratch)


def of_the_catalogue(client: Client, target: Inspected, draft: DraftTable, scratch: Path) -> OfferedDrafter:
    """The catalogue's draft model; none with the reason where it cannot be had."""
    name = draft.model or ""
    try:
        found = draft_model(client, target, name, draft.k, scratch, source=draft.source)
    except LocalspecError as fault:
        return OfferedDrafter(DraftOffer("none", name=name, detail=fault.message.rstrip(".")))
    if found.model and not found.model.seen.access.may_read:
        why = denied(found.model.seen).message.rstrip(".")
        return OfferedDrafter(DraftOffer("none", name=name, detail=why))
    return found


def found_drafter(client: Client, target: Inspected, scratch: Path, heard: Callable[[], None]) -> OfferedDrafter:
    """A draft model with the target's tokens, on this machine or else on the hub; none with the reason, which may be
    the hub's fault."""
    if target.snapshot is None:
        return OfferedDrafter(DraftOffer("none", detail=UNREAD))
    try:
        found = found_here(target.snapshot, heard) or found_on_hub(client, target, target.snapshot, scratch, heard)
    except LocalspecError as fault:
        return OfferedDrafter(DraftOffer("none", detail=f"looking for one failed: {fault.message.rstrip('.')}"))
    return found or OfferedDrafter(DraftOffer("none", detail=NOT_FOUND.format(target.seen.repo)))


def found_here(target: Snapshot, heard: Callable[[], None]) -> OfferedDrafter | None:
    """The first model on this machine that can draft for it, those of its family and of a good size before others."""
    small = [one for one in snapshots(Catalog.load()) if is_small(one.total_bytes, target.total_bytes)]
    for one in by_promise(target, small)[:MOST_COMPARED]:
        heard()
        with skipping_unusable():
            verdict = pair(target, one)
            if verdict.same_tokens:
                offer = DraftOffer(MODEL.name, one.name, source=HERE, verdict=verdict, detail=verdict.detail)
                return OfferedDrafter(offer, here=one)
    return None


def found_on_hub(
    client: Client, target: Inspected, snapshot: Snapshot, scratch: Path, heard: Callable[[], None]
) -> OfferedDrafter | None:
    """The best repository of its family that can be read and can draft for it, of those that `pair --hub` compares;
    PullError where the hub fails."""
    for one in of_the_hub(client, snapshot, target.seen.repo, scratch, heard=heard):
        if one.verdict is not None and one.verdict.same_tokens:
            return draft_model(client, target, one.name, "auto", scratch, source=ON_HUB)
    return None


def early_exit(target: Inspected, draft: DraftTable) -> DraftOffer:
    """The catalogue's exit layer; a quarter of the layers where it names none, which the offer says."""
    layers = exit_layers(target.snapshot) if target.snapshot else 0
    layer = draft.exit_layer or max(layers // 4, 1)
    if layers and layer >= layers:
        return DraftOffer("none", detail=f"the catalogue's exit layer {layer} is beyond its {layers} layers")
    source = draft.source if draft.exit_layer else DraftOffer.UNTESTED
    return DraftOffer(EARLY_EXIT.name, name=EARLY_EXIT.summary(str(layer)), exit_layer=layer, k=draft.k, source=source)


def hashes(found: Inspected) -> set[str]:
    """What names the bytes of its weights."""
    return {known_hash(file) for file in weights_of(found.files)}


def draft_model(
    client: Client, target: Inspected, name: str, k: DraftLength, scratch: Path, *, source: str
) -> OfferedDrafter:
    """A repository that drafts, which may be behind a gate; an error where it cannot be loaded, or does not speak the
    target's tokens."""
    repo, revision, variant = asked_repository(name)
    seen = see(client, repo, revision, scratch)
    found = inspect(seen, files_of(seen, variant))
    if found.unloadable:
        raise IncompatiblePair(f"{repo} cannot draft: {found.unloadable}", hint="Use another draft model.")
    if not found.files:
        raise IncompatiblePair(f"{repo} has several files that could draft.", hint=f"Name one: {repo}:Q8_0")
    if hashes(found) == hashes(target):
        message = f"{seen.repo} cannot draft for {target.seen.repo}: it is the same model."
        raise IncompatiblePair(message, hint="Name a smaller model with the same tokens, or --draft none.")
    if target.snapshot is None or found.snapshot is None:
        return OfferedDrafter(DraftOffer(MODEL.name, name=name, k=k, source=source), found)
    verdict = pair(target.snapshot, found.snapshot)
    if not verdict.ok:
        raise IncompatiblePair(
            f"{repo} cannot draft for {target.seen.repo}: {verdict.detail}.",
            hint="Use a model with the same tokenizer, or --draft none.",
        )
    return OfferedDrafter(
        DraftOffer(MODEL.name, name=name, k=k, source=source, verdict=verdict, detail=verdict.detail), found
    )
