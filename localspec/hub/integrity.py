"""Checks a model's files on this machine against the hashes that are known of them. Needs no network, no hub library.

In a Hugging Face cache a blob's name is its hash; elsewhere what can be checked is the form and the length.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha1, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from localspec.core.errors import LocalspecError, first_line
from localspec.core.events import Event, Record
from localspec.core.plain_file import plain
from localspec.core.sanitize import one_line
from localspec.core.strict_json import read_bytes, read_object
from localspec.hub import manifests
from localspec.hub.blobs import GIT_SHA1, SHA256, size
from localspec.hub.part import PIECE
from localspec.hub.records import RemoteFile
from localspec.hub.selection import is_gguf, is_paper, select
from localspec.models import hub_cache
from localspec.models.gguf.header import read_gguf
from localspec.models.safetensors_index import INDEX, MAX_INDEX_BYTES, SINGLE, read_header, shard_names

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

State = Literal["right", "wrong", "missing", "unknown"]
OLLAMA = re.compile(r"sha256[-:]([0-9a-f]{64})")
SHA256_DIGITS = 64
CONFIG, WEIGHTS = "config.json", (".safetensors", ".gguf")
STEPS = 500  # of progress, however large the model is
FORM_IS_RIGHT = "no hash of it is known; its header and its length are right"
NOTHING_KNOWN = "no hash of it is known"
MAX_TREE_BYTES = 64 << 20


class FileFound(Record, frozen=True):
    """One file: "unknown" where there is no hash to compare with, and then `detail` says what was checked instead.
    `stored`: the file with its bytes, where `path` is a link."""

    path: str
    num_bytes: int
    state: State
    detail: str = ""
    stored: str = ""


class Verifying(Event, frozen=True):
    """How far the check is, in bytes."""

    file: str
    done: int
    total: int


class FilesVerified(Event, frozen=True, tag="files-verified"):
    """The result for every file."""

    name: str
    folder: str
    files: tuple[FileFound, ...]

    @property
    def bad(self) -> tuple[FileFound, ...]:
        return tuple(file for file in self.files if file.state in ("wrong", "missing"))

    @property
    def bad_words(self) -> str:
        """What is not right, without a full stop."""
        wrong = [one_line(file.path) for file in self.files if file.state == "wrong"]
        missing = [one_line(file.path) for file in self.files if file.state == "missing"]
        faults = {"not the bytes that the hub has": wrong, "missing": missing}
        return "; ".join(f"{', '.join(names)}: {what}" for what, names in faults.items() if names)


class Listed(msgspec.Struct, frozen=True):
    """What the hub's tree says of a file, as the library keeps it for each commit."""

    size: int
    blob_id: str
    lfs_sha256: str | None = None

    @property
    def hash(self) -> str:
        return self.lfs_sha256 or self.blob_id


class HubTree(msgspec.Struct, frozen=True):
    files: dict[str, Listed]


TREE = msgspec.json.Decoder(HubTree)


def verify_files(path: Path, name: str = "") -> Iterator[Verifying | FilesVerified]:
    """Reads every file of a model, a folder or one file; the result comes last."""
    folder, names = (path, walked(path)) if path.is_dir() else (path.parent, [path.name])
    listed = listed_in(folder)
    total = sum(size(folder / file) for file in names)
    done, shown, found = 0, 0, []
    for file in names:
        checking = check(folder / file, file, listed.get(file))
        for step in checking:
            if isinstance(step, FileFound):
                found.append(step)
            else:
                done += step
                if done - shown >= total / STEPS or done == total:
                    shown = done
                    yield Verifying(file, min(done, total), total)
    if path.is_dir():
        found += [FileFound(file, 0, "missing", detail) for file, detail in absent(folder, names, listed).items()]
    yield FilesVerified(name or path.name, str(path), tuple(found))


def mend(found: FilesVerified) -> tuple[str, ...]:
    """Deletes the wrong files that a pull can fetch again, and returns their paths; in other folders none."""
    deleted = []
    model = Path(found.folder)
    for file in found.bad:
        link = model / file.path if model.is_dir() else model
        if file.stored and cached(link):
            link.unlink(missing_ok=True)
            Path(file.stored).unlink(missing_ok=True)
            deleted.append(file.path)
    return tuple(deleted)


def check(file: Path, path: str, listed: Listed | None) -> Iterator[int | FileFound]:
    """The counts of bytes read, then what was found."""
    if not file.exists():
        yield FileFound(path, 0, "missing", "its content is missing")
        return
    known = known_hash(file) or (listed.hash if listed else "")
    if not known:
        yield without_hash(file, path)
        return
    digest = hasher(known, size(file))
    try:
        with plain(file).open("rb") as content:
            while piece := content.read(PIECE):
                digest.update(piece)
                yield len(piece)
    except OSError as fault:
        yield FileFound(path, size(file), "wrong", f"it cannot be read ({fault.strerror})", str(stored(file)))
        return
    yield compared(file, path, digest.hexdigest() == known, listed, known)


