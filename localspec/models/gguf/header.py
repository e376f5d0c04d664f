"""Reads the header of a GGUF file: its metadata and tensor locations, over several files if it is split.

Nothing is trusted: types, shapes, alignment and offsets are checked against the file's size. Knows nothing about models
or torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from localspec.core.errors import REPEAT, CheckpointError
from localspec.core.plain_file import plain
from localspec.models.gguf.reading import MAX_BYTES, Array, Beginning, Metadata, Scalar, Value
from localspec.models.gguf.types import TENSORS
from localspec.models.safetensors_index import MAX_ELEMENTS, TensorInfo

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_LATER_BYTES = 4 << 20  # of the header of any but a model's first file
MAX_ENTRIES = 1 << 16  # of metadata, and of tensors
MAX_KEY_BYTES = (1 << 16) - 1  # as ggml has it, and the two below
MAX_NAME_BYTES = 64
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 1 << 16
LEAST_ENTRY_BYTES = 8 + 4 + 1  # a key's length, a type, a value
LEAST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8  # a name's length, how many dimensions, one of them, a type, an offset
SPLIT = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")


@dataclass(frozen=True, slots=True)
class Gguf:
    """A model in GGUF. `file`: the first one if it is split. `tensors` have llama.cpp's names, ggml's types and
    shapes in torch's order."""

    file: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]


def name_of(file: Path) -> str:
    """The model's name: the file's name without ending and part number."""
    part = SPLIT.fullmatch(file.name)
    return part[1] if part else file.name.removesuffix(".gguf")


def read_gguf(file: Path) -> Gguf:
    """Reads a file and, if it is split, the other parts."""
    found = _read_one(file)
    count = found.metadata.get("split.count", 1)
    return found if count in (0, 1) else _read_parts(_parts(file, count))


def _read_parts(files: list[Path]) -> Gguf:
    """Reads the parts as one model. The first has all of the metadata, the others little."""
    first, tensors = _read_one(files[0]), dict[str, TensorInfo]()
    for index, file in enumerate(files):
        part = _read_one(file, MAX_LATER_BYTES) if index else first
        if (part.metadata.get("split.no"), part.metadata.get("split.count")) != (index, len(files)):
            raise CheckpointError(f"{file} is not part {index + 1} of {len(files)}, as its name says.", hint=REPEAT)
        if twice := tensors.keys() & part.tensors.keys():
            raise CheckpointError(f"Tensor {min(twice)!r} is in {file} and in a part before it.", hint=REPEAT)
        tensors |= part.tensors
    if (count := first.metadata.get("split.tensors.count", len(tensors))) != len(tensors):
        message = f"The parts of {first.file} have {len(tensors):,} tensors, but it says {str(count)[:20]}."
        raise CheckpointError(message, hint=REPEAT)
    return Gguf(first.file, first.metadata, tensors)


def _parts(file: Path, count: Value) -> list[Path]:
    """All files of a split model, from the name of one."""
    name = SPLIT.fullmatch(file.name)
    if not name or int(name[3]) != count:
        message = f"{file} is one of {str(count)[:20]} parts, but its name does not say which."
        raise CheckpointError(message, hint="Restore its name: NAME-00001-of-0000N.gguf")
    parts = [file.with_name(f"{name[1]}-{number:05d}-of-{name[3]}.gguf") for number in range(1, int(name[3]) + 1)]
    for part in parts:
        if not part.exists():
            raise CheckpointError(f"{part} is missing: the model has {len(parts):,} parts.", hint=REPEAT)
    return parts


def _read_one(file: Path, limit: int = MAX_BYTES) -> Gguf:
    try:
        size = plain(file).stat().st_size
        with file.open("rb") as stream:
            return read_stream(file, stream, size, limit)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror or error}).", hint=REPEAT) from error


def read_stream(file: Path, stream: IO[bytes], size: int, limit: int = MAX_BYTES) -> Gguf:
    """Reads one file from its beginning on, wherever its bytes come from. `file`: its name."""
    beginning = Beginning(file, stream, size, limit)
    _check_start(beginning)
    return _read(beginning)


