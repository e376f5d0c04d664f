"""Memory-mapped cache of prepared weights: a safetensors file that the next start maps instead of packing again.

It is used only when its header is, byte for byte, the one that this model, format and version would get, and every
tensor has the checksum that stands there. Anything else is as if there were no file. Offloaded layers are read
from it again and again. Knows nothing about packing and quantising.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from io import FileIO
from itertools import accumulate
from operator import eq
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from localspec.core import paths
from localspec.core.build_lock import BuildLock, making
from localspec.core.disk import CACHE_SPARE_BYTES
from localspec.core.errors import FULL, UsageError
from localspec.core.events import Loading, Notice
from localspec.core.plain_file import plain
from localspec.core.sizes import size_words
from localspec.core.version import __version__
from localspec.engine.cpu.pages import in_large_pages
from localspec.engine.offload import CopyIn
from localspec.loading.packed_files import ENDING, named_after
from localspec.loading.progress import progress
from localspec.loading.sources import advise, lost
from localspec.models.checkpoint import Snapshot

SMALLEST_BYTES = 32 << 20  # a smaller model is packed in less than half a second
BUFFER_BYTES = 1 << 20
PAGE = 4096
STALE_PART_SECONDS = 3600.0
KEY = 16  # letters that tell a copy from others of its model and format
SOURCES = (  # what decides the bytes
    "engine/cpu/emit.py",
    "engine/cpu/formats.py",
    "engine/cpu/lang.py",
    "engine/cpu/layout.py",
    "engine/cpu/pack.py",
    "engine/cpu/packer.py",
    "engine/four_bit.py",
    "engine/linear.py",
    "loading/cpu.py",
    "loading/cpu_layout.py",
    "loading/generic.py",
    "loading/quantised_linears.py",
    "loading/sources.py",
    "loading/torch.py",
    "loading/unpacking/fields.py",
    "loading/unpacking/gguf.py",
    "loading/unpacking/source.py",
    "loading/unpacking/weight.py",
    "models/gguf/config.py",
    "models/gguf/fields.py",
    "models/gguf/header.py",
    "models/gguf/names.py",
    "models/gguf/reading.py",
    "models/gguf/types.py",
    "models/prequantised/compressed_tensors.py",
    "models/prequantised/config.py",
    "models/prequantised/pattern.py",
    "models/prequantised/rules.py",
    "models/prequantised/scheme.py",
    "models/prequantised/stored_format.py",
    "models/prequantised/weights.py",
)


class Stored(Protocol):
    """One tensor of a copy: bytes, or else float32."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def is_bytes(self) -> bool: ...

    @property
    def num_bytes(self) -> int: ...


class Contents(Protocol):
    """The contents of a cache file. Its repr is that of no contents with other bytes.

    `made`: how it was prepared, in a word; `weight_format`: there is one copy for a model and format; `layers`: the
    tensors of those that may stay on disk, side by side.
    """

    @property
    def made(self) -> str: ...

    @property
    def weight_format(self) -> str: ...

    @property
    def pieces(self) -> Mapping[str, Stored]: ...

    @property
    def layers(self) -> Sequence[Sequence[Stored]]: ...

    @property
    def num_bytes(self) -> int: ...


