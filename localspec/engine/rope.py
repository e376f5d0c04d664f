"""Rotary embedding: the table of cosines and sines, fixed at load. Frequencies of scaled kinds are transformers' own.

`dynamic` and `longrope` depend on the length of a forward, so a wide verify would be rotated differently from single
rows; their frequencies are fixed from the session's context instead. Su et al., arXiv 2104.09864.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localspec.engine.arch import Arch
from localspec.engine.transformers_faults import transformers_faults


def frequencies(arch: Arch, context: int) -> tuple[Tensor, float]:
    """Inverse frequencies [head_dim / 2] in float32, and the factor on cosine and sine."""
    rope = dict(arch.rope)
    if rope["rope_type"] == "default":
        exponents = torch.arange(0, arch.head_dim, 2, dtype=torch.float) / arch.head_dim
        return 1.0 / (rope["rope_theta"] ** exponents), 1.0
    return scaled_frequencies(arch, context)


def scaled_frequencies(arch: Arch, context: int) -> tuple[Tensor, float]:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {name: list(value) if isinstance(value, tuple) else value for name, value in arch.rope}
    with transformers_faults():
        config = LlamaConfig(
            hidden_size=arch.num_heads * arch.head_dim,  # any that the heads divide
            num_attention_heads=arch.num_heads,
            head_dim=arch.head_dim,
            max_position_embeddings=arch.max_context,
            rope_parameters=rope,
        )
        inverse, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=context)
        return inverse, float(factor)


def rotation_table(arch: Arch, context: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin, each [context, 1, head_dim], for x·cos + swap_halves(x)·sin; the sine carries the sign."""
    inverse, factor = frequencies(arch, context)
    angles = torch.arange(context, dtype=torch.float)[:, None] * inverse[None, :]
    cos, sin = angles.cos() * factor, angles.sin() * factor
    return (
        torch.cat((cos, cos), dim=-1)[:, None, :].to(dtype),
        torch.cat((-sin, sin), dim=-1)[:, None, :].to(dtype),
    )
