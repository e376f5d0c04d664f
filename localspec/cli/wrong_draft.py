"""The offer to load a model without the drafter that was named for it and that cannot draft: on a terminal only."""

from __future__ import annotations

from msgspec.structs import replace

from localspec.cli import questions
from localspec.cli.io import print_error
from localspec.core.errors import LocalspecError
from localspec.core.requests import LoadRequest
from localspec.models.catalog import Catalog
from localspec.runtime.draft_choice import check


def checked_load(load: LoadRequest, catalog: Catalog, title: str) -> LoadRequest:
    """The load, or the same without a drafter if only that is wrong and the user agrees; else its error, which may come
    from the model or an option. `title` is the model's name for the user."""
    try:
        check(load, catalog)
    except LocalspecError as fault:
        plain = replace(load, draft="off")
        check(plain, catalog)
        if not questions.interactive():
            raise
        print_error(str(fault))
        if not questions.answered(f"Load {title} without a drafter?", default=True):
            raise
        return plain
    return load
