"""Answers one question on stdout; progress, notices and statistics go to stderr. The engine runs in this process.

Knows the Python interface and stdio, no widgets.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any  # Any: JSON

import msgspec
from msgspec.structs import replace

from localspec.cli.io import as_json, print_event, print_notice
from localspec.cli.progress import ProgressBar
from localspec.cli.trace import TraceFile, new_trace
from localspec.config import precedence
from localspec.config.tables import Config
from localspec.core import paths
from localspec.core.drain import drain
from localspec.core.errors import Cancelled, HistoryError, LocalspecError
from localspec.core.events import AnyEvent, Failure, Loading, Notice, Step
from localspec.core.requests import GenerateRequest, LoadRequest, Reference, SamplingOptions, SpecOptions
from localspec.core.sanitize import clean
from localspec.core.trace import TraceEnd
from localspec.history import History
from localspec.history.references import kept_chats
from localspec.models.named_templates import NO_TEMPLATE
from localspec.runtime.api import LLM, load_events
from localspec.runtime.beams import NO_DRAFTS
from localspec.runtime.long_prompt import as_text, check_prompt
from localspec.runtime.result import Result
from localspec.runtime.sampling_defaults import check_limits, greedy
from localspec.runtime.stats import to_dict
from localspec.runtime.stream import Stream
from localspec.runtime.traced_rounds import head
from localspec.tui.chat.hints import count

LONG_ENOUGH = 12  # letters of a hash


@dataclass(frozen=True, slots=True)
class Output:
    """The output format: streamed text unless `json` or `jsonl`; with `stats` a JSON line on stderr. `verbose`: the
    progress and the notes of loading also where stderr is no terminal, and notes that were shown before. `trace`: a new
    file for every round."""

    json: bool = False
    jsonl: bool = False
    stats: bool = False
    verbose: bool = False
    trace: Path | None = None


def answer_once(load: LoadRequest, request: GenerateRequest, output: Output, usual: SamplingOptions) -> int:
    """Prints the answer and returns the exit code; a base model completes the text, with a notice. `usual`: sampling
    options for a model that names no temperature."""
    try:
        check_limits(request)  # before loading, which may take minutes
        check_prompt(load, request)
        load = load if request.beams == 1 else without_drafts(load, output)
        with ExitStack() as closing:
            trace = closing.enter_context(new_trace(output.trace)) if output.trace else None
            llm = closing.enter_context(open_quietly(load, output))
            request = completion_if_base(llm, with_defaults(llm, request, usual), output)
            stream = llm.answer(request) if trace is None else traced(llm, request, trace)
            with stop_on_interrupt(stream.cancel):  # what was written is kept
                result = show(stream, output)
            if trace is not None:
                trace.write(TraceEnd(result.finish_reason))
    except LocalspecError as fault:
        if output.jsonl:
            print_event(Failure(fault.code, fault.message, fault.hint, fault.exit_code))
        raise
    if output.json:
        print(as_json(as_object(result)))
    if result.finish_reason == "context" and not output.jsonl:
        print_notice(context_full(result.stats.context_max))
    if output.stats:
        print(json.dumps(to_dict(result.stats)), file=sys.stderr)
    return Cancelled.exit_code if result.finish_reason == "cancelled" else 0


def references(settings: Config) -> tuple[Reference, ...]:
    """The answers of kept chats, where the user lets a look-up copy from them."""
    allowed = settings.lookup.kept_chats and settings.chat.history
    if allowed and paths.history_file().exists():
        with suppress(HistoryError), History(reading=True) as history:  # an answer does without them
            return kept_chats(history)
    return ()


def sampling(given: SamplingOptions, layers: tuple[precedence.SamplingSource, ...], *, beams: int) -> SamplingOptions:
    """The options that were given by a flag, over those of files. Beam search takes of the latter what it can use."""
    if beams > 1:
        layers = tuple(precedence.SamplingSource(layer.source, greedy(layer.options)) for layer in layers)
    return precedence.over_all(given, layers)


def without_drafts(load: LoadRequest, output: Output) -> LoadRequest:
    """Loads no drafter for a search of beams; a notice where one was asked for."""
    asked = load.draft != "auto" or SpecOptions.of(load.k, load.mode).mode == "on"
    if asked and load.draft != "off":
        tell(NO_DRAFTS, output)
    return replace(load, draft="off", k="auto", mode="auto")


def tell(notice: Notice, output: Output) -> None:
    print_event(notice) if output.jsonl else print_notice(notice)


def traced(llm: LLM, request: GenerateRequest, trace: TraceFile) -> Stream:
    """The answer, each round of which is written before its text is shown."""
    trace.write(head(llm.ready, request.sampling))
    return llm.answer(replace(request, draft_probabilities=True), trace=trace.write)


def open_quietly(load: LoadRequest, output: Output) -> LLM:
    """Loads with a progress bar on stderr, if that is a terminal; with --jsonl every event is a line."""
    watched = output.verbose or sys.stderr.isatty()
    with ProgressBar() as bar:

        def show_event(event: AnyEvent) -> None:
            if output.jsonl:
                print_event(event)
            elif isinstance(event, Notice) and (event.level == "warning" or (watched and is_news(event, load, output))):
                bar.say(event)
            elif isinstance(event, Loading) and watched:
                bar.show(event)

        return drain(load_events(load), show_event)


def with_defaults(llm: LLM, request: GenerateRequest, usual: SamplingOptions) -> GenerateRequest:
    if request.beams > 1:
        return request
    own = msgspec.convert(llm.ready.model.sampling, SamplingOptions)
    return replace(request, sampling=precedence.over_all(request.sampling, precedence.defaults(own, usual)))


def is_news(notice: Notice, load: LoadRequest, output: Output) -> bool:
    """Whether a note about how this model is loaded was never shown before on this machine. Counts it as shown."""
    digest = sha256(f"{load.model} {notice.code} {notice.message}".encode()).hexdigest()[:LONG_ENOUGH]
    return output.verbose or count(f"run.{digest}") == 1


def completion_if_base(llm: LLM, request: GenerateRequest, output: Output) -> GenerateRequest:
    if request.messages is None or request.template is not None or llm.ready.model.chat:
        return request
    tell(NO_TEMPLATE, output)
    return as_text(request)


def show(stream: Stream, output: Output) -> Result:
    """Prints text as it arrives: sanitised on a terminal, unchanged in a pipe."""
    streamed = not (output.json or output.jsonl)
    written = False
    try:
        for event in stream:
            if output.jsonl:
                print_event(event)
            elif isinstance(event, Notice):
                print_notice(event)
            elif isinstance(event, Step) and streamed:
                print(event.text if not sys.stdout.isatty() else clean(event.text), end="", flush=True)
                written = True
    except LocalspecError:
        print(end="\n" if written else "", flush=True)  # the error gets a line of its own
        raise
    if streamed:
        print()
    return stream.result()


def context_full(context: int) -> Notice:
    """The notice that an answer was cut off by the end of the context."""
    message = f"The answer was cut off: the context of {context:,} tokens is full."
    return Notice("warning", "context_full", message, "Raise --ctx, or ask for a shorter answer.")


@contextmanager
def stop_on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Ctrl+C calls `stop`; a second one ends the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        stop()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def as_object(result: Result) -> dict[str, Any]:
    return {"text": result.text, "finish_reason": result.finish_reason, "stats": to_dict(result.stats)}
