"""transformers on the same weights in the same process, as a contender. Nothing else calls its `generate`."""

from __future__ import annotations

from time import perf_counter
from typing import Any  # Any: transformers is untyped

import psutil
import torch

from localspec.bench.forwards import Work
from localspec.bench.report import Run
from localspec.bench.shapes import Shape
from localspec.engine.linear import DTYPES
from localspec.opening import Opened
from localspec.requests import Message
from localspec.sources import Memory

LARGE = 500_000_000  # weights: half the memory then


class Transformers:
    """Plain greedy `generate`, in the format and with the threads that ours runs in. It has none of the CPU engine's
    formats: beside those it runs in one of torch's, which its name then says, with the threads that suit it best."""

    name = "transformers plain"
    k = "0"
    failed = False

    def __init__(self, opened: Opened) -> None:
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.opened = opened
        self.notes: list[str] = []
        kind = opened.plan.quant
        if kind not in DTYPES:
            kind = "bf16" if opened.target.weights.num_bytes > LARGE else "fp32"
            self.name = f"{self.name} {kind}"
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            opened.snapshot.folder,
            dtype=DTYPES[kind],
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
        self.model.to(opened.target.device).eval()
        self.threads = self.best_threads()
        foreign = "" if kind == opened.plan.quant else f"it has no {opened.plan.quant}; "
        self.notes.append(f"{foreign}threads {self.threads}, its best.")

    def best_threads(self) -> int:
        """Those with the fastest short answer."""
        seconds = {}
        for self.threads in sorted({1, psutil.cpu_count(logical=False) or 1}):
            seconds[self.threads] = min(self.answer("Hello", 8).seconds for _ in range(3))
        return min(seconds, key=lambda threads: seconds[threads])

    def answer(self, question: str, max_tokens: int) -> Run:
        """Ours may have torch's threads set to another count."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            return self.generated(question, max_tokens)
        finally:
            torch.set_num_threads(before)

    def generated(self, question: str, max_tokens: int) -> Run:
        ids = torch.tensor([self.read(question)], device=self.opened.target.device)
        started = perf_counter()
        with torch.inference_mode():
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=list(self.opened.snapshot.eos_ids) or None,
                pad_token_id=0,
            )
        return Run(tuple(out[0, ids.shape[1] :].tolist()), perf_counter() - started)

    def read(self, question: str) -> list[int]:
        """The question as ids, as ours reads it."""
        prompter = self.opened.prompter
        return prompter.chat([Message("user", question)]) if prompter.can_chat else prompter.text(question)


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
