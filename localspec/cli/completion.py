"""Shell completion of model names. Reads no headers, so it answers at once."""

from __future__ import annotations

from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from localspec.core.errors import LocalspecError

PATHS = (".", "/", "~")


def completions(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of models on this machine that begin with what was typed; files and folders for a path."""
    from localspec.models.catalog import Catalog
    from localspec.runtime.local_models import names

    if typed.startswith(PATHS):
        return [CompletionItem(typed, type="file")]
    known: tuple[str, ...] = ()
    with suppress(LocalspecError):
        known = (*Catalog.load().models, *names())
    return [CompletionItem(name) for name in dict.fromkeys(known) if name.startswith(typed)]


def pullable(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of the catalogue that a pull takes, with their repositories."""
    from localspec.models.catalog import Catalog

    with suppress(LocalspecError):
        models = Catalog.load().models.items()
        return [CompletionItem(key, help=table.repo) for key, table in models if table.repo and key.startswith(typed)]
    return []


def deletable(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Repositories in the Hugging Face cache."""
    from localspec.models import hub_cache

    return [CompletionItem(name) for name in hub_cache.repositories() if name.startswith(typed)]


def remotes(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Servers that models.toml names."""
    from localspec.models.catalog import Catalog

    with suppress(LocalspecError):
        return [CompletionItem(name) for name in Catalog.load().remotes if name.startswith(typed)]
    return []
