"""The offer to pull a model that `chat` or `run` needs and that is not on this machine: on a terminal only."""

from __future__ import annotations

import click

from localspec.cli import asking
from localspec.core.errors import NotDownloaded
from localspec.core.requests import WeightOptions
from localspec.models.catalog import Catalog


def pull_if_missing(model: str, draft: str = "auto") -> None:
    """Offers to pull a repository that is not here; NotDownloaded, which names the command, after a no or without a
    terminal."""
    catalog = Catalog.load()
    try:
        catalog.resolve(model)
    except NotDownloaded:
        repo = catalog.repository(model)
        if not repo or not asking.interactive():
            raise
        if not asking.confirmed(f"{repo} is not on this machine. Pull it now?", default=True, to_do="download"):
            raise
        pull_now(model, draft, catalog)


def pull_now(model: str, draft: str, catalog: Catalog) -> None:
    """Pulls it with all questions; leaves the program with the pull's exit code if that is not 0."""
    from localspec.cli.pulling.asked import Asked, request_of
    from localspec.cli.pulling.command import pull

    wanted = "none" if draft == "off" else "auto"
    if code := pull(Asked(model, request_of(model, catalog, WeightOptions(), draft=wanted, key="", xet=False))):
        raise click.exceptions.Exit(code)
