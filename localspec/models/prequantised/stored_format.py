"""Checkpoints that bitsandbytes or GPTQ quantised: what config.json says of their weights.

Knows no tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal  # Any: config.json, as its author wrote it

from localspec.core.errors import CheckpointError
from localspec.core.families import FAMILIES

FourBitType = Literal["nf4", "fp4"]
FOUR_BIT: tuple[FourBitType, ...] = ("nf4", "fp4")
GPTQ: Literal["gptq"] = "gptq"
GPTQ_NEEDS = ("gptqmodel", "optimum")  # what transformers computes it with
GPTQ_BITS = (2, 3, 4, 8)
GPTQ_LAYOUTS = ("gptq", "gptq_v2")
UNPACKED = (GPTQ, "awq", "compressed-tensors", "fp8", "fbgemm_fp8")  # while loading, where our decoder runs the family


def stored_format(config: Mapping[str, Any]) -> FourBitType | Literal["gptq"] | None:
    """The weight format that a checkpoint is stored in; None for floats, and for what becomes floats while it is
    loaded. CheckpointError for weights that are quantised in another way, or that nothing here can compute."""
    refuse_mlx(config)
    stated = config.get("quantization_config")
    if not stated or is_unpacked(config):
        return None
    if is_gptq(config):
        read_gptq(config)
        return GPTQ
    fields = stated if isinstance(stated, dict) else {}
    method = method_of(fields)
    if method == "bitsandbytes" and (fields.get("load_in_4bit") or fields.get("_load_in_4bit")):
        named = fields.get("bnb_4bit_quant_type", "fp4")
        for kind in FOUR_BIT:
            if named == kind:
                return kind
        method = f"bitsandbytes {str(named)[:40]}"
    raise CheckpointError(
        f"This model is quantised already, by {method} (quantization_config), which localspec cannot run.",
        hint="Choose its 16-bit copy, or one that GPTQ, AWQ or bitsandbytes quantised to four bits.",
    )


def is_unpacked(config: Mapping[str, Any]) -> bool:
    """Whether its weights become floats while they are read: (code - zero) * scale."""
    stated = config.get("quantization_config")
    return isinstance(stated, dict) and stated.get("quant_method") in UNPACKED and config.get("model_type") in FAMILIES


def method_of(fields: Mapping[str, Any]) -> str:
    """The program that quantised it. bitsandbytes did not always sign; modelopt signs as the producer."""
    producer = fields.get("producer")
    signed = producer.get("name") if isinstance(producer, dict) else None
    return str(fields.get("quant_method") or signed or "bitsandbytes")[:40]


def refuse_mlx(config: Mapping[str, Any]) -> None:
    """Refuses MLX's weights. MLX has a field of its own, which it may repeat as quantization_config."""
    if config.get("quantization"):
        message = "This model is quantised already, by MLX, which localspec cannot run."
        raise CheckpointError(message, hint="Choose its 16-bit copy: --quant int8 or int4 quantises that one.")


def is_gptq(config: Mapping[str, Any]) -> bool:
    stated = config.get("quantization_config")
    return isinstance(stated, dict) and stated.get("quant_method") == GPTQ


def read_gptq(config: Mapping[str, Any]) -> dict[str, Any]:
    """The layout of GPTQ's weights, and nothing else that transformers would act on. CheckpointError where a package
    for it is missing."""
    stated = config["quantization_config"]
    layout = stated.get("checkpoint_format") or stated.get("format") or GPTQ_LAYOUTS[0]
    bits, group = stated.get("bits"), stated.get("group_size", 128)
    if bits not in GPTQ_BITS or layout not in GPTQ_LAYOUTS or type(group) is not int or not (group == -1 or group > 0):
        raise CheckpointError(
            f"config.json describes no weights of GPTQ's (bits {str(bits)[:40]}, group_size {str(group)[:40]},"
            f" layout {str(layout)[:40]}).",
            hint="Choose its 16-bit copy and --quant nf4.",
        )
    if missing := [name for name in GPTQ_NEEDS if find_spec(name) is None]:
        raise CheckpointError(
            f"This model is quantised already, by gptq, which needs {' and '.join(missing)} installed.",
            hint="Run: pip install 'localspec[gptq]'. Or choose its 16-bit copy and --quant nf4.",
        )
    flags = {name: bool(stated.get(name, usual)) for name, usual in (("desc_act", False), ("sym", True))}
    return {"quant_method": GPTQ, "bits": bits, "group_size": group, "checkpoint_format": layout, **flags}
