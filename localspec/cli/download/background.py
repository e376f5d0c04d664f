"""Downloads in a process of their own: starting one, watching one that runs, and stopping it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from time import monotonic, sleep

import msgspec

from localspec.cli.download import session
from localspec.cli.download.record import HELD, PullRecord, recorded
from localspec.cli.download.request import RequestedPull
from localspec.cli.download.session import Show
from localspec.cli.io import as_json, print_note, print_text
from localspec.core.errors import PullError, UsageError
from localspec.core.events import Event
from localspec.core.process import LOOK_SECONDS, STOP_SECONDS
from localspec.core.sanitize import one_line
from localspec.core.sizes import of_words
from localspec.hub import pulls
from localspec.hub.records import PullPlan
from localspec.hub.request import asked_repository


class Background(Event, frozen=True):
    """A download that goes on in a process of its own."""

    repo: str
    pid: int


def detach(asked: RequestedPull, plan: PullPlan) -> int:
    """Starts the same pull in a process of its own, which has the right to fetch from the start and ends with the
    download. It is listed from here on: the process itself first asks the hub again."""
    repo, record = asked.request.repo, PullRecord(asked.request.repo)
    with recorded(record) as held:
        if held is None:
            raise taken(asked)
        pid = started([*asked.words, "--json"], held.fd)
        record.note_holder(pid)
        for repository in plan.repositories:
            pulls.begin(repository, asked.request, pid)
    if asked.json:
        print(as_json(msgspec.to_builtins(Background(repo, pid))), flush=True)
    else:
        print_text("Downloading in the background.")
        print_text(f"  See how far it is: localspec pull {asked.typed}")
        print_text(f"  Stop it: localspec pull --stop {asked.typed}")
    return 0


def refuse_taken(asked: RequestedPull) -> None:
    """UsageError where another localspec fetches the same repository: what goes to the background waits for nothing."""
    if PullRecord(asked.request.repo).is_held:
        raise taken(asked)


def taken(asked: RequestedPull) -> UsageError:
    message = f"Another localspec is downloading {asked.request.repo}: nothing was started."
    return UsageError(message, hint=f"See how far it is: localspec pull {asked.typed}")


def started(words: list[str], fd: int) -> int:
    """The id of a new process that runs this command silently and has the lock with this descriptor."""
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", "localspec", *words]
    environment = {**os.environ, HELD: str(fd)}
    return subprocess.Popen(
        command, stdin=quiet, stdout=quiet, stderr=quiet, env=environment, pass_fds=(fd,), start_new_session=True
    ).pid


def watch_another(asked: RequestedPull, show: Show) -> None:
    """Shows another localspec's pull of the same repository until it ends: it is not fetched twice."""
    if asked.dry_run or HELD in os.environ:
        return
    record = PullRecord(asked.request.repo)
    if not record.is_held:
        return
    print_note(f"Another localspec is downloading {asked.request.repo}. Ctrl+C leaves it alone.")
    session.follow(record, show)


def stop(typed: str, *, seconds: float = STOP_SECONDS) -> int:
    """Ends the process that pulls a repository, or the target that it drafts for; what came stays."""
    repo = asked_repository(typed)[0]
    kept = pulls.known(repo)
    record = PullRecord(kept.request.repo if kept else repo)
    if not record.is_held:
        if pulls.running(repo):
            raise UsageError(f"{repo} is being downloaded by a chat.", hint="Stop it there: Ctrl+O, Downloads.")
        print_note(f"{one_line(repo)} is not being downloaded.")
        return 0
    with suppress(ProcessLookupError):
        os.kill(record.holder, signal.SIGINT)
    ends = monotonic() + seconds
    while record.is_held or pulls.running(repo):  # the process that fetches ends a little after the one that holds it
        if monotonic() > ends:
            raise PullError(f"The download of {repo} does not end.", hint="Repeat the command.")
        sleep(LOOK_SECONDS)
    print_note(f"Stopped. {kept_words(repo)}Go on: localspec pull {typed}")
    return 0


def kept_words(repo: str) -> str:
    """How much of an unfinished download is on disk, as a sentence."""
    found = next((one for one in pulls.unfinished() if one.repo == repo and one.done), None)
    if found is None:
        return ""
    return f"Progress is kept: {of_words(found.done, found.total)}. "
