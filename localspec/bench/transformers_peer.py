"""transformers' `generate` on the same weights in the same process, in all its ways to speculate, as contenders.

Each way runs in the format and with the threads that a trial found fastest for it. Nothing else calls `generate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from io import StringIO
from math import inf
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any  # Any: transformers is untyped

import torch

from localspec.bench.prompts import QUESTIONS
from localspec.bench.report import PLAIN, TimedRun, Way
from localspec.core import processor
from localspec.core.calibration import recall
from localspec.core.errors import UsageError, first_line
from localspec.core.main_memory import available_bytes
from localspec.core.requests import AskedDraft, Message
from localspec.core.weight_formats import FLOATS, find_format
from localspec.engine.drafters.table import LOOKUP, MODEL
from localspec.engine.linear import dtype_of
from localspec.loading.footprint import num_elements
from localspec.models.checkpoint import Snapshot
from localspec.runtime import draft_choice
from localspec.runtime.bench_table import RowLength
from localspec.runtime.open_target import OpenTarget, swept_key

ENGINE = "transformers"
LOOKUP_TOKENS = 10  # the default of its candidate generator
TRIAL_TOKENS, TRIALS = 16, 3
USABLE = 0.6  # of free memory, for its weights
NOTE = (
    f"{ENGINE}: each method in every format of ours that it has; for int8 and int4 also in fp32 or bf16, whichever is "
    "faster. Threads are those of --threads, else the fastest count of a trial; draft lengths are its defaults; it "
    "reports no acceptance."
)

Drafts = Sequence[tuple[str, AskedDraft]]
"""Our drafters, each with the name of its row."""


@dataclass(frozen=True, slots=True)
class PeerMode:
    """A way of `generate`: what it is called with, and the kind of ours it is compared with. `translates`: the drafter
    has another tokenizer."""

    name: str
    kind: str
    k: RowLength = "its own"
    arguments: dict[str, Any] = field(default_factory=dict)
    drafter: Path | None = None
    translates: bool = False


def check(path: Path) -> None:
    """Refuses a GGUF file that transformers cannot read, before minutes are spent on measuring."""
    if path.is_file() and find_spec("accelerate") is None:
        fault = "transformers reads GGUF files through accelerate, which is not installed."
        raise UsageError(fault, hint="Run: pip install 'localspec[against]'")


def modes(opened: OpenTarget, drafts: Drafts) -> Iterator[PeerMode]:
    """Plain, its counterparts of our drafters, and look-up, which needs none."""
    yield PeerMode(PLAIN, PLAIN, 0)
    known = recall(swept_key(opened))
    for kind, asked in drafts:
        choice = draft_choice.choose(asked, opened.entry, opened.snapshot, opened.catalog, known)
        if choice.exit_layer:
            exits = {"assistant_early_exit": choice.exit_layer}
            yield PeerMode(f"assistant_early_exit {choice.exit_layer}", kind, arguments=exits)
        elif choice.snapshot is not None:
            name = kind.removeprefix(MODEL.label("")).strip()
            how = "assistant_model" if not choice.translates else "assistant_tokenizer"
            folder, translates = choice.snapshot.folder, choice.translates
            yield PeerMode(f"{how} {name}".strip(), kind, drafter=folder, translates=translates)
    lookup = {"prompt_lookup_num_tokens": LOOKUP_TOKENS}
    yield PeerMode(f"prompt_lookup_num_tokens {LOOKUP_TOKENS}", LOOKUP.label(""), LOOKUP_TOKENS, lookup)


class Checkpoints:
    """Models as transformers loads them, each once in a format."""

    def __init__(self, device: str) -> None:
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.device = device
        self.loaded: dict[tuple[Path, str], Any] = {}

    def get(self, folder: Path, quant: str) -> Any:
        if (folder, quant) not in self.loaded:
            self.loaded[folder, quant] = self.load(folder, quant)
        return self.loaded[folder, quant]

    def load(self, folder: Path, quant: str) -> Any:
        from transformers import AutoModelForCausalLM

        options = {"dtype": dtype_of(find_format(quant)), "local_files_only": True, "trust_remote_code": False}
        if folder.is_file():  # GGUF, which it makes floats of, with a bar of progress that has no switch
            with redirect_stderr(StringIO()):
                model = AutoModelForCausalLM.from_pretrained(folder.parent, gguf_file=folder.name, **options)
        else:
            model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True, **options)
        return model.to(self.device).eval()

    def tokenizer(self, folder: Path) -> Any:
        from transformers import AutoTokenizer

        source, file = (folder.parent, {"gguf_file": folder.name}) if folder.is_file() else (folder, {})
        return AutoTokenizer.from_pretrained(source, local_files_only=True, trust_remote_code=False, **file)


class Transformers:
    """Greedy `generate` in one mode, format and count of threads. Where it raises, `fault` says why, and it is out."""

    failed = False

    def __init__(
        self, opened: OpenTarget, mode: PeerMode, checkpoints: Checkpoints, *, quant: str, threads: int
    ) -> None:
        self.opened, self.mode, self.checkpoints = opened, mode, checkpoints
        self.way = Way(f"{ENGINE} {mode.name}", mode.k, quant, mode.kind, ENGINE, threads)
        self.notes: list[str] = []
        self.fault = ""
        self.trial_seconds = inf

    def answer(self, question: str, max_tokens: int) -> TimedRun:
        """Runs with its own count of torch's threads; our engine may have set another."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.way.threads)
        try:
            return self.generated(question, max_tokens)
        except Exception as fault:
            self.fault = first_line(fault)  # whatever theirs raises is what the row says
            return TimedRun((), inf)
        finally:
            torch.set_num_threads(before)

    def generated(self, question: str, max_tokens: int) -> TimedRun:
        ids = torch.tensor([self.read(question)], device=self.opened.target.device)
        model = self.checkpoints.get(self.opened.snapshot.folder, self.way.quant)
        model.config.num_hidden_layers = self.opened.target.arch.num_layers  # its early exit leaves fewer when it fails
        arguments = dict(self.mode.arguments)
        if self.mode.drafter is not None:
            arguments["assistant_model"] = self.checkpoints.get(self.mode.drafter, self.way.quant)
        if self.mode.drafter is not None and self.mode.translates:  # its universal assisted generation
            arguments["tokenizer"] = self.checkpoints.tokenizer(self.opened.snapshot.folder)
            arguments["assistant_tokenizer"] = self.checkpoints.tokenizer(self.mode.drafter)
        started = perf_counter()
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=list(self.opened.snapshot.eos_ids) or None,
                pad_token_id=0,
                **arguments,
            )
        return TimedRun(tuple(out[0, ids.shape[1] :].tolist()), perf_counter() - started)

    def read(self, question: str) -> list[int]:
        """The question as ids, as ours reads it."""
        prompter = self.opened.prompter
        return prompter.chat([Message("user", question)]) if prompter.can_chat else prompter.text(question)

    def try_out(self) -> None:
        """The fastest short answer, after one that loads and warms up; infinite where it fails."""
        runs = [self.answer(QUESTIONS[0], TRIAL_TOKENS) for _ in range(1 + TRIALS)]
        self.trial_seconds = min(run.seconds for run in runs[1:])