def compared(file: Path, path: str, is_right: bool, listed: Listed | None, known: str) -> FileFound:
    where, length = str(stored(file)), size(file)
    if not is_right:
        return FileFound(path, length, "wrong", "its bytes do not have its hash", where)
    if listed and listed.hash != known:
        return FileFound(path, length, "wrong", "it is another file than the hub lists for this commit", where)
    return FileFound(path, length, "right", "", where)


def without_hash(file: Path, path: str) -> FileFound:
    """What a file's own form says where no hash is known."""
    kind, where = file.suffix, str(stored(file))
    try:
        if kind == ".safetensors":
            read_header(file)
        elif kind == ".gguf":
            read_gguf(file)
        else:
            return FileFound(path, size(file), "unknown", NOTHING_KNOWN, where)
    except LocalspecError as fault:
        return FileFound(path, size(file), "wrong", first_line(fault), where)
    return FileFound(path, size(file), "unknown", FORM_IS_RIGHT, where)


def absent(folder: Path, names: Sequence[str], listed: Mapping[str, Listed]) -> dict[str, str]:
    """The files that a model's folder lacks, each with how that is known: its download brought it, its index names it,
    or localspec would fetch it from the hub's list. A folder with no weights at all lacks the usual file of them."""
    known = dict.fromkeys(manifests.files_of(*hub_cache.fetched_from(folder)), "it came with the download")
    known = known or dict.fromkeys(selected(folder, listed), "the hub lists it for this commit")
    known |= dict.fromkeys(indexed(folder), f"{INDEX} names it")
    if CONFIG in names and not any(name.endswith(WEIGHTS) for name in (*names, *known)):
        known[SINGLE] = "the folder has no weights"
    return {path: why for path, why in known.items() if path not in names}


def indexed(folder: Path) -> list[str]:
    """The shards that the folder's index names."""
    with suppress(LocalspecError, OSError):
        return shard_names(folder / INDEX, read_object(folder / INDEX, MAX_INDEX_BYTES))
    return []


def selected(folder: Path, listed: Mapping[str, Listed]) -> list[str]:
    """The files of the hub's list that a download takes, but for papers; none of GGUF files, each of which is a model
    of its own."""
    files = [RemoteFile(path, one.size, one.lfs_sha256 or "", one.blob_id) for path, one in listed.items()]
    if is_gguf(files):
        return []
    index = folder / INDEX
    with suppress(LocalspecError, OSError):
        taken = select(folder.name, files, (lambda _: read_bytes(index, MAX_INDEX_BYTES)) if index.exists() else None)
        return [file.path for file in taken if not is_paper(file.path)]
    return []


def known_hash(file: Path) -> str:
    """The hash that a file's blob is named by; "" where it has another name."""
    name = Path(os.readlink(file)).name if cached(file) else file.name
    if cached(file):
        return name if SHA256.fullmatch(name) or GIT_SHA1.fullmatch(name) else ""
    ollama = OLLAMA.fullmatch(name)
    return ollama[1] if ollama else ""


def cached(file: Path) -> bool:
    """Whether this is a link into a repository's blobs."""
    return file.is_symlink() and Path(os.readlink(file)).parent.name == "blobs"


def stored(file: Path) -> Path:
    """The blob that a link leads to, which may be a link itself; else the file."""
    return Path(os.path.abspath(file.parent / os.readlink(file))) if cached(file) else file


def hasher(known: str, length: int) -> Hash:
    """A hash of the kind that is known: git's begins with the length."""
    if len(known) == SHA256_DIGITS:
        return sha256()
    return sha1(b"blob %d\0" % length, usedforsecurity=False)


def listed_in(folder: Path) -> dict[str, Listed]:
    """What the hub lists for the commit of a cached snapshot; empty where that is not known."""
    if folder.parent.name != "snapshots" or not hub_cache.COMMIT.fullmatch(folder.name):
        return {}
    tree = folder.parent.parent / "trees" / f"{folder.name}.json"
    try:
        if size(tree) > MAX_TREE_BYTES:
            return {}
        return TREE.decode(plain(tree).read_bytes()).files
    except (OSError, ValueError, RecursionError):
        return {}


def walked(folder: Path) -> list[str]:
    """The files below a folder, links among them; hidden ones and those of version control are no part of a model."""
    found = (Path(at) / name for at, _, names in os.walk(folder) for name in names)
    paths = (file.relative_to(folder) for file in found)
    return sorted(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts))
