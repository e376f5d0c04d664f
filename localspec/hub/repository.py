"""A repository before any download: what the hub says of it, whether this account may read it, and its model from
headers.

Knows nothing about drafters, memory or the disk's free space.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from localspec.core.errors import CHOOSE_ANOTHER, REPEAT, AccessDenied, CheckpointError, PullError, UsageError
from localspec.core.sanitize import one_line
from localspec.hub.blobs import bytes_here
from localspec.hub.client import Client, RepoInfo, Sibling
from localspec.hub.gates import closed_gate, next_step, state_sentence
from localspec.hub.headers import Heard, RemoteRepo, open_headers, unheard
from localspec.hub.licences import read_licence
from localspec.hub.records import Access, Licence, RemoteFile, Repository
from localspec.hub.selection import check_paths, is_gguf, pick, select, variants
from localspec.loading.footprint import num_elements
from localspec.models import hub_cache
from localspec.models.checkpoint import Snapshot
from localspec.models.prequantised.stored_format import stored_format

NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
WRITE = "Write OWNER/MODEL."


@dataclass(frozen=True, slots=True)
class Seen:
    """A repository at one commit. `asked`: the revision that was asked for; `all_files`: what it has, checked."""

    remote: RemoteRepo
    asked: str
    info: RepoInfo
    access: Access
    licence: Licence

    @property
    def repo(self) -> str:
        return self.remote.repo

    @property
    def all_files(self) -> tuple[RemoteFile, ...]:
        return self.remote.files


@dataclass(frozen=True, slots=True)
class Inspected:
    """A repository with the files that would be fetched, and its model. `snapshot` None: no header may be read, or
    `unloadable` says why localspec could not load it."""

    seen: Seen
    files: tuple[RemoteFile, ...]
    snapshot: Snapshot | None
    unloadable: str = ""


def check_name(repo: str) -> str:
    """The name; UsageError if it cannot be a repository's."""
    if not NAME.fullmatch(repo) or ".." in repo or "--" in repo:
        raise UsageError(f"'{one_line(repo)[:120]}' is not the name of a repository.", hint=WRITE)
    return repo


def see(client: Client, repo: str, revision: str, scratch: Path) -> Seen:
    """What the hub says of a repository; refused if it has a path that must not be written."""
    info = client.info(check_name(repo), revision)
    repo = info.id if info.id.casefold() == repo.casefold() else repo  # the hub's names are found in any case
    if info.disabled:
        raise AccessDenied(f"The hub has disabled {repo}.", hint=CHOOSE_ANOTHER)
    if not hub_cache.COMMIT.fullmatch(info.sha or ""):
        raise PullError(f"The hub gave no commit for {repo}.", hint="Repeat the command.")
    files = tuple(remote_file(repo, one) for one in info.siblings or ())
    check_paths(repo, files)
    remote = RemoteRepo(client, repo, info.sha or "", files, scratch)
    return Seen(remote, revision, info, access_to(client, repo, info), read_licence(info.card_data, info.tags or ()))


def remote_file(repo: str, found: Sibling) -> RemoteFile:
    size = found.lfs.size if found.lfs else found.size or 0
    file = RemoteFile(found.rfilename, size, found.lfs.sha256 if found.lfs else "", found.blob_id or "")
    return msgspec.structs.replace(file, here=bytes_here(repo, file))


def access_to(client: Client, repo: str, info: RepoInfo) -> Access:
    """Whether this account may read a repository: asked of the hub only where there is a gate."""
    if not info.gated:
        return Access()
    answer = client.may_read(repo)
    account = account_of(client)
    gate = (
        "granted"
        if not answer.says_no
        else closed_gate(answer.status, answer.code, answer.message, logged_in=bool(client.login.token))
    )
    page = f"{client.endpoint}/{repo}"
    return Access(gate, page, account, info.gated == "manual", client.login.hides_saved)


def account_of(client: Client) -> str:
    """The account's name; "" where the hub does not say it: the state of a gate does not depend on it."""
    with suppress(PullError):
        return client.account()
    return ""


def denied(seen: Seen) -> AccessDenied:
    """AccessDenied for a repository behind a closed gate, with its state and the next step."""
    sentence = f"{seen.repo}: {state_sentence(seen.access)}"
    return AccessDenied(sentence, hint=next_step(seen.repo, seen.access.page, seen.access))


def files_of(seen: Seen, variant: str) -> tuple[RemoteFile, ...]:
    """The files to fetch; none of a GGUF repository with several models without a chosen one. Raises what forbids any
    of them."""
    if is_gguf(seen.all_files):
        known = variants(seen.all_files)
        variant = variant or (next(iter(known)) if len(known) == 1 else "")
        if not variant:
            return ()
    if variant:
        return pick(seen.repo, seen.all_files, variant)
    return select(seen.repo, seen.all_files, seen.remote.read if seen.access.may_read else None)


def inspect(seen: Seen, files: Sequence[RemoteFile], heard: Heard = unheard) -> Inspected:
    """The model of these files, from headers; without one where the gate is closed or the loader would refuse it."""
    if not (seen.access.may_read and files):
        return Inspected(seen, tuple(files), None)
    try:
        return Inspected(seen, tuple(files), open_headers(seen.remote, files, heard))
    except CheckpointError as fault:
        why = fault.message if fault.hint == REPEAT else str(fault)  # nothing of it was downloaded before
        return Inspected(seen, tuple(files), None, one_line(why))


def record(found: Inspected) -> Repository:
    """The repository as the plan shows it. What the headers say goes before what the hub says."""
    seen, snapshot, config = found.seen, found.snapshot, found.seen.info.config or {}
    model_type = (snapshot.config if snapshot else config).get("model_type")
    return Repository(
        repo=seen.repo,
        revision=seen.asked,
        commit=seen.remote.commit,
        files=found.files,
        licence=seen.licence,
        access=seen.access,
        parameters=num_elements(snapshot) if snapshot else seen.info.parameters,
        dtype=dtype_of(snapshot) if snapshot else one_line(seen.info.dtype)[:20],
        model_type=one_line(model_type)[:40] if isinstance(model_type, str) else "",
        chat_template=snapshot.chat_template is not None
        if snapshot
        else any(file.path == "chat_template.jinja" for file in found.files),
        flagged=tuple(file.path for file in found.files if file.path in seen.info.flagged),
    )


def dtype_of(snapshot: Snapshot) -> str:
    """How most of its weights are stored."""
    if kind := snapshot.stored_as or stored_format(snapshot.config):
        return kind
    sizes = Counter[str]()
    for info in snapshot.tensors.values():
        sizes[info.dtype] += info.num_bytes
    return max(sizes, key=sizes.__getitem__, default="")
