"""transformers on the same checkpoint in the same process, as a contender. Nothing else calls its `generate`."""

from __future__ import annotations

from time import perf_counter
from typing import Any  # Any: transformers is untyped

import torch

from localspec.bench.report import Run
from localspec.engine.linear import DTYPES
from localspec.opening import Opened
from localspec.requests import Message


class Transformers:
    """Plain greedy `generate`, in the format and with the threads that ours runs in."""

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
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            opened.snapshot.folder,
            dtype=DTYPES[opened.plan.quant],
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
        self.model.to(opened.target.device).eval()

    def answer(self, question: str, max_tokens: int) -> Run:
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
