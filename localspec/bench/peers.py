"""transformers' forward on the same weights in the same process; its `generate` is in peers_generate."""

from __future__ import annotations

from typing import Any  # Any: transformers is untyped

import torch

from localspec.bench.forwards import Work
from localspec.bench.shapes import Shape
from localspec.engine.linear import DTYPES
from localspec.sources import Memory

LARGE = 500_000_000  # weights: half the memory then


class TransformersForwards:
    """Its forward on a shape's random weights with the growing cache that `generate` uses: float32, or bfloat16 where
    the weights are large."""

    rivals: tuple[str, ...] = ()

    def __init__(self, shape: Shape, source: Memory, context: int, *, threads: int = 1) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        self.threads, kind = threads, "bf16" if shape.num_weights > LARGE else "fp32"
        self.name, self.dtype, self.vocab_size = f"transformers {kind}", DTYPES[kind], shape.vocab_size
        self.config: Any = LlamaConfig(**shape.config(context))
        with torch.device("meta"):
            self.model: Any = LlamaForCausalLM(self.config)
        tensors = {name: tensor.to(self.dtype) for name, tensor in source.tensors.items()}
        self.model.load_state_dict(tensors, assign=True)
        self.model.model.rotary_emb = LlamaRotaryEmbedding(self.config)  # its table is in no state dict
        self.model.eval()
        self.bytes_read = sum(one.nbytes for name, one in tensors.items() if one.dim() > 1 and "embed" not in name)
        self.fill(0)

    def fill(self, depth: int) -> None:
        from transformers import DynamicCache

        config = self.config
        size = (1, config.num_key_value_heads, depth, config.head_dim)
        self.cache: Any = DynamicCache(config=config)
        for layer in range(config.num_hidden_layers if depth else 0):
            self.cache.update(torch.randn(size).to(self.dtype), torch.randn(size).to(self.dtype), layer)

    def can(self, work: Work) -> bool:
        return work.kind != "early exit"

    def prepare(self, work: Work) -> None:  # noqa: ARG002 - any
        torch.set_num_threads(self.threads)

    def run(self, work: Work) -> None:
        ids = torch.arange(work.rows)[None] * 7919 % self.vocab_size
        with torch.inference_mode():
            self.model(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=int(work.kind == "prefill"))
        if work.depth:
            self.cache.crop(-work.rows)
        else:
            self.fill(0)

    def num_bytes(self, work: Work) -> int:
        return self.bytes_read if self.can(work) else 0
