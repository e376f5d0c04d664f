"""The drafters of a model, in use or possible: look-up, alone or in front of what DRAFTERS suggests, of the catalogue's
draft model or of smaller models of this machine; and what each brought where it was measured.

Reads headers, tokenizers and the history. Asks no hub and loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from localspec.core import paths
from localspec.core.errors import LocalspecError, NotDownloaded
from localspec.core.events import Stats
from localspec.engine.drafters import table
from localspec.engine.drafters.table import IN_FRONT, LOOKUP
from localspec.engine.generic_arch import read_any
from localspec.history import History, ModelTotals
from localspec.models.catalog import Catalog, Entry, fetch
from localspec.models.checkpoint import Snapshot
from localspec.models.sandbox_jobs import TRANSLATE
from localspec.runtime.draft_choice import draft_target
from localspec.runtime.known_pairs import pulled_draft
from localspec.runtime.local_models import own_drafts, snapshots
from localspec.runtime.pairs import LARGEST_SHARE, MOST_COMPARED, by_promise, is_small, pair

FITTING = f"A draft model has the same tokens and at most 1/{LARGEST_SHARE} of the size."
LONG_MS = 60_000.0  # of answers that were compared with plain rounds: less may be one kind of text
PAYS = 1.01  # below it, what was measured is no gain
SAME = "same tokens"
DETAILS = {  # by a verdict's reason
    "controls-differ": "same tokens but for control tokens: few drafts would be accepted",
    TRANSLATE: "another tokenizer: its text is translated",
}


@dataclass(frozen=True, slots=True)
class Prospect:
    """`draft` is what --draft takes. `missing`: how it is fetched, if it is not here. `suits`: it may well pay.
    `speedup` and `acceptance`: as answers of this machine had them, None where none did."""

    draft: str
    name: str
    detail: str
    suits: bool
    missing: str = ""
    speedup: float | None = None
    acceptance: float | None = None


def prospects(entry: Entry, target: Snapshot, catalog: Catalog, quant: str) -> Iterator[Prospect]:
    """Yields them as they are found, those that need no comparison first; `quant`: the format that figures are of."""
    if not read_any(target.config).can_rewind:
        return
    known = measured(entry.name, quant)
    for one in (*without_model(entry, target), *absent(entry, catalog), *here(entry, target, catalog)):
        yield with_figures(one, known)


def without_model(entry: Entry, target: Snapshot) -> Iterator[Prospect]:
    """The drafters that need no model of their own."""
    for request, found in table.suggested(draft_target(entry, target)):
        one = Prospect(table.spelled(request), table.summary(request), found.detail, found.suits)
        yield one if request.kind == LOOKUP.name else beside_lookup(one)


def absent(entry: Entry, catalog: Catalog) -> Iterator[Prospect]:
    """The draft models that the catalogue or a pull names for the target, and that are not on this machine."""
    usual = entry.draft or pulled_draft(entry, catalog)
    for draft in dict.fromkeys((*([usual] if usual else []), *(one for _, one in entry.drafts))):
        if table.has_model(draft.kind) and draft.folder is None and draft.model:
            try:
                catalog.resolve(draft.model)
            except NotDownloaded:
                detail = "the catalogue's draft model for it, not on this machine"
                yield Prospect(draft.model, draft.model, detail, suits=True, missing=fetch(draft.model))


def here(entry: Entry, target: Snapshot, catalog: Catalog) -> Iterator[Prospect]:
    """The models of this machine that can draft for the target: those that come with it, then those of its family."""
    small = [one for one in snapshots(catalog) if is_small(one.total_bytes, target.total_bytes)]
    for one in (*own_drafts(entry), *by_promise(target, small)[:MOST_COMPARED]):
        with suppress(LocalspecError):  # a broken one cannot draft
            verdict = pair(target, one)
            if verdict.ok:
                detail = DETAILS.get(verdict.reason, SAME)
                yield beside_lookup(Prospect(one.name, one.name, detail, suits=detail == SAME))


def beside_lookup(one: Prospect) -> Prospect:
    """A drafter with a look-up in front, as it drafts unasked."""
    return replace(one, draft=f"{IN_FRONT}{one.draft}", name=table.together(one.name, lookup=True))


def measured(target: str, quant: str) -> Sequence[ModelTotals]:
    """What the history says of the model's answers in this format; nothing where it cannot be read."""
    if paths.folder("data").joinpath(paths.HISTORY).exists():
        with suppress(LocalspecError), History(reading=True) as kept:
            return [one for one in kept.totals().models if (one.target, one.quant) == (target, quant)]
    return ()


def with_figures(one: Prospect, known: Sequence[ModelTotals]) -> Prospect:
    found = next((totals for totals in known if totals.draft == one.draft), None)
    if found is None:
        return one
    one = replace(one, speedup=found.speedup, acceptance=found.acceptance_rate)
    if found.speedup is None or found.speedup >= PAYS or found.compared_ms < LONG_MS:
        return one
    return replace(
        one,
        detail=f"{one.detail}; it saved no time in {found.compared_ms / 60_000:.0f} min of answers here",
        suits=False,
    )


def with_current(one: Prospect, draft: str | None, stats: Stats) -> Prospect:
    """The prospect with the figures of the last answer, where `draft` wrote that and none are kept of it."""
    if one.draft != draft or one.speedup is not None:
        return one
    return replace(one, speedup=stats.speedup, acceptance=stats.acceptance_rate)
