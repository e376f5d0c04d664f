"""llama.cpp and transformers on the very same GGUF file, plain and by look-up, as contenders of bench.measure.

llama.cpp's look-up is that of its Python library; those of its server are in llama_cpp/server.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from functools import partial
from importlib import import_module
from io import StringIO
from math import inf
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any  # Any: llama_cpp and transformers are untyped

from benchmarks.llama_cpp.library import Context, load, require, silence
from localspec.bench.prompts import QUESTIONS
from localspec.bench.report import PLAIN, TimedRun, Way
from localspec.bench.transformers_peer import TRIAL_TOKENS, TRIALS, Checkpoints, Transformers, best, modes
from localspec.core import processor
from localspec.core.requests import Message
from localspec.core.weight_formats import find_format
from localspec.engine.linear import dtype_of
from localspec.runtime.open_target import OpenTarget

if TYPE_CHECKING:
    import numpy as np

ENGINE = "llama.cpp"
LOOKUP = "look-up"
LOOKUP_LENGTHS = (2, 10)  # what its library advises for CPUs, and its default

Propose = Callable[["np.ndarray"], Sequence[int]]
"""What could follow these ids."""


class LlamaCpp:
    """llama.cpp with or without flash attention and with some threads; forgets the conversation between answers.
    `propose` drafts what one forward then verifies, `length` tokens at most."""

    failed, fault = False, ""

    def __init__(
        self,
        opened: OpenTarget,
        api: Any,
        model: Any,
        *,
        flash: bool,
        threads: int,
        propose: Propose | None = None,
        length: int = 0,
    ) -> None:
        self.opened, self.end_ids = opened, frozenset(opened.snapshot.eos_ids)
        self.context = Context(api, model, context=opened.plan.context, threads=threads, flash=flash)
        kind, name = (LOOKUP, f"{LOOKUP} {length}") if propose else (PLAIN, PLAIN)
        self.way = Way(f"{ENGINE} {name}", length, opened.snapshot.stored_as, kind, ENGINE, threads)
        self.propose = propose
        self.flash = flash
        self.notes: list[str] = []
        self.trial_seconds = inf

    def answer(self, question: str, max_tokens: int) -> TimedRun:
        import numpy as np

        prompt = self.opened.prompter.chat([Message("user", question)])
        started = perf_counter()

        text = np.zeros(len(prompt) + max_tokens, np.intc)
        text[: len(prompt)], size = prompt, len(prompt)
        self.context.crop(0)
        self.context.read(prompt)
        new = [int(self.context.logits().argmax())]
        while new:
            text[size : size + len(new)] = new
            size += len(new)
            new = [] if new[-1] in self.end_ids else self.round(text[:size], len(text) - size)
        return TimedRun(tuple(text[len(prompt) : size].tolist()), perf_counter() - started)

    def round(self, text: np.ndarray, most: int) -> list[int]:
        """The tokens that one forward brings, `most` of them or up to the end of the answer; all of `text` but its
        last token is in the cache."""
        if most == 0:
            return []
        draft = [int(token) for token in self.propose(text)][: most - 1] if self.propose else []
        self.context.read([int(text[-1]), *draft], every=True)
        new: list[int] = []
        for row, drafted in enumerate([*draft, None]):
            new.append(int(self.context.logits(row).argmax()))
            if new[-1] in self.end_ids or new[-1] != drafted:
                break
        self.context.crop(len(text) - 1 + len(new))
        return new

    def try_out(self) -> None:
        """The fastest short answer, after one that warms up."""
        runs = [self.answer(QUESTIONS[0], TRIAL_TOKENS) for _ in range(1 + TRIALS)]
        self.trial_seconds = min(run.seconds for run in runs[1:])

    def close(self) -> None:
        self.context.close()


class Llama:
    """The file in llama.cpp: the fastest of both kinds of attention and of one thread and all, plain and by look-up."""

    def __init__(self, opened: OpenTarget, file: Path) -> None:
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
        fastest = min(tried, key=attrgetter("trial_seconds"))
        for one in tried:
            if one is not fastest:
                one.close()
        self.contenders = [fastest, *(self.by_lookup(fastest, length) for length in LOOKUP_LENGTHS)]

    def by_lookup(self, plain: LlamaCpp, length: int) -> LlamaCpp:
        """Drafts by the look-up of llama-cpp-python, else as plain."""
        propose = import_module("llama_cpp.llama_speculative").LlamaPromptLookupDecoding(num_pred_tokens=length)
        threads = plain.way.threads
        return LlamaCpp(
            plain.opened, self.api, self.model, flash=plain.flash, threads=threads, propose=propose, length=length
        )

    def close(self) -> None:
        for one in self.contenders:
            one.close()
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


def transformers(opened: OpenTarget, quants: Sequence[str] = ("fp32", "bf16")) -> list[Transformers]:
    """Plain and by look-up in each of these, with the threads of the fastest short answer."""
    checkpoints = GgufCheckpoints(str(opened.target.device))
    counts = sorted({1, processor.physical_cores()})
    return [
        best(partial(Transformers, opened, mode, checkpoints, quant=quant), counts)
        for quant in quants
        for mode in modes(opened, ())
    ]
