"""A packed model kept on disk, so that the next start maps it: a safetensors file in the cache folder.

It is used only when its header is, byte for byte, the one that this model, format and version would get, and every
tensor has the checksum that stands there. Anything else is as if there were no file. Knows nothing about packing.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from operator import eq
from pathlib import Path

import torch
from torch import Tensor

from localspec import __version__, paths
from localspec.blueprint import Blueprint
from localspec.checkpoint import Snapshot
from localspec.errors import UsageError
from localspec.events import Loading, Notice

SMALLEST_BYTES = 32 << 20  # a smaller model is packed in less than half a second
SPARE_BYTES = 256 << 20  # of the disk, left for others
PAGE = 4096
STALE_PART_SECONDS = 3600.0
SOURCES = (  # what decides the bytes
    "blueprint.py",
    "packing.py",
    "engine/cpu/pack.py",
    "engine/cpu/packer.py",
    "engine/cpu/formats.py",
)


class PackedCopy:
    """One model in one format, in the cache. Reads what is sound, keeps what was packed."""

    def __init__(self, snapshot: Snapshot, blueprint: Blueprint) -> None:
        self.snapshot, self.blueprint = snapshot, blueprint
        place = sha256(str(snapshot.folder.resolve()).encode()).hexdigest()[:16]
        self.family = f"{place}-{blueprint.kind}-"
        self.made_from = fingerprint(snapshot, blueprint)

    @property
    def is_worth_it(self) -> bool:
        return self.blueprint.num_bytes >= SMALLEST_BYTES

    def file(self) -> Path:
        return paths.packed_dir() / f"{self.family}{self.made_from[:16]}.safetensors"

    def read(self, into: dict[str, Tensor]) -> Iterator[int]:
        """Maps the file and checks every byte of it, yielding how many more are checked; `into` is filled at the end,
        or left empty."""
        if not self.is_worth_it:
            return
        try:
            file = self.file()
            checksums = self.checksums(file)
            mapped = torch.from_file(str(file), size=file.stat().st_size, dtype=torch.uint8) if checksums else None
        except (OSError, UsageError, RuntimeError):
            return
        if mapped is None:
            return
        found = self.cut(mapped)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            actual = pool.map(checksum, found.values())
            for tensor, is_sound in zip(found.values(), map(eq, actual, checksums), strict=True):
                if not is_sound:
                    pool.shutdown(cancel_futures=True)
                    return
                yield tensor.nbytes
        into.update(found)

    def checksums(self, file: Path) -> list[str]:
        """What the header says; empty where it is not the header this copy must have."""
        expected = self.header(["0" * 8] * len(self.blueprint.pieces))
        with file.open("rb") as stream:
            header = stream.read(len(expected))
        if file.stat().st_size != len(expected) + self.blueprint.num_bytes:
            return []
        try:
            said = json.loads(header[8:])["__metadata__"]["checksums"].split(" ")
            return said if self.header(said) == header else []
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return []

    def header(self, checksums: list[str]) -> bytes:
        """Of the file, padded so that the tensors begin on a page; always as long."""
        metadata = {"made_from": self.made_from, "checksums": " ".join(checksums)}
        entries: dict[str, object] = {"__metadata__": metadata}
        at = 0
        for piece in self.blueprint.pieces.values():
            dtype, end = "U8" if piece.kind else "F32", at + piece.num_bytes
            entries[piece.name] = {"dtype": dtype, "shape": piece.shape, "data_offsets": [at, end]}
            at = end
        text = json.dumps(entries, separators=(",", ":")).encode()
        length = -(-(8 + len(text)) // PAGE) * PAGE - 8
        return length.to_bytes(8, "little") + text.ljust(length)

    def cut(self, mapped: Tensor) -> dict[str, Tensor]:
        """The tensors that a mapped file holds."""
        found, at = {}, mapped.nbytes - self.blueprint.num_bytes
        for piece in self.blueprint.pieces.values():
            part = mapped[at : at + piece.num_bytes]
            found[piece.name] = (part if piece.kind else part.view(torch.float32)).view(piece.shape)
            at += piece.num_bytes
        return found

    def keep(self, tensors: dict[str, Tensor]) -> Iterator[Loading | Notice]:
        """Writes the file, or says in one Notice why not."""
        if not self.is_worth_it:
            return
        try:
            yield from self.write(self.file(), tensors)
        except (OSError, UsageError) as fault:
            reason = (fault.strerror if isinstance(fault, OSError) else fault.message) or str(fault)
            message = f"The packed weights cannot be kept on disk ({reason.rstrip('.')}); each start packs them again."
            hint = (
                f"Make {self.blueprint.num_bytes / 1e9:.1f} GB of room, or set LOCALSPEC_CACHE_DIR to another folder."
            )
            yield Notice("info", "packed_copy", message, hint)

    def write(self, file: Path, tensors: dict[str, Tensor]) -> Iterator[Loading]:
        """To a file of its own name first, so that nobody ever sees half of one."""
        self.sweep(file)
        check_room(file.parent, self.blueprint.num_bytes)
        part, done, total = file.with_suffix(f".{os.getpid()}.part"), 0, self.blueprint.num_bytes
        try:
            with part.open("wb") as stream:
                stream.write(self.header(["0" * 8] * len(self.blueprint.pieces)))
                checksums = []
                for name in self.blueprint.pieces:
                    checksums.append(checksum(tensors[name]))
                    stream.write(in_memory(tensors[name]))
                    done += tensors[name].nbytes
                    yield Loading("packed weights to disk", done, total)
                stream.seek(0)
                stream.write(self.header(checksums))
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)

    def sweep(self, file: Path) -> None:
        """Copies of this model that nobody will read again, and what processes that died have left."""
        for other in file.parent.glob(f"{self.family}*"):
            with suppress(OSError):
                if other.suffix != ".part" or other.stat().st_mtime < time.time() - STALE_PART_SECONDS:
                    other.unlink()


def check_room(folder: Path, num_bytes: int) -> None:
    if shutil.disk_usage(folder).free < num_bytes + SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fingerprint(snapshot: Snapshot, blueprint: Blueprint) -> str:
    """What a copy is made from: the files of weights as they are now, the configuration, and the code that packs."""
    digest = sha256(f"{__version__} {torch.__version__} {blueprint!r}".encode())
    for source in SOURCES:
        digest.update((Path(__file__).parent / source).read_bytes())
    for name, info in sorted(snapshot.tensors.items()):
        digest.update(f"{name} {info.dtype} {info.shape} {info.begin} {info.file.name}\n".encode())
    digest.update(snapshot.state.encode())
    return digest.hexdigest()


def checksum(tensor: Tensor) -> str:
    return f"{zlib.crc32(in_memory(tensor)):08x}"


def in_memory(tensor: Tensor) -> memoryview:
    raw: memoryview = tensor.view(-1).view(torch.uint8).numpy().data
    return raw
