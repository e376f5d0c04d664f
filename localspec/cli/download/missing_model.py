"""The pull of a model that `chat` or `run` needs and that is not on this machine: on a terminal only, where the plan
asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import click

from localspec.cli import questions
from localspec.cli.io import print_note
from localspec.core.errors import NotDownloaded
from localspec.history import StoredChat
from localspec.models.catalog import FETCH, Catalog, is_path
from localspec.models.model_paths import means_file


@contextmanager
def own_model_named(chat: StoredChat | None) -> Iterator[None]:
    """NotDownloaded of this chat's own model says whose it is, and how to go on without; None: another was named."""
    try:
        yield
    except NotDownloaded as fault:
        if chat is None:
            raise
        message = f"The model of this chat is missing. {fault.message}"
        hint = f"Go on with another: localspec chat guide --chat {chat.id}"
        fetch = f"{fault.hint}. " if fault.hint.startswith(FETCH) else ""
        raise NotDownloaded(message, hint=f"{fetch}{hint}") from fault


@contextmanager
def model_comes_first(model: str) -> Iterator[None]:
    """NotDownloaded for what reads as a prompt and as no name says where the model stands."""
    try:
        yield
    except NotDownloaded as fault:
        if len(model.split()) < 2 or is_path(model) or means_file(model):
            raise
        raise NotDownloaded(fault.message, hint="The model comes first: localspec run MODEL PROMPT") from fault


def pull_if_missing(model: str, draft: str = "auto") -> None:
    """Pulls a repository that is not here, after the plan's questions; NotDownloaded, which names the command, without
    a terminal."""
    catalog = Catalog.load()
    try:
        catalog.resolve(model)
    except NotDownloaded:
        repo = catalog.repository(model)
        if not repo or not questions.interactive():
            raise
        print_note(f"{repo} is not on this machine. This is what a pull would fetch:")
        pull_now(model, draft)


def pull_now(model: str, draft: str) -> None:
    """Pulls it with all questions, and shows it on stderr, since stdout is the answer's; leaves the program with the
    pull's exit code if that is not 0."""
    from localspec.cli.download.command import pull
    from localspec.cli.download.request import RequestedPull
    from localspec.hub.request import pull_request

    request = pull_request(model, draft="none" if draft == "off" else "auto")
    with redirect_stdout(sys.stderr):
        code = pull(RequestedPull(model, request))
    if code:
        raise click.exceptions.Exit(code)
