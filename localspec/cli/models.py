"""What a shell offers where a command takes a model. Reads no headers, so that it answers at once."""

from __future__ import annotations

from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from localspec.core.errors import LocalspecError

PATHS = (".", "/", "~")


def completions(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """The names that begin so of models on this machine; files and folders where a path is begun."""
    from localspec.models.catalog import Catalog
    from localspec.runtime.local_models import names

    if typed.startswith(PATHS):
        return [CompletionItem(typed, type="file")]
    known: tuple[str, ...] = ()
    with suppress(LocalspecError):
        known = (*Catalog.load().models, *names())
    return [CompletionItem(name) for name in dict.fromkeys(known) if name.startswith(typed)]
