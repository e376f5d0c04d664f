"""Converts a GGUF file's metadata to the config.json that the same model has at Hugging Face.

Refuses fields that llama.cpp supports and our decoder does not. Knows nothing about weights or torch.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any  # Any: fields of a config.json

from localspec.core.errors import CHOOSE_ANOTHER, REPEAT, CheckpointError
from localspec.core.requests import SAMPLING_FIELDS
from localspec.models.gguf.fields import Fields, shortest
from localspec.models.gguf.header import Gguf
from localspec.models.gguf.names import EMBEDDING, FLOATS, HEAD, ROPE_FACTORS
from localspec.models.gguf.types import FILES

Config = dict[str, Any]

ARCHITECTURES = ("llama", "qwen2", "qwen3")
EMBEDS = "pooling_type"  # in models that compute embeddings
ACTED_ON = {  # fields that llama.cpp supports in these architectures, with the value that changes nothing
    "expert_count": 0,
    "logit_scale": 1,
    "residual_scale": 1,
    "embedding_scale": 1,
    "attention.scale": 0,
    "attention.clamp_kqv": 0,
    "attention.max_alibi_bias": 0,
    "attention.temperature_scale": 0,
    "attention.causal": True,
    "attn_logit_softcapping": 0,
    "final_logit_softcapping": 0,
    "rope.dimension_sections": (),
    "rope.scaling.attn_factor": 1,
    "rope.scaling.yarn_attn_factor": 1,
    "rope.scaling.yarn_ext_factor": 1,
    "rope.scaling.yarn_log_multiplier": 0,
}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LONGEST_HEAD = 8192
SAMPLING = {"temperature": "temp", "repetition_penalty": "penalty_repeat"}  # its other names of options are ours
NEAR = 1e-5  # relative; the factors are computed in float32


def read_config(model: Gguf) -> Config:
    """The config.json of a GGUF file; CheckpointError for what the decoder does not support."""
    fields = Fields.of(model)
    check_architecture(fields)
    heads, hidden = fields.size("attention.head_count"), fields.size("embedding_length")
    head_dim = fields.size("attention.key_length", hidden // max(heads, 1))
    if fields.size("attention.value_length", head_dim) != head_dim:
        raise fields.refuse("values of another length than keys")
    window = fields.size("attention.sliding_window", 0) if fields.architecture == "llama" else 0
    return {
        "model_type": "mistral" if window else fields.architecture,
        **({"sliding_window": window} if window else {}),
        "vocab_size": num_rows(model),
        "hidden_size": hidden,
        "intermediate_size": fields.size("feed_forward_length"),
        "num_hidden_layers": fields.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.size("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": fields.size("context_length"),
        "rms_norm_eps": fields.real("attention.layer_norm_rms_epsilon"),
        "rope_parameters": read_rope(fields, head_dim),
        "tie_word_embeddings": f"{HEAD}.weight" not in model.tensors,
        **read_biases(fields, is_mistral=bool(window)),
    }


def check_architecture(fields: Fields) -> None:
    name = fields.architecture
    if name not in ARCHITECTURES:
        raise CheckpointError(
            f"{fields.model.file} has the architecture '{name[:40]}'; from GGUF localspec reads"
            f" {', '.join(ARCHITECTURES)}.",
            hint="Choose its safetensors repository, which transformers may run.",
        )
    if fields.get(EMBEDS):
        raise CheckpointError(
            f"{fields.model.file} is an embedding model and does not generate text.", hint=CHOOSE_ANOTHER
        )
    for field, usual in ACTED_ON.items():
        if fields.get(field) not in (None, usual):
            raise fields.refuse(f"{name}.{field} = {str(fields.get(field))[:40]}")


def num_rows(model: Gguf) -> int:
    """Rows of the embedding, with padding."""
    found = model.tensors.get(f"{EMBEDDING}.weight")
    if found is None or len(found.shape) != 2:
        raise CheckpointError(f"{model.file} has no {EMBEDDING}.weight, the embedding of a model.", hint=REPEAT)
    return found.shape[0]


def read_biases(fields: Fields, *, is_mistral: bool) -> Config:
    """The fields for biases: Llama and Qwen3 may have some, Qwen2 always has those of queries, keys and values."""
    has = {part: f"blk.0.{part}.bias" in fields.model.tensors for part in ("attn_q", "ffn_up")}
    if not any(has.values()) or fields.architecture == "qwen2" or is_mistral:
        return {}
    return {"attention_bias": has["attn_q"], **({"mlp_bias": True} if has["ffn_up"] else {})}


def read_rope(fields: Fields, head_dim: int) -> Config:
    if fields.size("rope.dimension_count", head_dim) != head_dim:
        raise fields.refuse("partial rotary embeddings")
    theta = {"rope_theta": fields.real("rope.freq_base", 10000.0)}
    if ROPE_FACTORS in fields.model.tensors:
        return {**theta, **read_factors(fields, theta["rope_theta"], head_dim)}
    kind, factor = fields.get("rope.scaling.type"), fields.real("rope.scaling.factor", 0.0)
    if kind == "none" or factor in (0.0, 1.0):
        return {"rope_type": "default", **theta}
    if kind in (None, "linear"):
        return {"rope_type": "linear", "factor": factor, **theta}
    if kind == "yarn":
        original = fields.size("rope.scaling.original_context_length")
        betas = {name: fields.get(f"rope.scaling.yarn_{name}") for name in ("beta_fast", "beta_slow")}
        given = {name: fields.real(f"rope.scaling.yarn_{name}") for name, beta in betas.items() if beta is not None}
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original, **given, **theta}
    raise fields.refuse(f"rope.scaling.type = {str(kind)[:40]}")


def read_factors(fields: Fields, theta: float, head_dim: int) -> Config:
    """The RoPE fields for divisors of each channel's frequency: only those of Llama 3's rule are known."""
    info = fields.model.tensors[ROPE_FACTORS]
    if info.dtype != "F32" or info.shape != (head_dim // 2,) or head_dim > LONGEST_HEAD:
        raise CheckpointError(f"{fields.model.file}: its {ROPE_FACTORS} is {info.dtype} {info.shape}.", hint=REPEAT)
    try:
        with info.file.open("rb") as stream:
            stream.seek(info.begin)
            found = struct.unpack(f"<{head_dim // 2}f", stream.read(info.num_bytes))
    except (OSError, struct.error) as error:
        raise CheckpointError(f"{info.file} cannot be read ({error}).", hint=REPEAT) from error
    if set(found) == {1.0}:
        return {"rope_type": "default"}
    largest = shortest(max(found))
    if theta < 1 or not 1 < largest < math.inf or not alike(found, llama3_factors(theta, head_dim, largest)):
        raise fields.refuse("rotary frequencies of its own")
    return {"rope_type": "llama3", "factor": largest, **LLAMA3}


def alike(found: Sequence[float], rule: Sequence[float]) -> bool:
    return all(math.isclose(one, other, rel_tol=NEAR) for one, other in zip(found, rule, strict=True))


def llama3_factors(theta: float, head_dim: int, factor: float) -> list[float]:
    """The divisor of each frequency by Llama 3's rule: https://github.com/meta-llama/llama-models, apply_scaling."""
    low, high, original = (LLAMA3[name] for name in LLAMA3)
    found = []
    for channel in range(0, head_dim, 2):
        waves = original / (2 * math.pi * theta ** (channel / head_dim))  # in the context it was trained on
        share = min(max((waves - low) / (high - low), 0.0), 1.0)
        found.append(1 / ((1 - share) / factor + share))
    return found


def read_generation(model: Gguf) -> Config:
    """The makers' sampling defaults as in generation_config.json; empty where there are none."""
    values = {name: model.metadata.get(f"general.sampling.{SAMPLING.get(name, name)}") for name in SAMPLING_FIELDS}
    given = {name: shortest(value) for name, value in values.items() if type(value) is float}
    given |= {name: value for name, value in values.items() if type(value) is int}
    return {"do_sample": True, **given} if given else {}


def stored_as(model: Gguf) -> str:
    """The format of most of its weights; empty for floats."""
    kind = model.metadata.get("general.file_type")
    if isinstance(kind, int) and kind in FILES:
        return FILES[kind]
    sizes = Counter[str]()
    for info in model.tensors.values():
        sizes[info.dtype] += info.num_bytes
    most = max(sizes, key=sizes.__getitem__, default="F32")
    return "" if most in FLOATS else most