def contenders(targets: Sequence[tuple[OpenTarget, Drafts]], threads: int | None = None) -> list[Transformers]:
    """Lists transformers' contenders beside each of our formats, with its own drafters: every mode, in the same
    format where torch has it, else in the faster one; with as many `threads` as ours where they are given."""
    checkpoints = Checkpoints(str(targets[0][0].target.device))
    own = [opened.plan.weight_format.name for opened, _ in targets if opened.plan.weight_format.is_float]
    counts = [threads] if threads else sorted({1, processor.physical_cores()})

    tried: dict[tuple[str, str], Transformers] = {}
    found: list[Transformers] = []
    for opened, drafts in targets:
        quant = opened.plan.weight_format.name
        quants = [quant] if quant in own else list(dict.fromkeys([*own, *fitting(opened.snapshot)]))
        for mode in modes(opened, drafts):
            for one in quants:
                if (mode.name, one) not in tried:  # beside another format perhaps
                    tried[mode.name, one] = best(partial(Transformers, opened, mode, checkpoints, quant=one), counts)
            found.append(min((tried[mode.name, one] for one in quants), key=attrgetter("trial_seconds")))
    return list(dict.fromkeys(found))


def best(make: partial[Transformers], counts: Sequence[int]) -> Transformers:
    """The contender with the thread count of the fastest short answer."""
    tried = [make(threads=count) for count in counts]
    for one in tried:
        one.try_out()
    return min(tried, key=attrgetter("trial_seconds"))


def fitting(snapshot: Snapshot) -> list[str]:
    """bf16, and fp32 where memory is free for both."""
    both = sum(find_format(name).bytes_per_weight for name in FLOATS) * num_elements(snapshot)
    return list(reversed(FLOATS)) if both < USABLE * available_bytes() else [FLOATS[-1]]