class CachedWeights:
    """One model in one format, in the cache. Reads what is sound, keeps what was made.

    `resident`: of so many layers there will be tensors in memory, the others stay here; None for all. `asked`: it
    is cached on request, however small it is.
    """

    def __init__(
        self, snapshot: Snapshot, contents: Contents, *, resident: int | None = None, asked: bool = False
    ) -> None:
        self.snapshot, self.contents, self.asked = snapshot, contents, asked
        away = [] if resident is None else contents.layers[resident:]
        self.away = [piece.name for layer in away for piece in layer]
        self.family = f"{named_after(snapshot.folder)}-{contents.weight_format}-"
        self.made_from = fingerprint(snapshot, contents)

    @property
    def is_worth_it(self) -> bool:
        return self.asked or self.contents.num_bytes >= SMALLEST_BYTES or bool(self.away)

    def file(self) -> Path:
        return paths.packed_dir() / f"{self.family}{self.made_from[:KEY]}{ENDING}"

    def making(self) -> AbstractContextManager[BuildLock]:
        """Lets one process at a time make it; all at once where it is not cached."""
        with suppress(OSError, UsageError):
            return making(self.file() if self.is_worth_it else None)
        return making(None)

    def read(self, into: dict[str, Tensor]) -> Generator[int, None, None]:
        """Maps the file and checks every byte of it, yielding how many more are checked; `into` is filled at the end,
        or left empty."""
        if not self.is_worth_it:
            return
        try:
            file = plain(self.file())
            checksums = self.checksums(file)
            size = file.stat().st_size
            mapped = in_large_pages(torch.from_file(str(file), size=size, dtype=torch.uint8)) if checksums else None
        except (OSError, UsageError, RuntimeError):
            return
        if mapped is None:
            return
        found, sizes = self.cut(mapped), [piece.num_bytes for piece in self.contents.pieces.values()]
        for name in self.away:
            del found[name]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            actual = pool.map(lambda name: self.actual(name, found, file), self.contents.pieces)
            for num_bytes, is_sound in zip(sizes, map(eq, actual, checksums), strict=True):
                if not is_sound:
                    pool.shutdown(cancel_futures=True)
                    return
                yield num_bytes
        into.update(found)

    def actual(self, name: str, found: dict[str, Tensor], file: Path) -> str:
        """The checksum of a tensor; those that stay away are read and let go."""
        if name in found:
            return checksum(found[name])
        at, num_bytes, crc = self.starts[name], self.contents.pieces[name].num_bytes, 0
        buffer = memoryview(bytearray(min(num_bytes, BUFFER_BYTES)))
        with suppress(OSError), file.open("rb", buffering=0) as stream:
            stream.seek(at)
            for done in range(0, num_bytes, len(buffer)):
                some = buffer[: num_bytes - done]
                read_whole(stream, some)
                crc = zlib.crc32(some, crc)
            advise(stream.fileno(), at, num_bytes, soon=False)
            return as_hex(crc)
        return ""

    def reading(self, slots: Sequence[dict[str, Tensor]]) -> CopyIn:
        """Reads layers from the file into the tensors of a slot, in the order in which they lie there."""
        file, layers = self.file(), self.contents.layers
        buffers = [[in_memory(tensor) for tensor in slot.values()] for slot in slots]

        def copy_in(layer: int, slot: int) -> None:
            at, num_bytes = self.starts[layers[layer][0].name], sum(piece.num_bytes for piece in layers[layer])
            try:
                with file.open("rb", buffering=0) as stream:
                    advise(stream.fileno(), at, num_bytes, soon=True)
                    stream.seek(at)
                    for buffer in buffers[slot]:
                        read_whole(stream, buffer)
                    advise(stream.fileno(), at, num_bytes, soon=False)
            except OSError as fault:
                raise lost(layer) from fault

        return copy_in

    @cached_property
    def starts(self) -> dict[str, int]:
        """The byte at which each tensor begins in the file."""
        at = len(self.header(["0" * 8] * len(self.contents.pieces)))
        sizes = [piece.num_bytes for piece in self.contents.pieces.values()]
        return dict(zip(self.contents.pieces, accumulate(sizes, initial=at), strict=False))

    def checksums(self, file: Path) -> list[str]:
        """The checksums of the header; empty where it is not the header that this file must have."""
        expected = self.header(["0" * 8] * len(self.contents.pieces))
        with file.open("rb") as stream:
            header = stream.read(len(expected))
        if file.stat().st_size != len(expected) + self.contents.num_bytes:
            return []
        try:
            checksums = json.loads(header[8:])["__metadata__"]["checksums"].split(" ")
            return checksums if self.header(checksums) == header else []
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return []

    def header(self, checksums: list[str]) -> bytes:
        """The file's header, always of one length, padded so that the tensors begin on a page."""
        metadata = {"made_from": self.made_from, "checksums": " ".join(checksums)}
        entries: dict[str, object] = {"__metadata__": metadata}
        at = 0
        for piece in self.contents.pieces.values():
            dtype, end = "U8" if piece.is_bytes else "F32", at + piece.num_bytes
            entries[piece.name] = {"dtype": dtype, "shape": piece.shape, "data_offsets": [at, end]}
            at = end
        text = json.dumps(entries, separators=(",", ":")).encode()
        length = -(-(8 + len(text)) // PAGE) * PAGE - 8
        return length.to_bytes(8, "little") + text.ljust(length)

    def cut(self, mapped: Tensor) -> dict[str, Tensor]:
        """The tensors that a mapped file holds."""
        found, at = {}, mapped.nbytes - self.contents.num_bytes
        for piece in self.contents.pieces.values():
            part = mapped[at : at + piece.num_bytes]
            found[piece.name] = (part if piece.is_bytes else part.view(torch.float32)).view(piece.shape)
            at += piece.num_bytes
        return found

    def ways_out(self, fault: OSError | UsageError) -> list[str]:
        """Remedies where it cannot be written, each as the middle of a sentence."""
        is_full = isinstance(fault, OSError) and fault.errno in FULL
        free = [f"free {size_words(self.contents.num_bytes + CACHE_SPARE_BYTES)} on that disk"] if is_full else []
        return [*free, "set LOCALSPEC_CACHE_DIR to another folder"]

    def keep(self, tensors: dict[str, Tensor]) -> Iterator[Loading | Notice]:
        """Writes the file, or says in one Notice why not."""
        if not self.is_worth_it:
            return
        try:
            yield from self.write(self.file(), tensors)
        except (OSError, UsageError) as fault:
            reason = (fault.strerror if isinstance(fault, OSError) else fault.message) or str(fault)
            what = f"The {self.contents.made} weights cannot be kept on disk ({reason.rstrip('.')})"
            message = f"{what}; each start makes them again."
            hint = sentence(", or ".join(self.ways_out(fault)))
            yield Notice("warning" if self.asked else "info", "packed_copy", message, hint)

    def write(self, file: Path, tensors: dict[str, Tensor]) -> Iterator[Loading]:
        with self.writing(file) as put:
            ordered = {name: tensors[name] for name in self.contents.pieces}
            stage = f"writing {self.contents.made} weights to disk"
            yield from progress(stage, self.contents.num_bytes, each(put, ordered))

    @contextmanager
    def writing(self, file: Path) -> Iterator[Callable[[str, Tensor], None]]:
        """Takes every tensor once, in any order. Written under another name first: no reader sees half a file."""
        self.sweep(file)
        check_free_space(file.parent, self.contents.num_bytes)
        part, checksums = file.with_suffix(f".{os.getpid()}.part"), dict[str, str]()
        try:
            with part.open("wb") as stream:

                def put(name: str, tensor: Tensor) -> None:
                    checksums[name] = checksum(tensor)
                    stream.seek(self.starts[name])
                    stream.write(in_memory(tensor))

                yield put
                stream.seek(0)
                stream.write(self.header([checksums[name] for name in self.contents.pieces]))
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)

    def sweep(self, file: Path) -> None:
        """Deletes cache files of this model that are out of date, and what dead processes have left."""
        for other in file.parent.glob(f"{self.family}{'?' * KEY}.*"):  # not int8-cuda-…, which begins like int8-…
            with suppress(OSError):
                if other.suffix not in (".part", ".lock") or other.stat().st_mtime < time.time() - STALE_PART_SECONDS:
                    other.unlink()


