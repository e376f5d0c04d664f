"""GGUF files and llama.cpp's own quantiser: float weights out of a file, and into its formats and back."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any  # Any: gguf, llama_cpp and transformers are untyped here

import torch
from torch import Tensor

from localspec.bench.gguf_file import EMBEDDING, LAYER_NAMES
from localspec.bench.llama_cpp import silence
from localspec.engine.arch import Arch, read_arch
from localspec.errors import EngineError

OURS = {theirs: ours for ours, theirs in LAYER_NAMES.items()}
OUTSIDE = {
    EMBEDDING: "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def open_gguf(file: Path) -> tuple[Arch, dict[str, Tensor], Any]:
    """Shape, float32 tensors and tokenizer of a llama file."""
    import gguf
    from transformers import AutoTokenizer

    fields = {name: field for name, field in gguf.GGUFReader(file).fields.items() if name.startswith("llama.")}
    said = {name.removeprefix("llama."): field.contents() for name, field in fields.items()}
    tensors, _ = read_floats(file, said["embedding_length"] // said["attention.head_count"])
    arch = read_arch(
        {
            "model_type": "llama",
            "vocab_size": tensors["model.embed_tokens.weight"].shape[0],
            "hidden_size": said["embedding_length"],
            "intermediate_size": said["feed_forward_length"],
            "num_hidden_layers": said["block_count"],
            "num_attention_heads": said["attention.head_count"],
            "num_key_value_heads": said["attention.head_count_kv"],
            "max_position_embeddings": said["context_length"],
            "rms_norm_eps": said["attention.layer_norm_rms_epsilon"],
            "rope_theta": said["rope.freq_base"],
            "tie_word_embeddings": "lm_head.weight" not in tensors,
        }
    )
    return arch, tensors, AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


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
    """By llama.cpp itself, as its own program does it without further options."""
    import llama_cpp

    api: Any = llama_cpp
    quiet = silence(api)
    params = api.llama_model_quantize_default_params()
    params.ftype, params.nthread = getattr(api, f"LLAMA_FTYPE_MOSTLY_{kind}"), os.cpu_count() or 1
    failed = api.llama_model_quantize(str(floats).encode(), str(to).encode(), ctypes.byref(params))
    del quiet
    if failed:
        raise EngineError(f"llama.cpp cannot quantise to {kind}.")
