"""`localspec pair`: the verdict, the candidates, the entry in models.toml, and another program's command."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

from localspec.cli import compatibility_text
from localspec.cli.io import print_note, print_text
from localspec.cli.output import print_records
from localspec.config.models_file import store_model
from localspec.core import paths
from localspec.core.errors import IncompatiblePair, NotDownloaded, UsageError
from localspec.core.sanitize import one_line
from localspec.engine.drafters.table import MODEL, names_row
from localspec.engine.generic_arch import POSITIONS, named
from localspec.hub.compatibility import here, pair
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.models.catalog_file import DraftTable
from localspec.runtime.other_programs import LOOKUP, MOST_CONTEXT, OtherPair, printed, stand_ins
from localspec.runtime.pairs import DrafterCandidate


def judge(target: str, drafter: str, *, on_hub: bool, write: bool, as_json: bool) -> int:
    """Prints the verdict, or the candidates; the exit code."""
    found = pair(target, drafter, hub=on_hub)
    if as_json:
        print_records(found)
    elif drafter:
        print_text("\n".join(compatibility_text.verdict_text(one.verdict) for one in found if one.verdict))
    elif found:
        print_text(compatibility_text.candidates_table(found))
    able = [(one, one.verdict) for one in found if one.verdict is not None and one.verdict.ok]
    if not able:
        return unpaired(target, drafter, on_hub=on_hub)
    if write:
        best = next((one for one, verdict in able if drafter or verdict.same_tokens), None)
        if best is None:
            return unpaired(target, drafter, on_hub=on_hub, what="has the tokens of")
        print_note(f"Written to {write_pair(target, best)}. Chat with the pair: localspec chat {target}")
    return 0


def unpaired(target: str, drafter: str, *, on_hub: bool, what: str = "can draft for") -> int:
    if not drafter:
        print_note(none_of_the_hub(target, what) if on_hub else none_here(target, what))
    return IncompatiblePair.exit_code


def none_here(target: str, what: str) -> str:
    return f"No model on this machine {what} {target}. Look on the hub: localspec pair {target} --hub"


def none_of_the_hub(target: str, what: str) -> str:
    """What was searched: one page, by name, of which the first few are compared."""
    from localspec.hub.candidates import searched_words  # imports what talks to the hub

    words = searched_words(target, here(target, Catalog.load()))
    searched = f"The hub was searched for small models named like '{one_line(words)}', and none that was compared"
    return f"{searched} {what} {target}. Try any other: localspec pair {target} ORG/NAME"


def write_pair(target: str, drafter: DrafterCandidate) -> str:
    """Makes the drafter the target's own in models.toml: in its entry, or in a new one. Returns the file."""
    catalog = Catalog.load()
    draft = {"kind": MODEL.name, "model": own_folder(target, drafter.name, catalog) or lasting(drafter.name, catalog)}
    known = catalog.key_of(target) or (catalog.of_repository(target) or ("", None))[0]
    if known:
        return str(store_model(known, {}, draft))
    return str(store_model(new_key(target), fields_of(target, catalog), draft))


def fields_of(target: str, catalog: Catalog) -> dict[str, object]:
    """What a model is in models.toml: its repository, with the commit of a revision, or its folder or file;
    NotDownloaded for a revision or a file of a repository that is not here."""
    if catalog.repository(target) == target:
        return {"repo": target}
    path = catalog.resolve(target).path
    repo, commit = hub_cache.fetched_from(path) if path.is_dir() else ("", "")
    return {"repo": repo, "revision": commit} if repo else {"path": str(path.absolute())}


def own_folder(target: str, drafter: str, catalog: Catalog) -> str:
    """The folder of a draft model that comes with the target; "" for any other drafter."""
    with suppress(NotDownloaded):
        draft = catalog.resolve(target).named_draft(drafter)
        return str(draft.folder.absolute()) if draft is not None and draft.folder is not None else ""
    return ""


def lasting(name: str, catalog: Catalog) -> str:
    """A name for models.toml, which is read from any folder."""
    if paths.expanded(name).exists():
        return str(paths.expanded(name).absolute())
    return catalog.repository(name) if catalog.key_of(name) else name


def new_key(target: str) -> str:
    """A key from the last part of a name or path."""
    name = re.sub(r"[^\w.+-]+", "-", target.rstrip("/").rpartition("/")[2].lower()).strip("-.")
    if not name:
        raise UsageError(f"'{target[:200]}' gives no name for models.toml.", hint="Write the entry yourself.")
    return name


def print_command(target: str, drafter: str, program: str) -> int:
    """Prints the command that runs the pair in another program."""
    catalog = Catalog.load()
    own = own_draft(target, catalog)
    drafter = drafter or (own.model or own.kind if own else LOOKUP)
    folder = own_folder(target, drafter, catalog)
    names = (name_elsewhere(target, catalog), folder or name_elsewhere(drafter, catalog))
    asked = OtherPair(*names, context=context_of(target, catalog))
    if own is not None and isinstance(own.k, int) and drafter in (own.model, own.kind):
        asked = replace(asked, num_draft_tokens=own.k)
    if not names_row(drafter):
        (found,) = pair(target, drafter)
        assert found.verdict is not None  # of a named drafter there is one
        asked = replace(asked, reason=found.verdict.reason, ok=found.verdict.ok)
    print_text(printed(asked, program))
    if program == "llama-server":
        for note in stand_ins(asked):
            print_note(note)
    return 0


def name_elsewhere(name: str, catalog: Catalog) -> str:
    """The name by which another program loads a model: a repository, else the path of its files here. The name of a
    kind of drafter is left as it is."""
    if names_row(name):
        return name
    try:
        return catalog.repository(name) or str(catalog.resolve(name).path.absolute())
    except NotDownloaded:
        return name


def own_draft(target: str, catalog: Catalog) -> DraftTable | None:
    """The drafter that the catalogue names for a target, if one."""
    key = catalog.key_of(target) or (catalog.of_repository(target) or ("", None))[0]
    draft = catalog.models[key].draft if key else None
    return None if draft is None or draft.kind == "off" else draft


def context_of(target: str, catalog: Catalog) -> int:
    """The context for another program: the target's own, up to the usual one; 0 where it is not known here."""
    snapshot = here(target, catalog)
    return min(MOST_CONTEXT, named(snapshot.config, POSITIONS, default=0)) if snapshot is not None else 0