def _check_start(beginning: Beginning) -> None:
    file = beginning.file
    if beginning.size < len(MAGIC) or beginning.take(len(MAGIC)) != MAGIC:
        raise CheckpointError(f"{file} is not a GGUF file.", hint=REPEAT)
    version = beginning.whole("I")
    if version and not version & 0xFFFF:
        raise CheckpointError(f"{file} is for big-endian machines.", hint=REPEAT)
    if version not in VERSIONS:
        message = f"{file} is GGUF version {version}; localspec reads 2 and 3."
        raise CheckpointError(message, hint="Choose a newer copy." if version < VERSIONS[0] else REPEAT)


def _read(beginning: Beginning) -> Gguf:
    num_tensors = beginning.count("tensors", LEAST_TENSOR_BYTES, MAX_ENTRIES)
    num_entries = beginning.count("entries of metadata", LEAST_ENTRY_BYTES, MAX_ENTRIES)
    entries = _entries(beginning, num_entries)
    listed = _listed(beginning, num_tensors)
    alignment = _alignment(beginning, entries)
    begin = -(-beginning.at // alignment) * alignment
    tensors = {name: _with_file_offsets(beginning, name, info, begin, alignment) for name, info in listed.items()}
    _check_overlap(beginning, tensors)
    return Gguf(beginning.file, Metadata(beginning.file, entries), tensors)


def _entries(beginning: Beginning, count: int) -> dict[str, Scalar | Array]:
    found = dict[str, Scalar | Array]()
    for _ in range(count):
        key = beginning.text("a key", MAX_KEY_BYTES)
        if key in found:
            raise beginning.fault(f"the key {key[:80]!r} appears twice")
        found[key] = beginning.value(key)
    return found


def _listed(beginning: Beginning, count: int) -> dict[str, TensorInfo]:
    """The tensors by name, with offsets from the first tensor."""
    found = dict[str, TensorInfo]()
    for _ in range(count):
        name = beginning.text("a tensor's name", MAX_NAME_BYTES)
        if name in found:
            raise beginning.fault(f"it has two tensors {name!r}")
        found[name] = _tensor(beginning, name)
    return found


def _tensor(beginning: Beginning, name: str) -> TensorInfo:
    dimensions = beginning.whole("I")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise beginning.fault(f"tensor {name!r} has {dimensions:,} dimensions")
    sizes = [beginning.whole("Q") for _ in range(dimensions)]
    if not 1 <= math.prod(sizes) <= MAX_ELEMENTS:
        raise beginning.fault(f"tensor {name!r} has an impossible shape")
    kind, begin = beginning.whole("I"), beginning.whole("Q")
    if kind not in TENSORS:
        raise beginning.fault(f"tensor {name!r} is of the unknown type {kind}")
    blocks = TENSORS[kind]
    if sizes[0] % blocks.numbers:
        raise beginning.fault(f"tensor {name!r} has rows of {sizes[0]:,} numbers, and {blocks.name} {blocks.numbers}")
    num_bytes = math.prod(sizes) // blocks.numbers * blocks.num_bytes
    return TensorInfo(beginning.file, blocks.name, tuple(reversed(sizes)), begin, begin + num_bytes)


def _with_file_offsets(beginning: Beginning, name: str, info: TensorInfo, begin: int, alignment: int) -> TensorInfo:
    """The tensor with offsets from the start of the file; checked against its size."""
    if info.begin % alignment:
        raise beginning.fault(f"tensor {name!r} does not begin at a multiple of {alignment}")
    if begin + info.end > beginning.size:
        fault = f"tensor {name!r} ends at byte {begin + info.end:,} of {beginning.size:,}"
        raise CheckpointError(f"{beginning.file} is cut short: {fault}.", hint=REPEAT)
    return TensorInfo(info.file, info.dtype, info.shape, begin + info.begin, begin + info.end)


def _alignment(beginning: Beginning, entries: Mapping[str, Scalar | Array]) -> int:
    found = entries.get("general.alignment", 32)
    if type(found) is not int or not 0 < found <= MAX_ALIGNMENT or found & (found - 1):
        raise beginning.fault(f"its alignment is {str(found)[:40]}")
    return found


def _check_overlap(beginning: Beginning, tensors: Mapping[str, TensorInfo]) -> None:
    end = 0
    for name, info in sorted(tensors.items(), key=lambda item: item[1].begin):
        if info.begin < end:
            raise beginning.fault(f"tensor {name!r} overlaps another at byte {info.begin:,}")
        end = info.end
