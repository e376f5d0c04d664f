"""Tiny models as GGUF files, written by the `gguf` package from folders in Hugging Face's layout.

Formats that it cannot quantise to are random blocks with sensible scales: what they stand for is what it reads there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.llama_cpp.gguf_file import by_pairs
from localspec.models.gguf.names import LAYER, TABLES
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

SIZES: dict[str, Any] = {  # rows of whole blocks of every format
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "head_dim": 64,
    "rope_theta": 10000.0,
}
FLOATS = ("F32", "F16", "BF16")
MADE = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
SCALES = {  # where a block's float16 scales lie, in formats that are drawn
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
}
KINDS = (*FLOATS, *MADE, *SCALES)
OURS = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
Change = Callable[[Any], object]


def save_pair(folder: Path, kind: str = "F32", **config: Any) -> tuple[Path, Path]:
    """A model in GGUF, and as a folder of safetensors with the same numbers."""
    made = save_snapshot(folder / "model", gpt2_like(), template=CHATML, eos="<|im_end|>", **{**SIZES, **config})
    return save_gguf(folder / f"tiny-{kind}.gguf", made, kind), made


def save_gguf(
    file: Path, folder: Path, kind: str = "F32", change: Change | None = None, *, tensors_each: int = 0
) -> Path:
    """`change` gets the writer before it writes. Where a format rounds, the folder's weights become what the file has.
    `tensors_each`: in files of so many tensors."""
    config = json.loads((folder / "config.json").read_text())
    writer: Any = gguf.GGUFWriter(file, OURS[config["model_type"]], split_max_tensors=tensors_each)
    describe(writer, config)
    describe_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()), config["vocab_size"])
    tensors = load_file(folder / "model.safetensors")
    for ours, tensor in tensors.items():
        theirs, in_pairs = their_name(ours, config["model_type"])
        raw, used = encoded(tensor, kind)
        tensors[ours] = floats(raw, used).view(tensor.shape)
        if in_pairs:
            raw = by_pairs(torch.from_numpy(raw).view(len(raw), -1), config["head_dim"]).numpy().reshape(raw.shape)
        writer.add_tensor(theirs, raw, raw_dtype=used)
    save_file(tensors, folder / "model.safetensors")
    if change:
        change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def describe(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])


def describe_tokenizer(writer: Any, spec: dict[str, Any], rows: int) -> None:
    """A byte-level one's, as llama.cpp's own program writes it."""
    added = {token["id"]: token for token in spec["added_tokens"]}
    names = {id: token for token, id in spec["model"]["vocab"].items()}
    names |= {id: token["content"] for id, token in added.items()}
    kinds = {id: 3 if token["special"] else 4 for id, token in added.items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([names.get(id, f"[PAD{id}]") for id in range(rows)])
    writer.add_token_types([kinds.get(id, 1) if id in names else 5 for id in range(rows)])
    writer.add_token_merges([" ".join(merge) for merge in spec["model"]["merges"]])
    writer.add_eos_token_id(next(id for id, name in names.items() if name == "<|im_end|>"))
    writer.add_chat_template(CHATML)


def their_name(ours: str, family: str) -> tuple[str, bool]:
    """And whether rows of a head that turn together are neighbours in the file."""
    stem, _, part = ours.rpartition(".")
    for theirs, name in TABLES.items():
        if stem == name:
            return f"{theirs}.{part}", False
    layer, _, name = stem.removeprefix("model.layers.").partition(".")
    theirs = next(one for one, other in LAYER.items() if other == name)
    return f"blk.{layer}.{theirs}.{part}", theirs in ("attn_q", "attn_k") and family in ("llama", "mistral")


def encoded(tensor: Tensor, kind: str) -> tuple[Any, Any]:
    """As the file has it; vectors stay floats."""
    used = gguf.GGMLQuantizationType["F32" if tensor.dim() == 1 else kind]
    values = tensor.float().numpy()
    if kind in SCALES and tensor.dim() > 1:
        return np.concatenate(list(drawn(values.shape, kind))), used
    return (values if used.name == "F32" else gguf.quants.quantize(values, used)), used


def drawn(shape: tuple[int, ...], kind: str) -> Iterator[Any]:
    """Rows of random blocks."""
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    draw = np.random.default_rng(sum(shape))
    for _ in range(shape[0]):
        row = draw.integers(0, 256, (shape[1] // numbers, size), dtype=np.uint8)
        for at in SCALES[kind]:
            row[:, at : at + 2] = draw.uniform(0.5e-4, 2e-4, (len(row), 1)).astype(np.float16).view(np.uint8)
        yield row.reshape(1, -1)


def floats(raw: Any, used: Any) -> Tensor:
    return torch.from_numpy(np.array(gguf.quants.dequantize(raw, used), dtype=np.float32))
