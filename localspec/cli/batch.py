"""`localspec run --batch`: reads one JSON object per line and writes one JSON line per result, in the same order.

With an output file each result is written when it is ready, and the same command continues where it was stopped. Knows
the Python interface, no widgets.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from localspec.cli.batch_lines import BatchDefaults, BatchRequest, Line, ResultLine, ask
from localspec.cli.batch_results import Printed, ResultsFile
from localspec.cli.io import STREAM, print_note, print_notice
from localspec.cli.progress import ProgressBar
from localspec.cli.run import Output, open_quietly, stop_on_interrupt, with_defaults
from localspec.core.errors import Cancelled, LocalspecError
from localspec.core.events import Loading
from localspec.core.requests import GenerateRequest, LoadRequest, SamplingOptions
from localspec.models.named_templates import NO_TEMPLATE
from localspec.runtime.api import LLM
from localspec.runtime.long_prompt import as_text
from localspec.runtime.result import Gathered


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file's lines, what holds for all, and the file of the results; None, or "-", for stdout."""

    lines: Sequence[Line]
    asking: BatchDefaults
    file: Path | None


def answer_batch(load: LoadRequest, batch: BatchFile, output: Output, usual: SamplingOptions) -> int:
    """Answers what the file does not have yet, and returns the exit code: 130 where it was stopped, 1 where some
    failed."""
    file = None if batch.file == STREAM else batch.file
    asked = ask(batch.lines, batch.asking, load, usual)
    results = ResultsFile.open(file, asked) if file is not None else Printed()
    left = [one for one in asked if not results.has(one.index)]
    if not left:
        print_note(f"{file} has all {len(asked):,} results already.")
    failed = results.failed
    with ExitStack() as stack:
        stack.callback(results.close)
        if left:
            llm = stack.enter_context(open_quietly(load, output))
            requests = completed(llm, [one.request for one in left], usual)
            stopped = threading.Event()
            stack.enter_context(stop_on_interrupt(stopped.set))
            count = Counting(len(asked) - len(left), len(asked), stack.enter_context(ProgressBar()))
            for number, answer in llm.answer_many(requests, cancelled=stopped.is_set):
                record = record_of(left[number], answer)
                if record.get("finish_reason") != "cancelled":
                    results.write(record)
                    count.one(record)
                    failed += "error" in record
            count.end()
            if stopped.is_set():
                print_note(how_to_go_on(count.done, len(asked), file))
                return Cancelled.exit_code
    if failed:
        print_note(f"{failed} of {len(asked)} failed; their lines have an error.")
    return 1 if failed else 0


def completed(llm: LLM, asked: Sequence[GenerateRequest], usual: SamplingOptions) -> list[GenerateRequest]:
    """The requests with all options; a base model completes the texts, with one notice."""
    requests = [with_defaults(llm, one, usual) for one in asked]
    if llm.ready.model.chat or all(one.messages is None or one.template is not None for one in requests):
        return requests
    print_notice(NO_TEMPLATE)
    return [as_text(one) if one.messages is not None and one.template is None else one for one in requests]


def record_of(one: BatchRequest, answer: Gathered) -> ResultLine:
    """The result as a line has it."""
    try:
        result = answer.result()
    except LocalspecError as fault:
        return one.record(error={"code": fault.code, "message": fault.message})
    tokens = {"tokens": result.stats.predicted_n, "prompt_tokens": result.stats.prompt_n}
    return one.record(text=result.text, finish_reason=result.finish_reason, **tokens)


class Counting:
    """How many are done, shown on a bar, and how fast it goes."""

    def __init__(self, done: int, total: int, bar: ProgressBar) -> None:
        self.done, self._before, self._total, self._bar = done, done, total, bar
        self._answered, self._tokens, self._started = 0, 0, monotonic()
        self._show(None)

    def one(self, record: ResultLine) -> None:
        self.done += 1
        self._answered += "error" not in record
        self._tokens += record.get("tokens", 0)
        each = (monotonic() - self._started) / (self.done - self._before)
        self._show(each * (self._total - self.done))

    def end(self) -> None:
        """Wipes the bar and says what was done, and what was there before."""
        self._bar.wipe()
        seconds = max(monotonic() - self._started, 1e-9)
        rate = f"{self._tokens:,} tokens in {seconds:.1f} s ({self._tokens / seconds:.1f} a second)"
        before = f"; {self._before:,} {'was' if self._before == 1 else 'were'} there already" if self._before else ""
        print_note(f"Answered {self._answered:,} of {self._total:,}: {rate}{before}.")

    def _show(self, left: float | None) -> None:
        self._bar.show(Loading("answering", self.done, self._total, "answers", left))


def how_to_go_on(done: int, total: int, file: Path | None) -> str:
    if file is None:
        return "Stopped. With --output FILE the same command goes on where it was stopped."
    return f"Stopped; {file} has {done:,} of {total:,}. The same command goes on."
