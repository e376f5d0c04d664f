"""Unfinished downloads: a small JSON file in the state folder for each revision of a repository and each of its GGUF
files, and the parts in the cache.

Written by the process that downloads, read by all others. Knows nothing about the network or the hub's library.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.events import Record
from localspec.core.plain_file import read_small
from localspec.core.process import Process, process_of, this
from localspec.core.whole_file import write_whole
from localspec.hub import blobs
from localspec.hub.records import PullRequest, RemoteFile, Repository
from localspec.models import hub_cache
from localspec.models.gguf.quants import whole

INTERRUPTED = "interrupted"
FOREIGN = "begun by another program"
DROPPED = "dropped; parts kept"


class PullState(Record, frozen=True):
    """What the state folder has of a download: what was asked, and the process that runs it, or ran it last."""

    repo: str
    commit: str
    files: tuple[RemoteFile, ...]
    request: PullRequest
    reason: str
    at: float
    pid: int
    pid_began: float
    revision: str = ""


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

    @property
    def name(self) -> str:
        """What the user types for it; of a drafter its repository."""
        return self.request.name if self.request and self.request.repo == self.repo else self.repo


KEPT = msgspec.json.Decoder(PullState)


def begin(repository: Repository, request: PullRequest, pid: int | None = None) -> None:
    """Notes that this process, or the one with this id, downloads it; should it be killed, this stays. Nothing of one
    that has ended already."""
    if (process := this() if pid is None else process_of(pid)) is not None:
        kept = PullState(
            repository.repo,
            repository.commit,
            repository.files,
            request,
            INTERRUPTED,
            time.time(),
            process.pid,
            process.began,
            repository.revision,
        )
        write(kept)


def stop(repository: Repository, reason: str) -> None:
    """Notes why it stopped."""
    with suppress(UsageError):
        if kept := read(file_of(repository)):
            write(msgspec.structs.replace(kept, reason=reason, at=time.time(), pid=0))


def finish(repository: Repository) -> None:
    """Deletes the note of a repository that is complete."""
    for file, kept in notes():
        if kept.repo == repository.repo and file_of(kept) == file_of(repository):
            remove(file)


def forget(repo: str) -> None:
    """Deletes the notes of a repository, of every revision. Its drafter that is not complete is a download of its own
    from now on: to go on with it does not fetch the target again."""
    for file, kept in notes():
        if kept.repo == repo:
            remove(file)
        elif kept.request.repo == repo:
            write(msgspec.structs.replace(kept, request=request_alone(kept)))


def drop(request: PullRequest) -> None:
    """Removes the notes of a pull that the user no longer wants: of its target and its drafter."""
    for file, kept in notes():
        if kept.request.name == request.name:
            remove(file)


def unfinished() -> list[Unfinished]:
    """Downloads that did not end, ours and those of other programs, the newest first."""
    ours = [kept for _, kept in notes()]
    found = [found_of(kept) for kept in ours]
    found += foreign({kept.repo for kept in ours})
    return sorted(found, key=lambda one: -one.at)


def running(repo: str) -> bool:
    """Whether another process downloads this repository now."""
    return any(kept.repo == repo and kept.pid != os.getpid() and is_alive(kept) for _, kept in notes())


def found_of(kept: PullState) -> Unfinished:
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


def is_alive(kept: PullState) -> bool:
    return kept.pid > 0 and Process(kept.pid, kept.pid_began).is_alive


def read(file: Path) -> PullState | None:
    """The state in a file; None where there is none, or it cannot be read."""
    try:
        return KEPT.decode(read_small(file))
    except (OSError, ValueError, RecursionError):
        return None


def known(repo: str) -> PullState | None:
    """What is noted of this repository: of the pull that runs, before others."""
    found = [kept for _, kept in notes() if kept.repo == repo]
    return max(found, key=lambda kept: (is_alive(kept), kept.at), default=None)


def write(kept: PullState) -> None:
    with suppress(OSError, UsageError):  # without it the download goes on: only `pull` alone will not name it
        write_whole(file_of(kept), msgspec.json.format(msgspec.json.encode(kept)))


def remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink(missing_ok=True)


def request_alone(kept: PullState) -> PullRequest:
    """The request for a drafter without its target."""
    variant = whole(gguf_of(kept)) if gguf_of(kept) else ""
    return PullRequest(kept.repo, kept.revision, variant, draft="none", xet=kept.request.xet)


def file_of(one: PullState | Repository) -> Path:
    return state_file(one.repo, one.revision, gguf_of(one))


def gguf_of(one: PullState | Repository) -> str:
    """The first of the GGUF files that are one model; "" where it is none."""
    return min((file.path for file in one.files if file.path.endswith(".gguf")), default="")


def state_file(repo: str, revision: str = "", weights: str = "") -> Path:
    """The file of a note. `weights`: the GGUF file; a hash stands for what need not be a file's name."""
    beside = f"{'' if revision == hub_cache.MAIN else revision}:{weights}"
    mark = f"@{sha256(beside.encode()).hexdigest()[:16]}" if beside != ":" else ""
    return paths.pulls_dir() / f"{blobs.repo_dir(repo).name}{mark}.json"


def notes() -> list[tuple[Path, PullState]]:
    """All that can be read, with their files."""
    try:
        files = sorted(paths.pulls_dir().glob("*.json"))
    except UsageError:
        return []
    return [(file, kept) for file in files if (kept := read(file))]
