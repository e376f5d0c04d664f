"""The Llama decoder as plain torch modules, for training: layers can be dropped and read out early.

Parameter names are Hugging Face's, so that a state dict is a checkpoint. No KV cache, no tokenizer, no files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROPE_THETA = 10000.0
NORM_EPS = 1e-5
MAX_POSITIONS = 2048
INITIAL_STD = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one model."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


def drop_rates(num_layers: int, max_rate: float) -> list[float]:
    """Layer dropout of LayerSkip: 0 at the first layer, growing exponentially to max_rate at the last."""
    last = max(num_layers - 1, 1)
    return [max_rate * (math.exp(layer * math.log(2) / last) - 1) for layer in range(num_layers)]


def rope_tables(head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each [positions, head_dim], in the half-split layout."""
    frequencies = ROPE_THETA ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(MAX_POSITIONS).float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of x: [batch, heads, length, head_dim]."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def _joint(x: Tensor, *projections: nn.Linear) -> Tensor:
    """Several projections of the same x as one multiplication, side by side."""
    return F.linear(x, torch.cat([projection.weight for projection in projections]))


class Attention(nn.Module):
    """Causal attention with grouped key and value heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim, self.num_kv_heads = shape.head_dim, shape.num_kv_heads
        wide, narrow = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, wide, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, narrow, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, narrow, bias=False)
        self.o_proj = nn.Linear(wide, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [batch, length, hidden]."""
        batch, length, kv = *x.shape[:2], self.num_kv_heads
        joint = _joint(x, self.q_proj, self.k_proj, self.v_proj)
        heads = joint.view(batch, length, -1, self.head_dim).transpose(1, 2)
        turned, v = rotate(heads[:, :-kv], cos.to(heads.dtype), sin.to(heads.dtype)), heads[:, -kv:]
        q = turned[:, :-kv].reshape(batch, kv, -1, self.head_dim) * self.head_dim**-0.5
        scores = (q @ turned[:, -kv:].transpose(-1, -2)).float().view(batch, kv, -1, length, length)
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1).to(v.dtype).flatten(2, 3)
        mixed = (weights @ v).view(batch, -1, length, self.head_dim)
        projected: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return projected


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, length, hidden]."""
        gate, up = _joint(x, self.gate_proj, self.up_proj).chunk(2, dim=-1)
        projected: Tensor = self.down_proj(F.silu(gate) * up)
        return projected


class Layer(nn.Module):
    """One pre-norm decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = FeedForward(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=NORM_EPS)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=NORM_EPS)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [batch, length, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        mixed: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return mixed


class Body(nn.Module):
    """Embedding, layers and the final norm that every exit shares."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=NORM_EPS)


class Network(nn.Module):
    """A causal language model whose head is its embedding and can read any layer."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        for name, table in zip(("cos", "sin"), rope_tables(shape.head_dim), strict=True):
            self.register_buffer(name, table, persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        shrink = 1 / math.sqrt(2 * self.shape.num_layers)  # keeps the residual's size flat in depth
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=INITIAL_STD)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.data.mul_(shrink)

    def forward(
        self,
        ids: Tensor,
        exits: Sequence[int],
        rows: Tensor | None = None,
        skip: Sequence[int] = (),
    ) -> dict[int, Tensor]:
        """Logits after each count of layers in exits, at rows (all without), leaving out the layers in skip.

        ids: [batch, length]; rows: bool [batch, length]; each result [rows or batch x length, vocab].
        """
        rows = torch.ones_like(ids, dtype=torch.bool) if rows is None else rows
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        x, logits = self.model.embed_tokens(ids), {}
        for depth, layer in enumerate(self.model.layers[: max(exits)], start=1):
            x = x if depth - 1 in skip else layer(x, cos, sin)
            if depth in exits:
                logits[depth] = F.linear(self.model.norm(x[rows]), self.model.embed_tokens.weight)
        return logits

    @property
    def num_parameters(self) -> int:
        """Counted once: the head is the embedding."""
        return sum(parameter.numel() for parameter in self.parameters())
