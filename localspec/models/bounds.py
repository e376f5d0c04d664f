"""Checks a configuration: numbers in range, heads that divide, no more weights than the files hold.

Knows nothing about files or torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any  # Any: JSON from a stranger

from localspec.core import strict_json
from localspec.core.errors import REPEAT, CheckpointError
from localspec.models.safetensors_index import TensorInfo

MAX_INTEGER = 1 << 53
MAX_TEMPLATE_BYTES = 64 << 10

BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), (1, 1000)),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), (1, 65_536)),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim"), (1, 1 << 20)),
    **dict.fromkeys(("vocab_size",), (1, 1 << 22)),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "n_head"), (1, 4096)),
    **dict.fromkeys(("head_dim",), (1, 8192)),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), (1, 10**8)),
    **dict.fromkeys(("original_max_position_embeddings", "sliding_window"), (0, 10**8)),
    **dict.fromkeys(("rope_theta", "rotary_emb_base", "factor"), (1e-3, 1e12)),
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"), (0, 1)),
}
REAL = {"rope_theta", "rotary_emb_base", "factor", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"}
PER_LAYER = {"intermediate_size", "num_attention_heads", "num_key_value_heads", "n_head", "head_dim"}


def check_numbers(file: Path, config: Mapping[str, Any]) -> None:
    for _, key, value in strict_json.walk(config, str(file)):
        _check_number(file, key, value)


def _check_number(file: Path, key: str, value: object) -> None:
    # Hugging Face writes model_max_length = 10^30 for "no limit"; it is not read here
    if isinstance(value, int) and abs(value) > MAX_INTEGER and key != "model_max_length":
        raise CheckpointError(f"{file}: {key[:80]} = {value} is out of range.", hint=REPEAT)
    if key not in BOUNDS or value is None:
        return
    low, high = BOUNDS[key]
    kinds = (int, float) if key in REAL else (int,)
    numbers: list[Any] = value if isinstance(value, list) and key in PER_LAYER else [value]
    for number in numbers:
        if isinstance(number, str):
            raise CheckpointError(f"{file}: {key} = {number[:40]!r} is text, not a number.", hint=REPEAT)
        if type(number) not in kinds or not low <= number <= high:
            fault = f"{key} = {str(value)[:40]} is out of range ({low:,} to {high:,.0f})"
            raise CheckpointError(f"{file}: {fault}.", hint=REPEAT)


def check_heads(file: Path, config: Mapping[str, Any]) -> None:
    heads, kv_heads = _count(config, "num_attention_heads"), _count(config, "num_key_value_heads")
    hidden = _count(config, "hidden_size")
    if heads and kv_heads and heads % kv_heads:
        raise CheckpointError(f"{file}: {heads} heads do not divide into {kv_heads} key-value heads.", hint=REPEAT)
    if heads and hidden and not config.get("head_dim") and hidden % heads:
        raise CheckpointError(f"{file}: hidden_size {hidden} does not divide into {heads} heads.", hint=REPEAT)


def check_enough_bytes(file: Path, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> None:
    """CheckpointError where a config describes more than its weights hold: allocating by it would exhaust memory."""
    hidden, layers, vocab = (_count(config, key) for key in ("hidden_size", "num_hidden_layers", "vocab_size"))
    least = (vocab + layers * hidden) * hidden // 4  # the embedding and one square a layer, two bits each
    held = sum(info.num_bytes for info in tensors.values())
    if held * 1.1 < least:
        raise CheckpointError(
            f"{file} describes at least {least:,} bytes of weights, but there are {held:,}.", hint=REPEAT
        )


def _count(config: Mapping[str, Any], key: str) -> int:
    """A number of the config; 0 if it is missing or given per layer."""
    value = config.get(key)
    return value if isinstance(value, int) else 0
