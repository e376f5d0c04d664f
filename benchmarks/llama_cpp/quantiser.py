"""llama.cpp's own quantiser, and the floats its files stand for, which the gguf package reads and not our loader."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any  # Any: llama_cpp is untyped

import torch
from torch import Tensor

from benchmarks.llama_cpp.gguf_file import EMBEDDING, LAYER_NAMES
from benchmarks.llama_cpp.library import silence
from localspec.core.errors import EngineError

OURS = {theirs: ours for ours, theirs in LAYER_NAMES.items()}
OUTSIDE = {
    EMBEDDING: "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def read_floats(file: Path, head_dim: int) -> tuple[dict[str, Tensor], int]:
    """Tensors as checkpoints have them, and the bytes they take in the file."""
    import gguf

    found, num_bytes = {}, 0
    for one in gguf.GGUFReader(file).tensors:
        tensor = torch.tensor(gguf.quants.dequantize(one.data, one.tensor_type))
        name = our_name(one.name)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            tensor = by_halves(tensor, head_dim)
        found[name] = tensor
        num_bytes += int(one.n_bytes)
    return found, num_bytes


def our_name(theirs: str) -> str:
    if theirs in OUTSIDE:
        return OUTSIDE[theirs]
    _, index, name, kind = theirs.split(".")
    return f"model.layers.{index}.{OURS[name]}.{kind}"


def by_halves(weight: Tensor, head_dim: int) -> Tensor:
    """Channels that turn together, next to each other in the file, half a head apart."""
    return weight.view(-1, head_dim // 2, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def quantise(floats: Path, to: Path, kind: str) -> None:
    """Quantises with llama.cpp itself, as its own program does without further options."""
    import llama_cpp

    api: Any = llama_cpp
    quiet = silence(api)
    params = api.llama_model_quantize_default_params()
    params.ftype, params.nthread = getattr(api, f"LLAMA_FTYPE_MOSTLY_{kind}"), os.cpu_count() or 1
    params.allow_requantize = True  # a file that is in a format already
    failed = api.llama_model_quantize(str(floats).encode(), str(to).encode(), ctypes.byref(params))
    del quiet
    if failed:
        raise EngineError(f"llama.cpp cannot quantise to {kind}.")
