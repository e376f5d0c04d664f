"""Ways to spoil a folder: each function makes one that does it. Paths are relative to the folder of an attack."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.attacks.attack import Spoil

SINGLE, INDEX = "model/model.safetensors", "model/model.safetensors.index.json"
SHARDS = ("model/model-00001-of-00002.safetensors", "model/model-00002-of-00002.safetensors")


def unchanged(_: Path) -> None:
    pass


def both(*spoils: Spoil) -> Spoil:
    return lambda here: [spoil(here) for spoil in spoils]


# --- files


def gone(name: str) -> Spoil:
    return lambda here: (here / name).unlink()


def written(name: str, content: bytes | str) -> Spoil:
    raw = content.encode() if isinstance(content, str) else content
    return lambda here: (here / name).write_bytes(raw)


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Spoil:
    return lambda here: (here / name).write_bytes(change((here / name).read_bytes()))


def sparse(name: str, size: int) -> Spoil:
    """Bytes that take no space on the disk; the beginning is what it was."""
    return lambda here: os.truncate(here / name, size)


def instead(name: str, make: Callable[[Path], object]) -> Spoil:
    """Another kind of thing where a file should be."""

    def spoil(here: Path) -> None:
        (here / name).unlink(missing_ok=True)
        make(here / name)

    return spoil


def link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


def listening(path: Path) -> None:
    """A socket has to have a short name: it is made elsewhere by a name relative to it."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def moved_away(name: str) -> Spoil:
    """Into another folder, with a link to it: as the hub's cache keeps files."""

    def spoil(here: Path) -> None:
        (here / "blobs").mkdir()
        shutil.move(here / name, here / "blobs" / "blob")
        (here / name).symlink_to("../blobs/blob")

    return spoil


# --- JSON


def with_fields(name: str, **fields: Any) -> Spoil:
    """Fields added or replaced; None stands for null."""
    return json_of(name, lambda found: {**found, **fields})


def without(name: str, field: str) -> Spoil:
    return json_of(name, lambda found: {key: value for key, value in found.items() if key != field})


def json_of(name: str, change: Callable[[dict[str, Any]], object]) -> Spoil:
    def spoil(here: Path) -> None:
        found = json.loads((here / name).read_text()) if (here / name).exists() else {}
        (here / name).write_text(json.dumps(change(found)))

    return spoil


# --- safetensors


def tensors(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Spoil:
    """Other tensors in a file that is sound."""

    def spoil(here: Path) -> None:
        found = change(load_file(here / SINGLE))
        save_file({name: tensor.contiguous() for name, tensor in found.items()}, here / SINGLE)

    return spoil


def all_as(dtype: torch.dtype) -> Spoil:
    return tensors(lambda found: {name: tensor.to(dtype) for name, tensor in found.items()})


def all_at(value: float) -> Spoil:
    return tensors(lambda found: {name: torch.full_like(tensor, value) for name, tensor in found.items()})


def one_at(name: str, value: float) -> Spoil:
    """The last number of a tensor."""

    def change(found: dict[str, Tensor]) -> dict[str, Tensor]:
        found[name].view(-1)[-1] = value
        return found

    return tensors(change)


def one_changed(name: str, change: Callable[[Tensor], Tensor]) -> Spoil:
    return tensors(lambda found: {**found, name: change(found[name])})


def one_added(name: str, tensor: Tensor) -> Spoil:
    return tensors(lambda found: {**found, name: tensor})


def one_gone(name: str) -> Spoil:
    return tensors(lambda found: {other: tensor for other, tensor in found.items() if other != name})


def header(change: Callable[[dict[str, Any]], object]) -> Spoil:
    """Another header over the same bytes."""

    def spoil(raw: bytes) -> bytes:
        length = struct.unpack("<Q", raw[:8])[0]
        made = change(json.loads(raw[8 : 8 + length]))
        text = made if isinstance(made, bytes) else json.dumps(made).encode()
        return struct.pack("<Q", len(text)) + text + raw[8 + length :]

    return rewritten(SINGLE, spoil)


def entry_of(name: str, **fields: Any) -> Spoil:
    """Other fields of one tensor in the header."""
    return header(lambda found: {**found, name: {**found[name], **fields}})


def sharded(change: Callable[[dict[str, str]], object] = lambda weight_map: weight_map) -> Spoil:
    """The same tensors in two files, and an index of them that may lie."""

    def spoil(here: Path) -> None:
        found = load_file(here / SINGLE)
        names, half = sorted(found), len(found) // 2
        weight_map: dict[str, str] = {}
        for file, part in zip(SHARDS, (names[:half], names[half:]), strict=True):
            save_file({name: found[name] for name in part}, here / file)
            weight_map |= dict.fromkeys(part, Path(file).name)
        (here / SINGLE).unlink()
        (here / INDEX).write_text(json.dumps({"weight_map": change(weight_map)}))

    return spoil
