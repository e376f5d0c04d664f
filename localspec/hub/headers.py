"""Reads a model's headers from the hub into a folder that the loader opens as it is: small files whole, weight files
sparse, as long as they say and with nothing but their headers.

Kept by commit, within bounds. Downloads no weights and decides nothing about the model.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha1, sha256
from io import RawIOBase
from pathlib import Path
from typing import IO, Any, cast  # Any: a stranger's config.json

from localspec.core.errors import CHOOSE_ANOTHER, FULL, CheckpointError, DoesNotFit, PullError
from localspec.core.sanitize import one_line
from localspec.core.whole_file import write_whole
from localspec.engine.arch import Arch
from localspec.engine.generic_arch import read_any
from localspec.hub.client import Client
from localspec.hub.records import RemoteFile
from localspec.hub.selection import BESIDE, ELSE, GGUF, weights_of
from localspec.loading.tensor_names import check_tensors
from localspec.models.bounds import MAX_TEMPLATE_BYTES
from localspec.models.checkpoint import (
    MAX_CONFIG_BYTES,
    MAX_TOKENIZER_BYTES,
    Snapshot,
    open_snapshot,
    read_config,
)
from localspec.models.gguf.header import MAX_LATER_BYTES, read_stream
from localspec.models.gguf.names import ROPE_FACTORS
from localspec.models.gguf.reading import MAX_BYTES
from localspec.models.prequantised.stored_format import stored_format
from localspec.models.safetensors_index import INDEX, MAX_HEADER_BYTES, MAX_INDEX_BYTES

AT_ONCE = 8  # requests
CONFIG = "config.json"
FIRST_BYTES = 100_000  # of a safetensors file; most headers are shorter
FIRST_GGUF_BYTES = 1 << 20
MAX_ALL_HEADERS = 256 << 20  # of one model; real ones have a few MB
MAX_KEPT_BYTES = 512 << 20  # of all models' headers and tokenizers
LIMITS = {
    "tokenizer.json": MAX_TOKENIZER_BYTES,
    "chat_template.jinja": MAX_TEMPLATE_BYTES,
    INDEX: MAX_INDEX_BYTES,
}
Heard = Callable[[int, int], None]  # how many files' headers are read, of how many


def unheard(done: int, total: int) -> None:
    """Progress that nothing shows."""


@dataclass(frozen=True)
class RemoteRepo:
    """A repository at one commit, with all its `files`; `scratch` keeps the headers of all repositories."""

    client: Client
    repo: str
    commit: str
    files: tuple[RemoteFile, ...]
    scratch: Path
    by_path: dict[str, RemoteFile] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_path", {file.path: file for file in self.files})

    @property
    def folder(self) -> Path:
        return self.scratch / self.repo.replace("/", "--") / self.commit

    def read(self, path: str) -> bytes:
        """A small file, whole and checked: from the folder if it is there."""
        file, limit = self.by_path[path], LIMITS.get(path, MAX_CONFIG_BYTES)
        kept = self.folder / path
        with suppress(OSError):
            if kept.stat().st_size == file.size:
                return kept.read_bytes()
        if file.size > limit:
            message = f"{self.repo}/{path} is too large ({file.size:,} bytes, at most {limit:,} are read)."
            raise CheckpointError(message, hint=CHOOSE_ANOTHER)
        content = self.client.read(self.repo, self.commit, path, file.size)
        if not is_content(file, content):
            raise PullError(f"{self.repo}/{path}: its bytes do not have the hub's hash.", hint="Repeat the command.")
        with disk_faults():
            write_whole(kept, content)
        return content


def is_content(file: RemoteFile, content: bytes) -> bool:
    """Whether these bytes have the hash that the repository lists."""
    if file.sha256:
        return sha256(content).hexdigest() == file.sha256
    blob = sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return not file.blob_id or blob == file.blob_id


def open_headers(remote: RemoteRepo, chosen: Sequence[RemoteFile], heard: Heard = unheard) -> Snapshot:
    """The model as the loader sees it, from headers alone; CheckpointError, with the loader's sentence, for what it
    would not load: of a configuration that it would not, before any weight file is touched."""
    weights = weights_of(chosen)
    small = [file.path for file in chosen if file.path in (*BESIDE, INDEX)]
    with disk_faults():
        remote.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    all_of([partial(remote.read, path) for path in small], lambda done: heard(done, len(chosen)))
    with named_by_repository(remote):
        if small:
            stored_format(refused_or(read_config(remote.folder / CONFIG)))
        share = MAX_ALL_HEADERS // len(weights)
        fetches = [partial(fetch, remote, file, share) for file in weights]
        all_of(fetches, lambda done: heard(len(small) + done, len(chosen)))
        trim(remote.scratch, remote.folder)
        first = weights[0].path
        is_file = first.lower().endswith(GGUF)
        snapshot = open_snapshot(remote.folder / first if is_file else remote.folder, remote.repo)
        stored_format(refused_or(snapshot.config))
        refuse_other_tensors(snapshot)
        snapshot.read_tokenizer()
        return snapshot


def refused_or(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration; CheckpointError for a family that nothing here runs."""
    read_any(config)
    return config


