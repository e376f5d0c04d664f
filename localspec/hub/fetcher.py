"""Fetches one file into the shared cache: under the hub's own lock, resumed by byte, hashed before it has its name.

Runs in a thread of a transfer and reports to its Watch. huggingface_hub does the protocol; ours are the part that
stays, the hash and the tries.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast  # Any: what a bar of tqdm is given
from urllib.parse import urlsplit

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import WeakFileLock, build_hf_headers, tqdm

from localspec.core.errors import HubAway, PullError
from localspec.core.events import Notice
from localspec.core.sanitize import one_line
from localspec.hub import blobs
from localspec.hub.disconnects import NO_ANSWER, PASSING, LocationExpired, status_of, why_cut
from localspec.hub.environment import endpoint
from localspec.hub.part import PIECE, PartFile
from localspec.hub.records import RemoteFile, Repository, Retrying
from localspec.hub.watch import Stopped, Watch
from localspec.models import hub_cache

TRIES = 2  # of a file whose bytes are wrong
LOCK_SECONDS = 0.2  # between two looks at what another process has fetched
LINKS = "links"
TOO_LARGE = "{} is over 50 GB: the hub's library fetches it, and a stopped download of it starts over."
XET_FAILED = "Xet could not fetch {}; localspec fetches it itself."
RANGE_REFUSED = 416

# The library would hold bytes back until it has 10 MiB: a slow line would look dead, and a killed one lose them.
constants.DOWNLOAD_CHUNK_SIZE = None  # type: ignore[assignment]


Result = TypeVar("Result")


class Fetcher:
    """The files of one repository. `waits`: seconds before each new try while none brings a byte."""

    def __init__(self, repository: Repository, watch: Watch, *, xet: bool, waits: Sequence[float]) -> None:
        self._repo, self._commit, self._files = repository.repo, repository.commit, repository.files
        self._watch, self._waits = watch, waits
        self._by_xet = {file.path for file in self._files if file.sha256} if xet else set[str]()
        self._endpoint = endpoint()
        self._cache = hub_cache.folder()

    def fetch(self, file: RemoteFile) -> None:
        """Makes the file whole, with its hash checked; PullError where the hub's bytes are wrong twice."""
        attempt = self._fetch_large if file.sha256 else self._fetch_small
        for _ in range(TRIES + (file.path in self._by_xet)):
            if attempt(file):
                return
        raise PullError(
            f"{one_line(file.path)}: its bytes do not have the hub's hash, even after a second download.",
            hint="It was deleted; nothing of it is used. Try again later.",
        )

    def link(self) -> None:
        """Links every file into the commit's snapshot; no reference names it yet."""
        for _ in range(TRIES):
            self._persist(LINKS, self._link_once, lambda: 0)
            if not (left := self._unlinked()):
                break
            self._persist(LINKS, self._ask_for_list, lambda: 0)
        else:
            raise PullError(f"{one_line(left[0].path)} could not be linked.", hint="Repeat the command.")
        for file in self._files:
            self._sweep(file)

    def _link_once(self) -> None:
        snapshot_download(
            self._repo,
            revision=self._commit,
            cache_dir=self._cache,
            allow_patterns=[glob.escape(file.path) for file in self._files],
            endpoint=self._endpoint,
            tqdm_class=counting(lambda _: self._watch.hear(LINKS)),
        )

    def _unlinked(self) -> list[RemoteFile]:
        folder = blobs.snapshot_dir(self._repo, self._commit)
        return [file for file in self._files if blobs.size(folder / file.path) != file.size]

    def _ask_for_list(self) -> None:
        """Raises what keeps the hub from listing the files: snapshot_download returns a part of the folder then, and
        does not say why."""
        hub = HfApi(endpoint=self._endpoint)
        for _ in hub.list_repo_tree(self._repo, recursive=True, revision=self._commit):
            self._watch.hear(LINKS)

    def _sweep(self, file: RemoteFile) -> None:
        """Deletes what killed processes left of a file that is whole now, unless one is still at it."""
        if left := list(blobs.blob(self._repo, file).parent.glob(f"{blobs.hash_of(file)}.*incomplete")):
            with suppress(TimeoutError), WeakFileLock(blobs.lock(self._repo, file), timeout=LOCK_SECONDS):
                for part in left:
                    part.unlink(missing_ok=True)

    def _fetch_small(self, file: RemoteFile) -> bool:
        """Fetches a file that git itself keeps, and says whether it has git's hash."""
        linked = self._by_library(file)
        content = linked.read_bytes()
        if sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() != file.blob_id:
            linked.resolve().unlink()
            linked.unlink(missing_ok=True)
            self._watch.found(file.path, 0)
            return False
        self._watch.found(file.path, file.size)
        return True

    def _fetch_large(self, file: RemoteFile) -> bool:
        """Fetches a file of the CDN, unless its blob is there, and says whether it has its sha256."""
        is_begun = blobs.bytes_here(self._repo, file) > 0
        by_xet, is_too_large = file.path in self._by_xet, file.size > constants.MAX_HTTP_DOWNLOAD_SIZE and not is_begun
        with self._locked(file):
            if self._is_whole(file):
                return True
            if not (by_xet or is_too_large):
                return self._download(file)
        if by_xet:
            return self._fetch_by_xet(file)
        self._note("xet", TOO_LARGE.format(one_line(file.path)))
        self._by_library(file)  # it takes the lock itself
        return self._is_whole(file)

    def _fetch_by_xet(self, file: RemoteFile) -> bool:
        """The same by Xet, once: the library keeps what it brought and would give it again, so the next try is ours."""
        self._by_xet.discard(file.path)
        try:
            self._by_library(file)
            if self._is_whole(file):
                return True
        except (RuntimeError, OSError):  # hf_xet has no classes of its own for most of its errors
            self._watch.go_on()
        self._note("xet", XET_FAILED.format(one_line(file.path)))
        return False

    def _is_whole(self, file: RemoteFile) -> bool:
        """Whether the blob is there and right; one that is wrong is deleted."""
        blob = blobs.blob(self._repo, file)
        if not blob.exists():
            return False
        digest = sha256()
        with self._watch.reading(file.path), blob.open("rb") as content:
            while piece := content.read(PIECE):
                self._watch.go_on()
                digest.update(piece)
        if digest.hexdigest() != file.sha256:
            blob.unlink()
            self._watch.found(file.path, 0)
            return False
        self._watch.checked.add(file.path)
        self._watch.found(file.path, file.size)
        return True

    def _download(self, file: RemoteFile) -> bool:
        """Fetches what its part lacks; a part with wrong bytes is deleted."""
        where = blobs.part(self._repo, file)
        with PartFile(where, file.size, lambda count: self._watch.moved(file.path, count)) as part:
            self._watch.found(file.path, part.tell())
            with self._watch.reading(file.path):
                part.read_again(self._watch.go_on)
            try:
                self._persist(file.path, lambda: self._get(file, part), part.tell)
                is_right = part.hexdigest() == file.sha256
            except OverflowError:
                is_right = False
            if not is_right:
                part.delete()
                self._watch.found(file.path, 0)
                return False
            part.become(blobs.blob(self._repo, file))
        self._watch.checked.add(file.path)
        return True

    def _get(self, file: RemoteFile, part: PartFile) -> None:
        """One request for the rest of a file, at the address that the hub gives now; addresses expire."""
        url = hf_hub_url(self._repo, file.path, revision=self._commit, endpoint=self._endpoint)
        found = get_hf_file_metadata(url)
        if found.etag != file.sha256:
            raise PullError(f"The hub now names another hash for {one_line(file.path)}.", hint="Repeat the command.")
        is_hub = urlsplit(found.location)[:2] == urlsplit(url)[:2]
        try:
            http_get(
                found.location,
                cast(BinaryIO, part),
                resume_size=part.tell(),
                headers=build_hf_headers() if is_hub else {},  # the token is for the hub's host alone
                expected_size=file.size,
                displayed_filename=one_line(file.path),
                tqdm_class=counting(lambda _: None),
            )
        except HfHubHTTPError as fault:
            if (status := status_of(fault)) == RANGE_REFUSED:
                raise OverflowError from fault
            raise fault if status in PASSING else LocationExpired from fault

    def _by_library(self, file: RemoteFile) -> Path:
        """Has the library fetch and link a file; it does not resume."""
        bar = counting(lambda count: self._watch.moved(file.path, count))

        def fetch() -> Path:
            self._watch.found(file.path, 0)
            linked = hf_hub_download(
                self._repo,
                file.path,
                revision=self._commit,
                cache_dir=self._cache,
                endpoint=self._endpoint,
                tqdm_class=bar,
            )
            return Path(linked)

        return self._persist(file.path, fetch, lambda: 0)

    def _persist(self, what: str, attempt: Callable[[], Result], have: Callable[[], int]) -> Result:
        """Tries until the hub answers; each wait is longer, until bytes come again. HubAway after the last. Of a hub
        that does not answer, the transfer says how long it waits for it, over all tries."""
        waits = iter(self._waits)
        with self._watch.asking(what):
            while True:
                before = have()
                try:
                    return attempt()
                except Exception as fault:
                    if not (reason := why_cut(fault)):
                        raise
                    waits = iter(self._waits) if have() > before else waits
                    if (wait := next(waits, None)) is None:
                        raise HubAway(f"The download stopped: {reason}.", hint=self._watch.kept) from fault
                if reason != NO_ANSWER:
                    self._watch.reported.put(Retrying(self._repo, reason, wait))
                    self._watch.rest(what, wait)
                elif self._watch.stop.wait(wait):
                    raise Stopped

    def _note(self, code: str, message: str) -> None:
        self._watch.reported.put(Notice("info", code, message))

    @contextmanager
    def _locked(self, file: RemoteFile) -> Iterator[None]:
        """Holds the lock that the hub's own programs take for this file; until it is free, shows how far they are."""
        lock = blobs.lock(self._repo, file)
        lock.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            waits = False
            while True:
                try:
                    held.enter_context(WeakFileLock(lock, timeout=LOCK_SECONDS))
                    break
                except TimeoutError:
                    self._watch.found(file.path, blobs.bytes_here(self._repo, file))
                if not waits:
                    self._note("waits", f"Another program fetches {one_line(file.path)}; this one waits for it.")
                    waits = True
            yield


def counting(moved: Callable[[int], None]) -> type[tqdm]:
    """A bar that shows nothing and passes on what it counts. With Xet there are two: of bytes on the line, which only
    show that it lives, and of bytes on disk."""

    class Counting(tqdm):
        def __init__(self, *args: Any, **given: Any) -> None:
            self._on_the_line = "downloading bytes" in given.get("desc", "")
            super().__init__(*args, **{**given, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            moved(0 if self._on_the_line else int(n or 0))

    return Counting