def each(put: Callable[[str, Tensor], None], tensors: Mapping[str, Tensor]) -> Generator[int, None, None]:
    for name, tensor in tensors.items():
        put(name, tensor.cpu())
        yield tensor.nbytes


def check_free_space(folder: Path, num_bytes: int) -> None:
    if shutil.disk_usage(folder).free < num_bytes + CACHE_SPARE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fingerprint(snapshot: Snapshot, contents: Contents) -> str:
    """Hash of what a cache file is made from: the files of weights, the configuration (how they are read included), and
    the code that makes it."""
    digest = sha256(f"{__version__} {torch.__version__} {contents!r}".encode())
    for source in SOURCES:
        digest.update((paths.HERE / source).read_bytes())
    for name, info in sorted(snapshot.tensors.items()):
        digest.update(f"{name} {info.dtype} {info.shape} {info.begin} {info.file.name}\n".encode())
    digest.update(json.dumps(snapshot.config.get("quantization_config"), sort_keys=True).encode())
    digest.update(snapshot.state.encode())
    return digest.hexdigest()


def checksum(tensor: Tensor) -> str:
    return as_hex(zlib.crc32(in_memory(tensor)))


def sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def as_hex(crc: int) -> str:
    return f"{crc:08x}"


def read_whole(stream: FileIO, buffer: memoryview) -> None:
    """Fills the buffer; OSError where the file has fewer bytes."""
    while buffer:
        done = stream.readinto(buffer)
        if not done:
            raise OSError(errno.EIO, "it is cut short")
        buffer = buffer[done:]


def in_memory(tensor: Tensor) -> memoryview:
    raw: memoryview = tensor.view(-1).view(torch.uint8).numpy().data
    return raw
