"""Refuses weights that are not floats: integers taken for weights give nonsense.

Knows the names of tables that old checkpoints carry, and what quantised weights are stored as. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any  # Any: config.json is a stranger's

from localspec.core.errors import REPEAT, CheckpointError
from localspec.models.prequantised.stored_format import is_gptq, is_unpacked
from localspec.models.prequantised.weights import StoredWeight, besides
from localspec.models.safetensors_index import TensorInfo

FLOATS = ("F64", "F32", "F16", "BF16")  # eight bits are too few without a scale
LEFT_OVER = (  # computed here; masks among them are Boolean, positions integers
    "rotary_emb.inv_freq",
    "attn.bias",
    "attn.causal_mask",
    "attention.bias",
    "masked_bias",
    "position_ids",
)
GPTQ_PARTS = (".qweight", ".qzeros", ".g_idx")
BITSANDBYTES_STATE = ".quant_state.bitsandbytes__"
ELSEWHERE = ("quantization_config", "quantization")  # the readers of these fields refuse unknown formats; MLX's, too


def refuse_not_floats(
    config: Mapping[str, Any], tensors: Mapping[str, TensorInfo], unpacked: Mapping[str, StoredWeight]
) -> None:
    """CheckpointError for the first weight that is not stored as floats, unless the config explains its format."""
    stored = besides(unpacked, tensors) if is_unpacked(config) else in_integers(config, tensors)
    for name, info in tensors.items():
        if info.dtype not in FLOATS and not name.endswith(LEFT_OVER) and stored is not None and name not in stored:
            message = f"The checkpoint's '{name[:120]}' is {info.dtype}, and its config does not say how it is read."
            raise CheckpointError(message, hint=REPEAT)


def in_integers(config: Mapping[str, Any], names: Collection[str]) -> set[str] | None:
    """The integer tensors of GPTQ, where transformers runs it, and of bitsandbytes; None for another format."""
    if is_gptq(config):
        return {name for name in names if name.endswith(GPTQ_PARTS)}
    fields = config.get("quantization_config")
    if isinstance(fields, dict) and fields.get("quant_method", "bitsandbytes") == "bitsandbytes":
        states = {name for name in names if BITSANDBYTES_STATE in name}
        weights = {name.partition(BITSANDBYTES_STATE)[0] for name in states}
        return states | weights | {f"{weight}.absmax" for weight in weights}
    return None if any(config.get(name) for name in ELSEWHERE) else set()
