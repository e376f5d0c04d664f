"""A GGUF model's tensors under Hugging Face's names, some rows at a time: a Source.

The formulas of the formats are the `gguf` package's. In llama's files the two rows of queries and keys that turn
together are neighbours; Hugging Face, and the decoder, have them half a head apart.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from localspec.core.errors import CheckpointError
from localspec.core.plain_file import plain
from localspec.loading.unpacking.fields import SLAB_ELEMENTS

if TYPE_CHECKING:
    from localspec.loading.sources import Files

IN_PAIRS = (".q_proj.weight", ".q_proj.bias", ".k_proj.weight", ".k_proj.bias")
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Dequantised:
    """Tensors by name, as floats. Opens a file for each reading anew: a loaded model holds no file open."""

    def __init__(self, files: Files) -> None:
        self.files, config = files, files.snapshot.config
        self.head_dim = int(config["head_dim"])
        self.in_pairs = IN_PAIRS if config["model_type"] in ("llama", "mistral") else ()

    def names(self) -> set[str]:
        return self.files.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self.files.shape(name)

    def read(self, name: str) -> Tensor:
        return self.rows(name, 0, self.shape(name)[0])

    def rows(self, name: str, first: int, last: int) -> Tensor:
        step = max(SLAB_ELEMENTS // math.prod(self.shape(name)[1:]), 1)
        slabs = [self.slab(name, low, min(low + step, last)) for low in range(first, last, step)]
        return slabs[0] if len(slabs) == 1 else torch.cat(slabs)

    def slab(self, name: str, first: int, last: int) -> Tensor:
        if not name.endswith(self.in_pairs):
            return self.floats(name, self.octets(name, first, last))
        where = in_pairs(torch.arange(first, last), self.head_dim)
        low = int(where.min())
        return self.floats(name, self.octets(name, low, int(where.max()) + 1)[where - low])

    def octets(self, name: str, first: int, last: int) -> Tensor:
        """Rows as they lie in the file."""
        info = self.files.snapshot.tensors[name]
        size = info.num_bytes // info.shape[0]
        raw = bytearray((last - first) * size)
        try:
            with plain(info.file).open("rb", buffering=0) as stream:
                stream.seek(info.begin + first * size)
                found = stream.readinto(raw)
        except OSError as fault:
            raise unreadable(info.file, fault.strerror or str(fault)) from fault
        if found != len(raw):
            raise unreadable(info.file, "it is cut short")
        return torch.frombuffer(raw, dtype=torch.uint8).view(-1, size)

    def floats(self, name: str, octets: Tensor) -> Tensor:
        info = self.files.snapshot.tensors[name]
        kind = PLAIN.get(info.dtype)
        values = octets.view(kind) if kind else dequantised(octets, info.dtype)
        return values.view(-1, *info.shape[1:])

    def announce(self, name: str, *, soon: bool) -> None:
        self.files.announce(name, soon=soon)


def in_pairs(rows: Tensor, head_dim: int) -> Tensor:
    """The order in which llama's files have these rows of queries or keys."""
    half, channel = rows % head_dim // (head_dim // 2), rows % (head_dim // 2)
    return rows // head_dim * head_dim + 2 * channel + half


def dequantised(octets: Tensor, kind: str) -> Tensor:
    try:
        import numpy as np
        from gguf import GGMLQuantizationType, quants
    except ImportError as fault:
        message = f"Reading {kind} needs the package {fault.name}, which is not installed."
        raise CheckpointError(message, hint="Run: pip install 'gguf>=0.19'") from fault
    with np.errstate(all="ignore"):  # the reader finds what is not a number
        return torch.from_numpy(quants.dequantize(octets.numpy(), GGMLQuantizationType[kind]))


def unreadable(file: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{file} cannot be read ({why}).", hint="Download the model again.")
