"""llama.cpp and transformers on the very same GGUF file, as contenders of localspec.bench.measure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr
from functools import partial
from importlib import import_module
from io import StringIO
from math import inf
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any  # Any: llama_cpp and transformers are untyped

from benchmarks.llama_cpp.library import Context, load, require, silence
from localspec.bench.prompts import QUESTIONS
from localspec.bench.report import PLAIN, Run, Way
from localspec.bench.transformers_peer import TRIAL_TOKENS, TRIALS, Checkpoints, Mode, Transformers, best
from localspec.core import processor
from localspec.core.requests import Message
from localspec.core.weight_formats import find_format
from localspec.engine.linear import dtype_of
from localspec.runtime.opened import Opened

ENGINE = "llama.cpp"


class LlamaCpp:
    """llama.cpp with or without flash attention and with some threads; forgets the conversation between answers."""

    failed, fault = False, ""

    def __init__(self, opened: Opened, api: Any, model: Any, *, flash: bool, threads: int) -> None:
        self.opened, self.end_ids = opened, frozenset(opened.snapshot.eos_ids)
        self.context = Context(api, model, context=opened.plan.context, threads=threads, flash=flash)
        self.way = Way(f"{ENGINE} plain", "0", opened.snapshot.stored_as, PLAIN, ENGINE, threads)
        self.notes: list[str] = []
        self.trial_seconds = inf

    def answer(self, question: str, max_tokens: int) -> Run:
        prompt = self.opened.prompter.chat([Message("user", question)])
        started = perf_counter()
        ids: list[int] = []
        self.context.crop(0)
        self.context.read(prompt)
        for _ in range(max_tokens):
            ids.append(int(self.context.logits().argmax()))
            if ids[-1] in self.end_ids or len(ids) == max_tokens:
                break
            self.context.read(ids[-1:])
        return Run(tuple(ids), perf_counter() - started)

    def try_out(self) -> None:
        """The fastest short answer, after one that warms up."""
        runs = [self.answer(QUESTIONS[0], TRIAL_TOKENS) for _ in range(1 + TRIALS)]
        self.trial_seconds = min(run.seconds for run in runs[1:])

    def close(self) -> None:
        self.context.close()


class Llama:
    """The file in llama.cpp: the fastest of both kinds of attention and of one thread and all."""

    def __init__(self, opened: Opened, file: Path) -> None:
        require()
        self.api: Any = import_module("llama_cpp")
        self._quiet = silence(self.api)
        self.api.llama_backend_init()
        self.model = load(self.api, file)
        tried = [
            LlamaCpp(opened, self.api, self.model, flash=flash, threads=threads)
            for flash in (True, False)
            for threads in sorted({1, processor.physical_cores()})
        ]
        for one in tried:
            one.try_out()
        self.fastest = min(tried, key=attrgetter("trial_seconds"))
        for one in tried:
            if one is not self.fastest:
                one.close()

    def close(self) -> None:
        self.fastest.close()
        self.api.llama_model_free(self.model)


class GgufCheckpoints(Checkpoints):
    """transformers makes floats of a GGUF file's weights."""

    def load(self, folder: Path, quant: str) -> Any:
        from transformers import AutoModelForCausalLM

        with redirect_stderr(StringIO()):  # its own bar, in the middle of ours
            model = AutoModelForCausalLM.from_pretrained(
                folder.parent, gguf_file=folder.name, dtype=dtype_of(find_format(quant)), local_files_only=True
            )
        return model.to(self.device).eval()


def transformers(opened: Opened, quants: Sequence[str] = ("fp32", "bf16")) -> list[Transformers]:
    """Plain in each of these, with the threads of its fastest short answer."""
    checkpoints, mode = GgufCheckpoints(str(opened.target.device)), Mode(PLAIN, PLAIN, "0")
    counts = sorted({1, processor.physical_cores()})
    return [best(partial(Transformers, opened, mode, checkpoints, quant=quant), counts) for quant in quants]
