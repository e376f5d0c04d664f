"""transformers' forward on the same weights in the same process; `generate` is in localspec.bench.transformers_peer."""

from __future__ import annotations

from typing import Any  # Any: transformers is untyped

import torch
from torch import Tensor

from benchmarks.shapes.forwards import Work, finish
from benchmarks.shapes.random_weights import Shape
from localspec.core.weight_formats import find_format
from localspec.engine.four_bit import library
from localspec.engine.linear import dtype_of
from localspec.loading.sources import StateDictSource

LARGE = 500_000_000  # weights: half the memory then


class TransformersForwards:
    """Its forward on a shape's random weights with the growing cache that `generate` uses: float32, or bfloat16 where
    the weights are large or on a GPU; or "nf4", in which it leaves the head in bfloat16."""

    rivals: tuple[str, ...] = ()

    def __init__(
        self,
        shape: Shape,
        source: StateDictSource,
        context: int,
        *,
        threads: int = 1,
        kind: str = "",
        device: str = "cpu",
    ) -> None:
        self.threads, kind = threads, kind or dense_kind(shape, device)
        self.name, self.vocab_size = f"transformers {kind}", shape.vocab_size
        self.dtype = dtype_of(find_format(kind, device))
        make = quantised_model if kind == "nf4" else dense_model
        self.model = make(shape, source, context, self.dtype, device)
        self.config = self.model.config
        weights = self.model.named_parameters()
        self.bytes_read = sum(one.nbytes for name, one in weights if one.dim() > 1 and "embed" not in name)
        self.fill(0)

    def fill(self, depth: int) -> None:
        from transformers import DynamicCache

        config = self.config
        size = (1, config.num_key_value_heads, depth, config.head_dim)
        self.cache: Any = DynamicCache(config=config)
        for layer in range(config.num_hidden_layers if depth else 0):
            self.cache.update(self.random(size), self.random(size), layer)

    def random(self, size: tuple[int, ...]) -> Tensor:
        return torch.randn(size, dtype=self.dtype, device=self.model.device)

    def can(self, work: Work) -> bool:
        return work.kind != "early exit"

    def prepare(self, work: Work) -> None:  # noqa: ARG002 - any
        torch.set_num_threads(self.threads)

    def run(self, work: Work) -> None:
        ids = torch.arange(work.rows, device=self.model.device)[None] * 7919 % self.vocab_size
        with torch.inference_mode():
            self.model(ids, past_key_values=self.cache, use_cache=True, logits_to_keep=int(work.kind == "prefill"))
        finish(self.model.device)
        if work.depth:
            self.cache.crop(-work.rows)
        else:
            self.fill(0)

    def num_bytes(self, work: Work) -> int:
        return self.bytes_read if self.can(work) else 0


def dense_kind(shape: Shape, device: str) -> str:
    return "bf16" if shape.num_weights > LARGE or device != "cpu" else "fp32"


def dense_model(shape: Shape, source: StateDictSource, context: int, dtype: torch.dtype, device: str) -> Any:
    """The model in floats, without a copy where they have this type already."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config: Any = LlamaConfig(**shape.config(context))
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(config)
    model.load_state_dict({name: tensor.to(dtype) for name, tensor in source.tensors.items()}, assign=True)
    model.model.rotary_emb = LlamaRotaryEmbedding(config).to(device)  # its table is in no state dict
    return model.eval()


def quantised_model(shape: Shape, source: StateDictSource, context: int, dtype: torch.dtype, device: str) -> Any:
    """The model as transformers loads it with BitsAndBytesConfig: nf4, double quantisation, computed in `dtype`."""
    from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    library()  # imported here, without what it would fetch
    logging.disable_progress_bar()
    wanted = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype
    )
    model: Any = LlamaForCausalLM.from_pretrained(
        None,
        config=LlamaConfig(**shape.config(context)),
        state_dict=dict(source.tensors),
        quantization_config=wanted,
        dtype=dtype,
        device_map={"": device},
    )
    return model.eval()
