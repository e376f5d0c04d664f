"""`localspec pull` alone: what is unfinished, and going on with it."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.cli.download.command import pull
from localspec.cli.download.request import RequestedPull
from localspec.cli.io import print_error, print_note, print_text
from localspec.cli.questions import confirmed
from localspec.core.errors import Cancelled, LocalspecError
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.history.text.columns import columns
from localspec.hub.pulls import Unfinished, unfinished
from localspec.hub.records import PullRequest


def go_on(*, yes: bool, dry_run: bool = False, as_json: bool = False) -> int:
    """Lists what is unfinished, asks, and goes on with all of it, or with `dry_run` shows what it would be; the exit
    code of the first that fails, behind which the others go on. Its yes is to downloads alone: a licence has a question
    of its own."""
    found = unfinished()
    if not found:
        print_note("Nothing is unfinished. Download a model: localspec pull ORG/NAME, or a name of the catalogue.")
        return 0
    if not as_json:
        print_text(unfinished_table(found))
    asks = any(not one.running for one in found) and not (yes or dry_run)
    if asks and not confirmed("Continue?", default=True, to_do="go on"):
        return Cancelled.exit_code
    first = 0
    for request in requests(found):
        try:
            code = pull(RequestedPull(request.name, request, yes, dry_run, json=as_json, agreed=True))
            if code == Cancelled.exit_code:  # Ctrl+C, which is meant for all
                return code
        except LocalspecError as fault:
            say = print_note if isinstance(fault, Cancelled) else print_error
            say(str(fault))
            code = fault.exit_code
        first = first or code
    return first


def requests(found: Sequence[Unfinished]) -> list[PullRequest]:
    """What to pull, each once, what runs already at the end: a drafter's part belongs to its target's pull; another
    program's part has no request."""
    in_order = sorted(found, key=lambda one: one.running)
    asked = [one.request or PullRequest(one.repo, draft="none") for one in in_order]
    return list({one.name: one for one in asked}.values())


def unfinished_table(found: Sequence[Unfinished]) -> str:
    return columns([(one_line(one.name), size_of(one), state(one)) for one in found])


def size_of(one: Unfinished) -> str:
    return f"{size_words(one.done)} of {size_words(one.total)}" if one.total else size_words(one.done)


def state(one: Unfinished) -> str:
    return "is being downloaded" if one.running else one_line(one.reason)
