"""Locates each tensor of a snapshot: parses safetensors headers and the index of shards.

Executes nothing and never allocates by what a header claims. Knows nothing about models or torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: JSON from a stranger, checked here field by field

from localspec.core.errors import REPEAT, CheckpointError
from localspec.core.plain_file import plain
from localspec.core.strict_json import parse_object, read_object

MAX_HEADER_BYTES = 100_000_000  # safetensors' own bound
MAX_INDEX_BYTES = 64 << 20
MAX_ELEMENTS = 1 << 48  # 2^48 elements of 64 bits still fit a file offset
MAX_DIMENSIONS = 16

DTYPE_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}

GIT_LFS = b"version "  # the beginning of a pointer file
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: bytes begin..end of `file` (counted from the file's start), row-major."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def num_bytes(self) -> int:
        return self.end - self.begin


def find_tensors(folder: Path, name: str) -> dict[str, TensorInfo]:
    """Every tensor of a snapshot by name; `name` is the model's name in errors."""
    if (folder / SINGLE).exists():
        return read_header(folder / SINGLE)
    if (folder / INDEX).exists():
        return _read_shards(folder)
    loose = sorted(folder.glob("*.safetensors"))
    if len(loose) == 1:
        return read_header(loose[0])
    if loose:
        raise CheckpointError(f"Model '{name}' has {len(loose)} safetensors files and no {INDEX}.", hint=REPEAT)
    pickle = next((found.name for pattern in PICKLES for found in sorted(folder.glob(pattern))), None)
    if pickle:
        raise CheckpointError(
            f"Model '{name}' has only pickle weights ({pickle}), which localspec does not load.",
            hint="Choose a copy of the model in safetensors.",
        )
    raise CheckpointError(f"Model '{name}' has no weights (no {SINGLE} in {folder}).", hint=REPEAT)


def read_header(file: Path) -> dict[str, TensorInfo]:
    """The tensors of one safetensors file, which must be exactly as long as its header says."""
    size, raw = _header_bytes(file)
    header = parse_object(raw, f"{file}: its header")
    _check_metadata(file, header.pop("__metadata__", {}))
    start = 8 + len(raw)
    tensors = {name: _tensor(file, name, entry, start) for name, entry in header.items()}
    at = start
    for info in sorted(tensors.values(), key=lambda info: (info.begin, info.end)):
        if info.begin != at:
            fault = "overlap" if info.begin < at else "leave a hole"
            raise CheckpointError(f"{file}: its tensors {fault} at byte {min(info.begin, at):,}.", hint=REPEAT)
        at = info.end
    if size < at:
        raise _cut_short(file, size, at)
    if size > at:
        message = f"{file} has bytes after its last tensor (a size of {size:,} instead of {at:,})."
        raise CheckpointError(message, hint=REPEAT)
    return tensors


def _header_bytes(file: Path) -> tuple[int, bytes]:
    """The file's size and its header."""
    try:
        size = plain(file).stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size == 0:
                raise CheckpointError(f"{file} is empty.", hint=REPEAT)
            if size < 8:
                raise _cut_short(file, size, 8)
            if length.to_bytes(8, "little") == GIT_LFS:
                raise CheckpointError(f"{file} is a Git LFS pointer, not the weights.", hint="Run: git lfs pull")
            if length > MAX_HEADER_BYTES:
                message = f"{file} is not a safetensors file (it claims a header of {length:,} bytes)."
                raise CheckpointError(message, hint=REPEAT)
            if size < 8 + length:
                raise _cut_short(file, size, 8 + length)
            return size, stream.read(length)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror or error}).", hint=REPEAT) from error


def _cut_short(file: Path, size: int, needed: int) -> CheckpointError:
    return CheckpointError(f"{file} is cut short (has {size:,} of {needed:,} bytes).", hint=REPEAT)


def _check_metadata(file: Path, metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{file}: its header's __metadata__ is not text.", hint=REPEAT)


def _tensor(file: Path, name: str, entry: Any, start: int) -> TensorInfo:
    """Checks one entry of a header; `start` is the first byte of the data."""
    where = f"{file}: tensor {name[:120]!r}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where} lacks dtype, shape or data_offsets, or has more.", hint=REPEAT)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise CheckpointError(f"{where} has the unknown dtype {str(dtype)[:40]!r}.", hint=REPEAT)
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{where} has bad data_offsets.", hint=REPEAT)
    bits = _num_elements(where, shape) * DTYPE_BITS[dtype]
    if bits % 8 or offsets[1] - offsets[0] != bits // 8:
        raise CheckpointError(f"{where} has a shape that does not match its bytes.", hint=REPEAT)
    return TensorInfo(file, dtype, tuple(shape), start + offsets[0], start + offsets[1])


def _num_elements(where: str, shape: Any) -> int:
    if not _are_counts(shape) or len(shape) > MAX_DIMENSIONS:
        raise CheckpointError(f"{where} has a bad shape.", hint=REPEAT)
    elements = 1
    for size in shape:
        elements *= size
        if elements > MAX_ELEMENTS:
            raise CheckpointError(f"{where} has an impossible shape.", hint=REPEAT)
    return elements


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _read_shards(folder: Path) -> dict[str, TensorInfo]:
    """The tensors of all shards that the index names, each exactly where it says."""
    index = folder / INDEX
    content = read_object(index, MAX_INDEX_BYTES)
    shards, weight_map = shard_names(index, content), content["weight_map"]
    surplus = {found.name for found in folder.glob("*.safetensors") if SHARD.fullmatch(found.name)} - set(shards)
    if surplus:
        raise CheckpointError(f"{index} does not name the shard {min(surplus)}.", hint=REPEAT)
    tensors: dict[str, TensorInfo] = {}
    for shard in shards:
        _add_shard(tensors, folder / shard, weight_map)
    absent = weight_map.keys() - tensors.keys()
    if absent:
        raise CheckpointError(f"{index} names the tensor {min(absent)[:120]!r}, which no shard has.", hint=REPEAT)
    return tensors


def shard_names(index: Path, content: dict[str, Any]) -> list[str]:
    """The shards that an index names, each a plain name in the same folder."""
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map.", hint=REPEAT)
    for file_name in weight_map.values():
        _check_file_name(index, file_name)
    return sorted(set(weight_map.values()))


def _add_shard(tensors: dict[str, TensorInfo], file: Path, weight_map: dict[str, str]) -> None:
    if not file.exists():
        raise CheckpointError(f"The shard {file} is missing.", hint=REPEAT)
    for name, info in read_header(file).items():
        if name in tensors:
            raise CheckpointError(f"Tensor {name[:120]!r} is in {tensors[name].file} and in {file}.", hint=REPEAT)
        if weight_map.get(name) != file.name:
            raise CheckpointError(f"{file}: tensor {name[:120]!r} is not where {INDEX} says.", hint=REPEAT)
        tensors[name] = info


def _check_file_name(index: Path, name: object) -> None:
    """CheckpointError unless this is a plain name in the same folder, so that an index cannot escape from it."""
    plain = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}\.safetensors", name)
    if not plain:
        raise CheckpointError(f"{index} names {str(name)[:120]!r}, which is not a file of this folder.", hint=REPEAT)
