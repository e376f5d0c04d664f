"""`localspec rm`: which repositories are meant, what deleting them frees, and the deletion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from localspec.cli.asking import confirmed
from localspec.cli.io import print_note, print_text
from localspec.cli.models_text import deletion_text
from localspec.core.errors import Cancelled, NotDownloaded, UsageError
from localspec.core.sizes import size_words
from localspec.hub.process import HubProcess
from localspec.hub.records import Answer, AskDelete, Deleted, DeletePlan, Go
from localspec.models import hub_cache
from localspec.models.catalog import LISTED, Catalog
from localspec.models.gguf.stores import STORES
from localspec.runtime.loaded import is_loaded

Found = TypeVar("Found", DeletePlan, Deleted)


def delete(names: Sequence[str], *, yes: bool) -> int:
    repos = tuple(dict.fromkeys(deleted_repository(name) for name in names))
    with HubProcess() as hub:
        print_text(deletion_text(one(hub.ask(AskDelete(repos)), DeletePlan)))
        if not (yes or confirmed("Delete?", default=False, to_do="delete")):
            print_note("Nothing was deleted.")
            return Cancelled.exit_code
        refuse_loaded(repos)
        print_text(f"Freed {size_words(one(hub.ask(Go()), Deleted).freed_bytes)}.")
    return 0


def deleted_repository(name: str) -> str:
    """The cached repository of a name; UsageError for what localspec has not fetched, and for what is loaded."""
    catalog = Catalog.load()
    repo = catalog.repository(name)
    if "@" in name:
        raise UsageError(f"'{name}' is a revision.", hint=f"Delete the whole repository: localspec rm {repo}")
    if repo and hub_cache.kept(repo).is_dir():
        refuse_loaded([repo])
        return repo
    try:
        entry = catalog.resolve(name)
    except NotDownloaded as fault:  # whoever deletes wants to fetch nothing
        raise NotDownloaded(fault.message, hint=LISTED) from fault
    store = name.partition(":")[0]
    owner = f"{store} keeps it" if store in STORES else f"it is {entry.path}"
    raise UsageError(f"'{name}' is not in the Hugging Face cache: {owner}.", hint="Delete it where it is.")


def refuse_loaded(repos: Iterable[str]) -> None:
    for repo in repos:
        if is_loaded(hub_cache.kept(repo)):
            raise UsageError(
                f"{repo} is loaded by a running localspec.", hint="Close it there first: /unload, or quit."
            )


def one(answers: Iterable[Answer], kind: type[Found]) -> Found:
    return next(answer for answer in answers if isinstance(answer, kind))
