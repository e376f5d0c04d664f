"""Maps llama.cpp's tensor names of the Llama family to Hugging Face's. Knows nothing about the tensors' content."""

from __future__ import annotations

import re
from pathlib import Path

from localspec.core.errors import REPEAT, CheckpointError
from localspec.models.gguf.header import Gguf
from localspec.models.safetensors_index import TensorInfo

EMBEDDING, HEAD, NORM = "token_embd", "output", "output_norm"
TABLES = {EMBEDDING: "model.embed_tokens", HEAD: "lm_head", NORM: "model.norm"}
LAYER = {  # ours by theirs
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS = "rope_freqs.weight"  # belongs to the configuration
OF_A_LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,3})\.([a-z_]+)")
FLOATS = ("F32", "F16", "BF16")
QUANTISED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")


def renamed(model: Gguf) -> dict[str, TensorInfo]:
    """A model's tensors by Hugging Face's names; an unknown one keeps its own and is refused later."""
    found = dict[str, TensorInfo]()
    for theirs, info in model.tensors.items():
        if theirs == ROPE_FACTORS:
            continue
        check_type(model.file, theirs, info)
        name = our_name(theirs)
        if name in found:
            raise CheckpointError(f"{model.file} has two tensors for {name!r}.", hint=REPEAT)
        found[name] = info
    return found


def our_name(theirs: str) -> str:
    stem, _, part = theirs.rpartition(".")
    if part in ("weight", "bias"):
        if stem in TABLES:
            return f"{TABLES[stem]}.{part}"
        layer = OF_A_LAYER.fullmatch(stem)
        if layer and layer[2] in LAYER:
            return f"model.layers.{layer[1]}.{LAYER[layer[2]]}.{part}"
    return theirs


def check_type(file: Path, name: str, info: TensorInfo) -> None:
    if info.dtype not in (*FLOATS, *QUANTISED):
        message = f"{file}: its '{name}' is {info.dtype}, which localspec does not read."
        raise CheckpointError(message, hint="Choose a copy in Q4_K_M, Q6_K or Q8_0.")
    if len(info.shape) == 1 and info.dtype not in FLOATS:
        raise CheckpointError(f"{file}: its '{name}' is {info.dtype}, not floats.", hint=REPEAT)
