"""One answer of a loaded model: prompt to ids, rounds to Steps, times and bytes to Done.

Knows text and events on one side, the session on the other. Knows no other answer but through the references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

import msgspec

from localspec.core.errors import Cancelled, ContextOverflow, EngineDied, EngineError, UsageError, first_line
from localspec.core.events import AnyEvent, Done, FinishReason, Notice, Prefill, Stats, Step
from localspec.core.requests import GenerateRequest
from localspec.core.trace import TracedRound
from localspec.engine.beams import beam_search
from localspec.engine.decode import decode
from localspec.engine.drafters.table import holds_memory
from localspec.engine.first_logits import FirstLogits
from localspec.engine.memory import is_out_of_memory
from localspec.engine.passes import can_batch
from localspec.engine.protocols import Round
from localspec.engine.samplers import make_sampler
from localspec.engine.session import PromptProgress
from localspec.engine.shortlist import drafter_bytes
from localspec.loading.devices import is_lost
from localspec.models.prompt_sandbox import AnyPrompter
from localspec.models.spelling import READ_AS, Folding
from localspec.runtime.beams import NO_DRAFTS, asks_for_drafts, check_beams, kv_bytes
from localspec.runtime.continuation import go_on
from localspec.runtime.model_state import ModelState
from localspec.runtime.notices import read_otherwise
from localspec.runtime.probabilities import recorded, recording
from localspec.runtime.prompt_reuse import keep_spelling
from localspec.runtime.references import References
from localspec.runtime.sampling_defaults import check_limits, greedy, resolve_sampling
from localspec.runtime.steps import StepWriter
from localspec.runtime.traced_rounds import traced
from localspec.runtime.truncation import remedies, turns_over
from localspec.runtime.usage import peak_bytes

Item = TypeVar("Item")
IsCancelled = Callable[[], bool]
Trace = Callable[[TracedRound], object]
LOAD_AGAIN = "Load it again; what was written is kept."
MORE_MEMORY = "Close other programs, or load it again with a smaller --ctx."


class AnswerRun:
    """The run of one request. Times cover the engine's work only, however slowly the events are read."""

    def __init__(
        self, state: ModelState, references: References, request: GenerateRequest, cancelled: IsCancelled | None = None
    ) -> None:
        """UsageError where a request asks for what this model has not."""
        parts = state.parts
        self.state, self.references, self.cancelled = state, references, cancelled
        self.request = folded(request, parts.folding)
        self.read_as = read_otherwise(request, self.request)
        check_limits(request)
        if request.beams > 1:
            check_beams(parts.target, request.beams)
        defaults = parts.defaults if request.beams == 1 else greedy(parts.defaults)
        self.sampling = resolve_sampling(request.sampling, defaults, usable=parts.prompter.num_ids)
        self.look = FirstLogits(make_sampler(self.sampling, greedy_draft=parts.drafting.greedy))
        self.sampler, self.recorders = recording(self.look, request, parts.prompter.num_ids)
        self.prompt_seconds = 0.0
        self.step_seconds: list[float] = []
        self.first_seconds: float | None = None  # until a round had a token

    def events(self, trace: Trace | None = None) -> Iterator[AnyEvent]:
        """Prefill, Steps and Notices, then Done, as Model.answer says it."""
        state, request = self.state, self.request
        state.tally.begin(compared=request.beams == 1)
        reason: FinishReason = "cancelled"
        read_before, stop_text = state.bytes_read, ""
        try:
            ids, writer = self.begin()
            if self.read_as and not request.continues:
                yield Notice("info", READ_AS, f"Read as: {self.read_as}")
            if request.beams > 1 and asks_for_drafts(request):
                yield NO_DRAFTS
            for seconds, reading in timed(self.read(ids)):
                self.prompt_seconds += seconds
                yield self.tallied(Prefill(reading.done - reading.cached, reading.total, reading.cached))
                yield from state.notices(is_flat=self.look.is_flat)
            read_before = state.bytes_read
            for seconds, (done, step) in timed(self.steps(writer)):
                self.step_seconds.append(seconds)
                if self.first_seconds is None and step.tokens:
                    self.first_seconds = sum(self.step_seconds)
                stop_text = writer.stopped
                reason = "stop" if stop_text else done.ended or reason
                if trace is not None and request.beams == 1:
                    trace(traced(done, step, writer.tokenizer))
                self.references.add(step)
                yield self.tallied(step)
                yield from state.notices(is_flat=self.look.is_flat)
        except Cancelled:
            reason = "cancelled"
        except ContextOverflow as fault:
            turns, context = self.turns_over(), state.ready.model.context_max
            hint = remedies(turns, fault.prompt_n, state.parts.target.arch.max_context)
            raise ContextOverflow.of(fault.prompt_n, context, hint=hint, turns_over=turns) from fault
        except (RuntimeError, MemoryError) as fault:
            if is_out_of_memory(fault):
                raise EngineError("Memory ran out while answering.", hint=MORE_MEMORY) from fault
            if is_lost(fault):
                detail = first_line(fault)[:200]
                raise EngineDied(f"The GPU failed while answering ({detail}).", hint=LOAD_AGAIN) from fault
            raise EngineError(f"The model failed while answering ({first_line(fault)}).", hint="Ask again.") from fault
        measured = msgspec.structs.replace(
            self.measured(state.bytes_read - read_before),
            finish_reason=reason,
            read_as=self.read_as,
            stop_text=stop_text,
        )
        yield self.tallied(Done(reason, measured))

    def begin(self) -> tuple[list[int], StepWriter]:
        """The prompt as ids, and the StepWriter of the answer; the session begins."""
        parts, request = self.state.parts, self.request
        prompter, stop_ids = parts.prompter.using(request.template, self.cancelled), parts.stop_ids
        if (template := request.template) is not None:
            request = msgspec.structs.replace(request, stop=(*request.stop, *template.stop))
            written = [prompter.tokenizer.token_to_id(text) for text in template.stop]
            stop_ids |= prompter.control_ids.intersection(written)
        self.references.begin()
        if lookup := parts.drafting.lookup:
            lookup.refer(self.references.texts(request, prompter))
        parts.session.begin(self.sampler, stop_ids=stop_ids, cancelled=self.cancelled)
        if request.continues:
            ids, writer = go_on(request, prompter, parts.session.tokens, stop_ids)
        else:
            ids, writer = encoded(request, prompter), StepWriter(prompter.tokenizer, request.stop)
            ids = keep_spelling(parts.session.tokens, ids, prompter.control_ids, prompter.tokenizer.decode)
        if (translating := parts.drafting.translating) is not None:
            translating.begin(self.request, ids, parts.prompter)
        return ids, writer

    def read(self, ids: list[int]) -> Iterator[PromptProgress]:
        """Reads the prompt; after memory ran out, `cached` is still that of the first attempt."""
        cached: int | None = None
        state, threads = self.state, self.state.parts.threads
        try:
            for reading in self.sparing_memory(lambda: state.session.prefill(ids)):
                if cached is None:
                    cached = reading.cached
                    if threads:
                        threads.read(reading.total - cached, state.parts.decoders)
                yield replace(reading, cached=cached)
        finally:
            if threads and state.is_open:
                threads.write(state.parts.decoders)

    def steps(self, writer: StepWriter) -> Iterator[tuple[Round, Step]]:
        """Decodes to the answer's end; a stop string takes back what follows it."""
        session, request = self.state.session, self.request
        most = session.tokens_left + 1 if request.max_tokens is None else request.max_tokens
        for bare in self.searched(most) if request.beams > 1 else self.decoded(most):
            done = recorded(bare, self.recorders)
            step = writer.step(done, len(session.tokens) - len(done.tokens), shared=self.is_shared(done))
            session.rewind(len(session.tokens) - len(done.tokens) + len(step.tokens))
            yield done, step
            if writer.stopped:
                return
            if threads := self.state.parts.threads:
                threads.after(done.seconds, self.state.parts.decoders)

    def decoded(self, most: int) -> Iterator[Round]:
        session, policy = self.state.session, self.state.policy(self.request)
        last = len(session.tokens) + most
        return self.sparing_memory(lambda: decode(session, policy, max_tokens=last - len(session.tokens)))

    def searched(self, most: int) -> Iterator[Round]:
        target = self.state.parts.target
        assert can_batch(target)
        return beam_search(self.state.session, target, self.sampling, beams=self.request.beams, max_tokens=most)

    def sparing_memory(self, work: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        """Yields the work's items. When memory runs out, drops the drafter and goes on."""
        try:
            yield from work()
            return
        except (RuntimeError, MemoryError) as fault:
            if not is_out_of_memory(fault) or not holds_memory(self.state.spec.kind):
                raise
        # Not sooner: the fault's traceback holds tensors.
        self.state.drop_drafter("Memory ran out, so the drafter was unloaded; decoding continues without it.")
        yield from work()

    def is_shared(self, done: Round) -> bool:
        """Whether other answers had rows in the round's forward."""
        last = self.state.parts.company.last
        return last is not None and last.rows != done.drafted + 1

    def turns_over(self) -> int:
        """How many of the oldest turns are too many."""
        chat, messages = self.state.parts.prompter.using(self.request.template).chat, self.request.messages or ()
        return turns_over(messages, self.state.ready.model.context_max, lambda turns: len(chat(turns)))

    def tallied(self, event: AnyEvent) -> AnyEvent:
        self.state.tally.add(event)
        return event

    def measured(self, bytes_read: int) -> Stats:
        parts, first = self.state.parts, self.first_seconds
        return msgspec.structs.replace(
            self.state.tally.stats,
            prompt_ms=1000 * self.prompt_seconds,
            predicted_ms=1000 * sum(self.step_seconds),
            ttft_ms=0.0 if first is None else 1000 * (self.prompt_seconds + first),
            read_bytes=bytes_read,
            drafter_bytes=drafter_bytes(*parts.decoders),
            kv_bytes=self.state.cache_bytes + kv_bytes(parts.target, self.request.beams),
            peak_bytes=peak_bytes(),
            context_used=len(parts.session.tokens),
        )


def folded(request: GenerateRequest, folding: Folding | None) -> GenerateRequest:
    """The request with the user's text folded; a raw prompt stays as it is."""
    if folding is None or request.messages is None:
        return request
    return msgspec.structs.replace(request, messages=folding.messages(request.messages))


def encoded(request: GenerateRequest, prompter: AnyPrompter) -> list[int]:
    """UsageError where there is nothing to read."""
    ids = prompter.text(request.prompt or "") if request.messages is None else prompter.chat(request.messages)
    if not ids:
        raise UsageError("The prompt is empty.", hint="Give some text to continue.")
    return ids


def timed(items: Iterator[Item]) -> Iterator[tuple[float, Item]]:
    """Each item with the seconds that making it took; the reader's own time is not counted."""
    while True:
        started = perf_counter()
        try:
            item = next(items)
        except StopIteration:
            return
        yield perf_counter() - started, item