def refuse_other_tensors(snapshot: Snapshot) -> None:
    """CheckpointError where the tensors are not those of the configuration. Of a family that transformers runs only
    transformers knows which those are."""
    arch = read_any(snapshot.config)
    if isinstance(arch, Arch):
        try:
            check_tensors(snapshot, arch)
        except CheckpointError as fault:
            raise CheckpointError(fault.message, hint=ELSE) from fault


def all_of(jobs: Sequence[Callable[[], object]], heard: Callable[[int], None]) -> None:
    """Runs the jobs, a few at once; the first fault ends it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(job) for job in jobs]
        try:
            for done, job in enumerate(running, start=1):
                job.result()
                heard(done)
        finally:
            for job in running:
                job.cancel()


@contextmanager
def named_by_repository(remote: RemoteRepo) -> Iterator[None]:
    """Names files in errors by their repository instead of the folder of their headers."""
    try:
        yield
    except CheckpointError as fault:
        raise CheckpointError(by_repository(remote, fault.message), hint=by_repository(remote, fault.hint)) from fault


def by_repository(remote: RemoteRepo, text: str) -> str:
    """The text with files named by their repository instead of the folder of their headers."""
    return one_line(text.replace(f"{remote.folder}/", f"{remote.repo}/").replace(str(remote.folder), remote.repo))


def fetch(remote: RemoteRepo, file: RemoteFile, most_bytes: int) -> None:
    """Writes one weight file sparse, unless it is there."""
    target = remote.folder / file.path
    if target.exists():
        return
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    with disk_faults():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with part.open("wb+") as stream:
            stream.truncate(file.size)
            if file.path.lower().endswith(GGUF):
                fetch_gguf(remote, file, stream)
            else:
                fetch_safetensors(remote, file, stream, most_bytes)
        os.replace(part, target)


def fetch_safetensors(remote: RemoteRepo, file: RemoteFile, stream: IO[bytes], most_bytes: int) -> None:
    """Eight bytes of length, and so many of JSON."""

    def read(begin: int, end: int) -> bytes:
        return remote.client.read_range(remote.repo, remote.commit, file.path, begin, end)

    got = read(0, min(FIRST_BYTES, file.size)) if file.size else b""
    length = int.from_bytes(got[:8], "little")
    end = min(8 + length, file.size)
    if length <= MAX_HEADER_BYTES and end > len(got):
        if end > most_bytes:
            message = f"{remote.repo}/{file.path} claims a header of {length:,} bytes."
            raise CheckpointError(message, hint=CHOOSE_ANOTHER)
        got += read(len(got), end)
    stream.write(got[:end])


def fetch_gguf(remote: RemoteRepo, file: RemoteFile, stream: IO[bytes]) -> None:
    """The metadata and the list of tensors; and the factors that belong to the configuration."""
    ranges = Ranges(remote, file, stream)
    where = Path(f"{remote.repo}/{file.path}")
    later = "-of-" in file.path and not file.path.endswith(f"-00001-of-{file.path[-10:]}")
    found = read_stream(where, cast(IO[bytes], ranges), file.size, MAX_LATER_BYTES if later else MAX_BYTES)
    info = found.tensors.get(ROPE_FACTORS)
    if info is not None and info.num_bytes <= FIRST_GGUF_BYTES:
        stream.seek(info.begin)
        stream.write(remote.client.read_range(remote.repo, remote.commit, file.path, info.begin, info.end))


class Ranges(RawIOBase):
    """A file of the hub as a stream that is read from its beginning, in growing ranges; copies what it reads."""

    def __init__(self, remote: RemoteRepo, file: RemoteFile, copy: IO[bytes]) -> None:
        self._remote, self._file, self._copy = remote, file, copy
        self._at, self._step = 0, FIRST_GGUF_BYTES

    def read(self, size: int = -1) -> bytes:
        """Reads at least `size` bytes, and more where the header has been long already."""
        end = min(self._file.size, self._at + max(size, self._step), MAX_BYTES)
        if end <= self._at:
            return b""
        found = self._remote.client.read_range(self._remote.repo, self._remote.commit, self._file.path, self._at, end)
        self._copy.write(found)
        self._at, self._step = end, 2 * self._step
        return found


@contextmanager
def disk_faults() -> Iterator[None]:
    """Raises a fault of the disk as DoesNotFit where it is full, else as a PullError."""
    try:
        yield
    except OSError as fault:
        if fault.errno in FULL:
            raise DoesNotFit("The disk is full.", hint="Free some space, then repeat the command.") from fault
        raise PullError(
            f"The headers cannot be written ({fault.strerror or fault}).", hint="Set LOCALSPEC_CACHE_DIR."
        ) from fault


def trim(scratch: Path, keep: Path) -> None:
    """Deletes the headers that were used the longest ago, beyond the bound; never those in use."""
    with suppress(OSError):
        os.utime(keep)
    left = MAX_KEPT_BYTES
    folders = [folder for folder in scratch.glob("*/*") if folder.is_dir()]
    for folder in sorted(folders, key=modified, reverse=True):
        left -= sum(blocks(file) for file in folder.rglob("*"))
        if left < 0 and folder != keep:
            shutil.rmtree(folder, ignore_errors=True)


def modified(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def blocks(file: Path) -> int:
    """Bytes that a file takes on the disk: of a sparse one only what was written."""
    with suppress(OSError):
        return file.stat().st_blocks * 512
    return 0
