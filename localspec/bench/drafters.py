"""The drafters that a model can use, each with the name of its row: what the benchmark measures and the proof proves.

Names them; loads none.
"""

from __future__ import annotations

from localspec.bench.report import PLAIN
from localspec.core.calibration import recall
from localspec.core.requests import AskedDraft, DraftRequest
from localspec.core.sanitize import one_line
from localspec.engine.drafters import table
from localspec.engine.generic_arch import read_any
from localspec.models.catalog import DraftEntry, Entry
from localspec.runtime.draft_choice import draft_target, requested, swept
from localspec.runtime.known_pairs import pulled_draft
from localspec.runtime.open_target import OpenTarget, swept_key

AUTO = "auto"
Named = tuple[str, AskedDraft]


def usable(opened: OpenTarget, asked: AskedDraft) -> list[Named]:
    """Plain first. For "auto" then look-up, the early exit that a sweep or models.toml knows, the draft models of
    models.toml and of a pull, other drafters that need no model, and `auto` itself where it is more than look-up."""
    if asked != AUTO:
        return drafts(opened.entry, asked)
    plain, *given = drafts(opened.entry, asked)
    if not can_draft(opened):
        return [plain]
    known = (*own(opened), *given)
    lookup, *others = without_model(opened)
    mixed = [(AUTO, AUTO)] if known else []
    return [plain, lookup, *dict((*known, *others)).items(), *mixed]


def without_model(opened: OpenTarget) -> list[Named]:
    """The drafters that need no model of their own and may well pay, look-up first."""
    found = table.suggested(draft_target(opened.entry, opened.snapshot))
    return [(table.label(request), table.spelled(request)) for request, suggestion in found if suggestion.suits]


def can_draft(opened: OpenTarget) -> bool:
    """Whether the target's state can be rolled back."""
    return read_any(opened.snapshot.config).can_rewind


def own(opened: OpenTarget) -> list[Named]:
    """The early exit that a sweep found, and the draft model that came with a pull."""
    found = swept(recall(swept_key(opened)), opened.entry, opened.snapshot)
    pulled = None if opened.entry.draft else pulled_draft(opened.entry, opened.catalog)
    exits = [(found.name, table.spelled(DraftRequest(found.kind, found.argument)))] if found else []
    return [*exits, *([(label(pulled), spelled(pulled))] if pulled else [])]


def drafts(entry: Entry, asked: AskedDraft) -> list[Named]:
    """Plain, and the drafter that was asked for, or all that models.toml has."""
    found: list[Named] = [(PLAIN, "off")]
    if asked not in (AUTO, "off"):
        return [*found, (one_line(table.label(requested(asked))), asked)]
    if asked == AUTO and entry.draft is not None and entry.draft.kind != "off":
        found.append((label(entry.draft), spelled(entry.draft)))
    if asked == AUTO:
        found += [(table.label(DraftRequest(draft.kind, name)), name) for name, draft in entry.drafts]
    return found


def label(draft: DraftEntry) -> str:
    """A draft of models.toml, whose model needs no name: there is one."""
    return table.label(DraftRequest(draft.kind) if draft.model else draft.request)


def spelled(draft: DraftEntry) -> str:
    """The draft as --draft takes it."""
    return str(draft.folder or draft.model) if draft.model else table.spelled(draft.request)
