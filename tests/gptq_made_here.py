"""A model's linears as GPTQ repositories store them, made by rounding: the layout is what matters, not the search."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

GROUP = 32
SAID: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True}


def packed(codes: Tensor) -> Tensor:
    """Eight of four bits in each int32 [rows, n / 8], the first in the lowest."""
    words = (codes.long().reshape(codes.shape[0], -1, 8) << (4 * torch.arange(8))).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def gptq(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The tensors of a weight [outputs, inputs], and what they stand for. Zeros are stored one too low, as ever."""
    outputs, inputs = weight.shape
    groups = weight.float().reshape(outputs, -1, GROUP)
    scales = (groups.abs().amax(-1) / 7).half()
    codes = (groups / scales.float()[..., None]).round().clamp(-8, 7) + 8
    meant = ((codes - 8) * scales.float()[..., None]).reshape(outputs, inputs)
    parts = {
        "qweight": packed(codes.reshape(outputs, inputs)).t().contiguous(),
        "qzeros": packed(torch.full((inputs // GROUP, outputs), 7)),
        "scales": scales.t().contiguous(),
        "g_idx": torch.arange(inputs, dtype=torch.int32) // GROUP,
    }
    return parts, meant


def gptq_tensors(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A checkpoint of the Llama family with its layers' linears in GPTQ's layout; and the floats that it stands for."""
    stored, meant = dict[str, Tensor](), dict[str, Tensor]()
    for name, tensor in tensors.items():
        if not name.endswith("_proj.weight"):
            stored[name], meant[name] = tensor.half(), tensor.half().float()
            continue
        parts, meant[name] = gptq(tensor)
        stored |= {name.removesuffix("weight") + part: found for part, found in parts.items()}
    return stored, meant
