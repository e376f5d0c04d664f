"""The paths of a repository in the shared Hugging Face cache: blobs by their hash, parts of them, locks and snapshots.

The layout is the hub library's own, so that its programs and ours see the same files. Knows no network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from localspec.core.errors import PullError
from localspec.core.sanitize import one_line
from localspec.hub.records import RemoteFile, Repository
from localspec.models import hub_cache

PART = ".localspec.incomplete"  # the library's programs count and prune what ends in .incomplete
SHA256, GIT_SHA1 = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")

REVISION = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")


def repo_dir(repo: str) -> Path:
    if not hub_cache.REPOSITORY.fullmatch(repo) or ".." in repo:
        raise PullError(f"'{one_line(repo)}' is not the name of a repository.", hint="Give owner/name.")
    return hub_cache.kept(repo)


def snapshot_dir(repo: str, commit: str) -> Path:
    if not hub_cache.COMMIT.fullmatch(commit):
        raise PullError(f"The hub gave no commit for {repo}.", hint="Repeat the command.")
    return repo_dir(repo) / "snapshots" / commit


def known_hash(file: RemoteFile) -> str:
    """The hash that names a file's blob: sha256, or git's own for a small one; "" where the hub gives none."""
    found = SHA256.fullmatch(file.sha256) if file.sha256 else GIT_SHA1.fullmatch(file.blob_id)
    return found[0] if found else ""


def hash_of(file: RemoteFile) -> str:
    if known := known_hash(file):
        return known
    raise PullError(f"The hub gave no hash for {one_line(file.path)}.", hint="Repeat the command.")


def check_names(repository: Repository) -> None:
    """PullError where a name that the hub gives could lead outside of the repository's folder."""
    snapshot_dir(repository.repo, repository.commit)
    reference(repository.repo, repository.revision or "main")
    for file in repository.files:
        hash_of(file)


def blob(repo: str, file: RemoteFile) -> Path:
    return repo_dir(repo) / "blobs" / hash_of(file)


def part(repo: str, file: RemoteFile) -> Path:
    """The path of the file's bytes until all of them are there."""
    return repo_dir(repo) / "blobs" / (hash_of(file) + PART)


def lock(repo: str, file: RemoteFile) -> Path:
    """The lock that the hub's own programs take while they fetch this file."""
    return lock_dir(repo) / f"{hash_of(file)}.lock"


def lock_dir(repo: str) -> Path:
    return hub_cache.folder() / ".locks" / repo_dir(repo).name


def locks(repo: str) -> Iterator[Path]:
    """The locks of its files, whether one is held or not."""
    return lock_dir(repo).glob("*.lock")


def size(path: Path) -> int:
    """The bytes of a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def bytes_here(repo: str, file: RemoteFile) -> int:
    """Bytes of a file that need not be fetched again: all of it, or those of a part. 0 without a hash to find them by:
    only what is fetched must have one."""
    if not known_hash(file):
        return 0
    whole = size(blob(repo, file)) == file.size and blob(repo, file).exists()
    return file.size if whole else min(file.size, size(part(repo, file)))


def is_complete(repository: Repository) -> bool:
    """Whether all its files are linked, with the right sizes and hashes as names, and its revision names the commit:
    an earlier pull, or a program of the hub's, has finished it."""
    revision = repository.revision or "main"
    if repository.commit not in (revision, read_reference(repository.repo, revision)):
        return False
    folder = snapshot_dir(repository.repo, repository.commit)
    return all(
        size(folder / file.path) == file.size and (folder / file.path).exists() and blob(repository.repo, file).exists()
        for file in repository.files
    )


def reference(repo: str, revision: str) -> Path:
    """The file that says which commit a branch or tag is."""
    if not REVISION.fullmatch(revision):
        raise PullError(
            f"'{one_line(revision)}' is not the name of a revision.", hint="Give a branch, a tag or a commit."
        )
    return repo_dir(repo) / "refs" / revision


def read_reference(repo: str, revision: str) -> str:
    try:
        return reference(repo, revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def parts(repo: str = "*") -> Iterator[Path]:
    """Unfinished files of this repository, or of all, whoever began them."""
    name = repo_dir(repo).name if repo != "*" else f"{hub_cache.MODELS}*"
    return hub_cache.folder().glob(f"{name}/blobs/*.incomplete")
