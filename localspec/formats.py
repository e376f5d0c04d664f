"""The weight formats of bitsandbytes by name, and what config.json says of weights that are in one.

Knows no tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal  # Any: config.json is somebody else's

from localspec.errors import CheckpointError

FourBitKind = Literal["nf4", "fp4"]
FOUR_BIT: tuple[FourBitKind, ...] = ("nf4", "fp4")
INT8_THRESHOLD = 6.0  # LLM.int8 multiplies inputs beyond it in 16 bits (arXiv 2208.07339)


def stored_kind(config: Mapping[str, Any]) -> FourBitKind | None:
    """None for floats; CheckpointError for what somebody quantised in another way."""
    said = config.get("quantization_config")
    if not said:
        return None
    fields = said if isinstance(said, dict) else {}
    method = fields.get("quant_method", "bitsandbytes")
    if method == "bitsandbytes" and (fields.get("load_in_4bit") or fields.get("_load_in_4bit")):
        named = fields.get("bnb_4bit_quant_type", "fp4")
        for kind in FOUR_BIT:
            if named == kind:
                return kind
        method = f"bitsandbytes {str(named)[:40]}"
    raise CheckpointError(
        f"This model is quantised already, by {str(method)[:40]} (quantization_config), which localspec cannot run.",
        hint="Choose its 16-bit copy and --quant nf4, or a copy that bitsandbytes made in four bits.",
    )
