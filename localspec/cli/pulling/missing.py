"""The offer to pull a model that `chat` or `run` needs and that is not on this machine: on a terminal only."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click

from localspec.cli import asking
from localspec.core.errors import NotDownloaded
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
        pull_now(model, draft)


def pull_now(model: str, draft: str) -> None:
    """Pulls it with all questions, and shows it on stderr, since stdout is the answer's; leaves the program with the
    pull's exit code if that is not 0."""
    from localspec.cli.pulling.asked import Asked
    from localspec.cli.pulling.command import pull
    from localspec.hub.asked import pull_request

    request = pull_request(model, draft="none" if draft == "off" else "auto")
    with redirect_stdout(sys.stderr):
        code = pull(Asked(model, request))
    if code:
        raise click.exceptions.Exit(code)
