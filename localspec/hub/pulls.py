"""Unfinished downloads: one small JSON file for each repository in the state folder, and the parts in the cache.

Written by the process that downloads, read by all others. Knows nothing about the network or the hub's library.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.events import Record
from localspec.core.plain_file import read_small
from localspec.core.whole_file import write_whole
from localspec.hub import blobs
from localspec.hub.records import PullRequest, RemoteFile, Repository
from localspec.models import hub_cache

INTERRUPTED = "interrupted"
FOREIGN = "begun by another program"
DROPPED = "dropped; parts kept"


class Kept(Record, frozen=True):
    """What the state folder has of a download: what was asked, and the process that runs it, or ran it last."""

    repo: str
    commit: str
    files: tuple[RemoteFile, ...]
    request: PullRequest
    reason: str
    at: float
    pid: int
    pid_began: float


class Unfinished(Record, frozen=True):
    """A download that is not complete. `total` 0 and `request` None: another program's or a dropped one, of which only
    the parts are known. `at`: when it began or stopped, in seconds since 1970; `running`: a process is at it now."""

    repo: str
    commit: str
    done: int
    total: int
    reason: str
    at: float
    request: PullRequest | None = None
    running: bool = False


KEPT = msgspec.json.Decoder(Kept)


def begin(repository: Repository, request: PullRequest) -> None:
    """Notes that this process downloads it; should it be killed, this stays."""
    own = psutil.Process()
    kept = Kept(
        repository.repo,
        repository.commit,
        repository.files,
        request,
        INTERRUPTED,
        time.time(),
        own.pid,
        own.create_time(),
    )
    write(kept)


def stop(repo: str, reason: str) -> None:
    """Notes why it stopped."""
    if kept := known(repo):
        write(msgspec.structs.replace(kept, reason=reason, at=time.time(), pid=0))


def finish(repo: str) -> None:
    """Nothing of it is missing any more, or nothing is there."""
    with suppress(OSError, UsageError):
        state_file(repo).unlink(missing_ok=True)


def unfinished() -> list[Unfinished]:
    """Downloads that did not end, ours and those of other programs, the newest first."""
    ours = [kept for file in state_files() if (kept := read(file))]
    found = [found_of(kept) for kept in ours]
    found += foreign({kept.repo for kept in ours})
    return sorted(found, key=lambda one: -one.at)


def running(repo: str) -> bool:
    """Whether another process downloads this repository now."""
    kept = known(repo)
    return kept is not None and kept.pid != os.getpid() and is_alive(kept)


def found_of(kept: Kept) -> Unfinished:
    done = sum(blobs.bytes_here(kept.repo, file) for file in kept.files)
    total = sum(file.size for file in kept.files)
    return Unfinished(kept.repo, kept.commit, done, total, kept.reason, kept.at, kept.request, is_alive(kept))


def foreign(ours: set[str]) -> Iterator[Unfinished]:
    """Parts in the cache that belong to no download of ours, or no longer: ours have a name of their own."""
    left: dict[str, list[Path]] = {}
    for part in blobs.parts():
        left.setdefault(hub_cache.repository(part.parent.parent.name), []).append(part)
    for repo, found in left.items():
        if repo not in ours:
            at = max(map(changed, found))
            reason = DROPPED if any(part.name.endswith(blobs.PART) for part in found) else FOREIGN
            yield Unfinished(repo, "", sum(map(blobs.size, found)), 0, reason, at)


def changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def is_alive(kept: Kept) -> bool:
    if kept.pid <= 0:
        return False
    try:
        process = psutil.Process(kept.pid)
        return bool(process.create_time() == kept.pid_began and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def read(file: Path) -> Kept | None:
    """The state in a file; None where there is none, or it cannot be read."""
    try:
        return KEPT.decode(read_small(file))
    except (OSError, ValueError, RecursionError):
        return None


def known(repo: str) -> Kept | None:
    with suppress(UsageError):
        return read(state_file(repo))
    return None


def write(kept: Kept) -> None:
    with suppress(OSError, UsageError):  # without it the download goes on: only `pull` alone will not name it
        write_whole(state_file(kept.repo), msgspec.json.format(msgspec.json.encode(kept)))


def state_file(repo: str) -> Path:
    return paths.pulls_dir() / f"{blobs.repo_dir(repo).name}.json"


def state_files() -> list[Path]:
    try:
        return sorted(paths.pulls_dir().glob("*.json"))
    except UsageError:
        return []
