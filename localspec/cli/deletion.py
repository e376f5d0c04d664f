"""`localspec rm`: which repositories are meant, what deleting them or their older versions frees, and the deletion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from localspec.cli.io import print_note, print_text
from localspec.cli.models_text import deletion_text
from localspec.cli.questions import confirmed
from localspec.config.models_file import keys_of, keys_of_file, remove_models
from localspec.core.errors import Cancelled, NotDownloaded, UsageError
from localspec.core.paths import packaged
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.hub import pulls
from localspec.hub.older import older
from localspec.hub.one_of_several import apart, links, named_model
from localspec.hub.process import HubProcess
from localspec.hub.records import AskDelete, Deleted, DeletePlan, Go, HubAnswer, ModelFiles
from localspec.hub.writers import refuse_written
from localspec.models import hub_cache
from localspec.models.catalog import LISTED, Catalog
from localspec.models.gguf.stores import STORES
from localspec.runtime.load_marks import is_loaded

Found = TypeVar("Found", DeletePlan, Deleted)


def delete(names: Sequence[str], *, yes: bool) -> int:
    catalog = Catalog.load()
    repos, models = apart([named_model(name, catalog) or deleted_repository(name) for name in names])
    refuse_loaded(repos, models)
    keys = (*keys_of(repos), *(key for one in models for key in keys_of_file(one.repo, one.paths)))
    with HubProcess() as hub:
        here = tuple(repo for repo in repos if hub_cache.kept(repo).is_dir())
        begun = tuple(repo for repo in repos if repo not in here and pulls.known(repo))
        plan = one(hub.ask(AskDelete(here, (), models)), DeletePlan) if here or models else DeletePlan((), 0)
        print_text(deletion_text(plan, keys, begun))
        if not agreed(yes=yes):
            return Cancelled.exit_code
        if here or models:
            refuse_loaded(here, models)
            print_text(f"Freed {size_words(one(hub.ask(Go()), Deleted).freed_bytes)}.")
    for repo in begun:
        refuse_written(repo)
        pulls.forget(repo)
    if keys:
        remove_models(keys)
    return 0


def delete_older(names: Sequence[str], *, yes: bool) -> int:
    """Deletes the older commits of these models, or of all."""
    asked = tuple(dict.fromkeys(deleted_repository(name) for name in names))
    here = tuple(one.repo for one in older() if not names or one.repo in asked)
    if not here:
        print_note(f"There are no older versions{' of ' if asked else ''}{one_line(', '.join(asked))}.")
        return 0
    with HubProcess() as hub:
        print_text(deletion_text(one(hub.ask(AskDelete((), here)), DeletePlan)))
        if not agreed(yes=yes):
            return Cancelled.exit_code
        print_text(f"Freed {size_words(one(hub.ask(Go()), Deleted).freed_bytes)}.")
    return 0


def agreed(*, yes: bool) -> bool:
    if yes or confirmed("Delete?", default=False, to_do="delete"):
        return True
    print_note("Nothing was deleted.")
    return False


def deleted_repository(name: str) -> str:
    """The repository of a name, which is in the cache, has a key of the user's or is to be downloaded; UsageError for
    what localspec has not fetched."""
    catalog = Catalog.load()
    repo = catalog.repository(name)
    if "@" in name:
        raise UsageError(f"'{name}' is a revision.", hint=f"Delete the whole repository: localspec rm {repo}")
    if repo and (hub_cache.kept(repo).is_dir() or catalog.key_of(name) in keys_of([repo]) or pulls.known(repo)):
        return repo
    try:
        entry = catalog.resolve(name)
    except NotDownloaded as fault:  # whoever deletes wants to fetch nothing
        raise NotDownloaded(fault.message, hint=LISTED) from fault
    if repo := hub_cache.fetched_from(entry.path)[0]:
        return repo
    if entry.path.is_relative_to(packaged("assets")):
        raise UsageError(f"'{name}' comes with localspec and is not deleted.", hint=LISTED)
    store = name.partition(":")[0]
    owner = f"{store} keeps it" if store in STORES else f"it is {entry.path}"
    raise UsageError(
        f"'{name}' is not in the Hugging Face cache: {owner}.", hint="localspec deletes only what it has downloaded."
    )


def refuse_loaded(repos: Iterable[str], models: Iterable[ModelFiles]) -> None:
    paths = [(repo, hub_cache.kept(repo)) for repo in repos]
    paths += [(model.name, link) for model in models for link in links(model)]
    for name, path in paths:
        if is_loaded(path):
            raise UsageError(
                f"{name} is loaded by a running localspec.", hint="Close it there first: /unload, or quit."
            )


def one(answers: Iterable[HubAnswer], kind: type[Found]) -> Found:
    return next(answer for answer in answers if isinstance(answer, kind))
