"""An exact orthogonal change of basis of a model's residual stream: the same function, other numbers in the weights.

Quantised weights lie on their format's grid, which favours it. After the change they lie on no format's grid.
Norms are folded into what reads them first, since they do not commute with a rotation; so the head becomes its own.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.models import EMBEDDING, HEAD, Model, untied

SEED = 0
READERS = {  # of the residual stream, and through which norm
    "self_attn.q_proj": "input_layernorm",
    "self_attn.k_proj": "input_layernorm",
    "self_attn.v_proj": "input_layernorm",
    "mlp.gate_proj": "post_attention_layernorm",
    "mlp.up_proj": "post_attention_layernorm",
}
WRITERS = ("self_attn.o_proj", "mlp.down_proj")


def rotated(model: Model) -> Model:
    """Computed in float64; the tensors keep their dtypes."""
    arch, tensors = untied(model.arch, model.tensors)
    found = {name: tensor.double() for name, tensor in tensors.items()}
    turn = orthogonal(arch.hidden_size)
    found[EMBEDDING] = found[EMBEDDING] @ turn
    found[HEAD] = found[HEAD] * found["model.norm.weight"] @ turn
    for at in (f"model.layers.{index}" for index in range(arch.num_layers)):
        for name, norm in READERS.items():
            found[f"{at}.{name}.weight"] = found[f"{at}.{name}.weight"] * found[f"{at}.{norm}.weight"] @ turn
        for name in WRITERS:
            found[f"{at}.{name}.weight"] = turn.t() @ found[f"{at}.{name}.weight"]
            if (bias := found.get(f"{at}.{name}.bias")) is not None:
                found[f"{at}.{name}.bias"] = bias @ turn
        for norm in set(READERS.values()):
            found[f"{at}.{norm}.weight"] = torch.ones_like(found[f"{at}.{norm}.weight"])
    found["model.norm.weight"] = torch.ones_like(found["model.norm.weight"])
    same = {name: tensor.to(tensors[name].dtype) for name, tensor in found.items()}
    return replace(model, name=f"{model.name}, rotated", arch=arch, tensors=same)


def orthogonal(size: int) -> Tensor:
    """Drawn evenly from all of them, in float64."""
    drawn = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    q, r = torch.linalg.qr(drawn)
    turn: Tensor = q * r.diagonal().sign()
    return turn
