"""A loaded model that answers requests: prompt to ids, rounds to Steps, sums to Stats. One answer at a time.

Knows text and events on one side, the session on the other. Knows nothing about processes or screens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

import msgspec

from localspec.core.errors import (
    Cancelled,
    ContextOverflow,
    EngineDied,
    EngineError,
    UsageError,
    first_line,
)
from localspec.core.events import AnyEvent, Done, FinishReason, Loading, Notice, Prefill, Ready, SpecCard, Stats, Step
from localspec.core.requests import ChangeDrafter, GenerateRequest, SpecWish
from localspec.core.trace import TracedRound
from localspec.engine.beams import beam_search
from localspec.engine.decode import decode
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.table import LOOKUP, check_exit
from localspec.engine.drafters.temporary import TemporaryDrafter
from localspec.engine.first_look import FirstLook
from localspec.engine.memory import give_back, is_out_of_memory
from localspec.engine.passes import can_batch
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Policy, Resident, Round, is_layered
from localspec.engine.samplers import make_sampler
from localspec.engine.session import Reading, Session, common_prefix_length
from localspec.engine.shortlist import drafter_bytes
from localspec.loading.devices import is_lost
from localspec.models.folding import READ_AS
from localspec.models.prompt_sandbox import AnyPrompter
from localspec.runtime.beams import NO_DRAFTS, asks_for_drafts, check_beams, kv_bytes
from localspec.runtime.continuation import go_on
from localspec.runtime.drafting import Drafting, without_drafter, without_failed
from localspec.runtime.notices import drafter_failed, flat, graph_notices, read_otherwise
from localspec.runtime.parts import Parts
from localspec.runtime.prompt_reuse import keep_spelling
from localspec.runtime.recording import recorded, recording
from localspec.runtime.references import References
from localspec.runtime.sampling_defaults import check_limits, greedy, resolve_sampling
from localspec.runtime.shortening import remedies, turns_over
from localspec.runtime.stats import Tally
from localspec.runtime.steps import Writer
from localspec.runtime.tracing import traced
from localspec.runtime.usage import peak_bytes

Item = TypeVar("Item")
LOAD_AGAIN = "Load it again; what was written is kept."
FAILED = "it failed"
MORE_MEMORY = "Close other programs, or load it again with a smaller --ctx."


class Model:
    """Target, drafter and conversation, ready to answer. Its tally carries the measured baseline from turn to turn."""

    def __init__(self, parts: Parts) -> None:
        self.ready = parts.ready
        self.spec = parts.ready.spec
        self.tally = Tally()
        self.tally.add(parts.ready)
        self._held: Parts | None = parts
        self._answering = threading.Lock()
        self._wish: SpecWish | None = None  # of the answer under way, where it has one of its own
        self._read_by_drafters = 0  # bytes, by drafters that were dropped
        self._notice: Notice | None = None
        self._flat_noticed = False
        self._references = References(parts.folding)

    def answer(
        self,
        request: GenerateRequest,
        cancelled: Callable[[], bool] | None = None,
        trace: Callable[[TracedRound], object] | None = None,
    ) -> Generator[AnyEvent, None, None]:
        """Prefill, Steps and Notices, then Done. LocalspecError where it cannot go on; the text so far stands.

        The next answer may begin when this one has ended, was closed or was garbage-collected. `trace` is called with
        every round before its Step; its time is not counted. A search of beams has none.
        """
        exit_layer = request.exit_layer if request.beams == 1 else None
        with self._alone(), self._steered(request.wish), self._temporary_drafter(exit_layer):
            yield from self._answer(request, cancelled, trace)

    @property
    def is_answering(self) -> bool:
        return self._answering.locked()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuses another answer, and another drafter, until this ends."""
        if not self._answering.acquire(blocking=False):
            raise UsageError("The model is in the middle of another answer.", hint="Read that to its end, or close it.")
        try:
            yield
        finally:
            self._answering.release()

    def _answer(
        self,
        request: GenerateRequest,
        cancelled: Callable[[], bool] | None,
        trace: Callable[[TracedRound], object] | None,
    ) -> Iterator[AnyEvent]:
        """Times cover the engine's work only, however slowly the events are read."""
        typed, request = request, self._folded(request)
        read_as = read_otherwise(typed, request)
        self.tally.begin(compared=request.beams == 1)
        reason: FinishReason = "cancelled"
        step_seconds: list[float] = []
        first_seconds: float | None = None  # until a round had a token
        prompt_seconds, read_before, stop_text = 0.0, self._bytes_read(), ""
        try:
            ids, writer = self._prepare(request, cancelled)
            self._begin_translating(request, ids)
            if read_as and not request.continues:
                yield Notice("info", READ_AS, f"Read as: {read_as}")
            if request.beams > 1 and asks_for_drafts(request):
                yield NO_DRAFTS
            for seconds, reading in timed(self._read(ids)):
                prompt_seconds += seconds
                yield self._tallied(Prefill(reading.done - reading.cached, reading.total, reading.cached))
                yield from self._faults()
            read_before = self._bytes_read()
            for seconds, (done, step) in timed(self._steps(writer, request)):
                step_seconds.append(seconds)
                if first_seconds is None and step.tokens:
                    first_seconds = sum(step_seconds)
                stop_text = writer.stopped
                reason = "stop" if stop_text else done.ended or reason
                if trace is not None and request.beams == 1:
                    trace(traced(done, step, writer.tokenizer))
                self._references.add(step)
                yield self._tallied(step)
                yield from self._faults()
        except Cancelled:
            reason = "cancelled"
        except ContextOverflow as fault:
            turns, context = self._turns_over(request), self.ready.model.context_max
            hint = remedies(turns, context, self._parts.target.arch.max_context)
            raise ContextOverflow.of(fault.prompt_n, context, hint=hint, turns_over=turns) from fault
        except (RuntimeError, MemoryError) as fault:
            if is_out_of_memory(fault):
                raise EngineError("Memory ran out while answering.", hint=MORE_MEMORY) from fault
            if is_lost(fault):
                detail = first_line(fault)[:200]
                raise EngineDied(f"The GPU failed while answering ({detail}).", hint=LOAD_AGAIN) from fault
            raise EngineError(f"The model failed while answering ({first_line(fault)}).", hint="Ask again.") from fault
        measured = msgspec.structs.replace(
            self._measured(prompt_seconds, step_seconds, self._bytes_read() - read_before, request.beams),
            ttft_ms=0.0 if first_seconds is None else 1000 * (prompt_seconds + first_seconds),
            finish_reason=reason,
            read_as=read_as,
            stop_text=stop_text,
        )
        yield self._tallied(Done(reason, measured))

    def steer(self, wish: SpecWish) -> SpecCard:
        """Changes how the next rounds draft, also in the middle of an answer that has no wish of its own; from any
        thread. Nothing changes without a drafter."""
        wish = wish.checked
        if self.spec.kind != "off":
            self.spec = msgspec.structs.replace(self.spec, mode=wish.mode, k=wish.k)
            if self._wish is None:
                self._parts.drafting.policy.steer(wish.mode, wish.k)
        return self.spec

    @contextmanager
    def _steered(self, wish: SpecWish | None) -> Iterator[None]:
        """Drafts in the way that one answer asks for."""
        if wish is None or self.spec.kind == "off":
            yield
            return
        self._wish, policy = wish.checked, self._parts.drafting.policy
        policy.steer(self._wish.mode, self._wish.k)
        try:
            yield
        finally:
            self._wish = None
            policy.steer(self.spec.mode, self.spec.k)

    def change_drafter(self, asked: ChangeDrafter) -> Generator[Loading | Notice | Ready, None, None]:
        """Drafts with another drafter from now on, then Ready again. Weights and conversation of the target stay; what
        was measured of the drafter before is forgotten. A drafter that fails is a Notice, and none drafts."""
        with self._alone():
            self._draft_by(without_drafter(self._parts.drafting.policy, FAILED))  # its memory may be needed
            give_back()
            failed: Notice | None = None
            try:
                self._draft_by((yield from self._parts.another(asked)))
            except EngineDied:
                raise
            except Exception as fault:
                failed = drafter_failed(f"The drafter could not be loaded ({first_line(fault)}).")
            self.ready = self._ready_again()
            self.tally.add(self.ready)
            yield from graph_notices(self._parts.decoders)
            yield self.ready
            if failed is not None:
                yield failed

    def _draft_by(self, drafting: Drafting) -> None:
        """Drafts so from now on; frees the memory of the drafter before."""
        self._read_by_drafters += sum(decoder.bytes_read for decoder in self._parts.drafting.decoders)
        self._held = self._parts.drafted_by(drafting)
        self.spec = drafting.spec

    def _ready_again(self) -> Ready:
        """What is loaded, with the drafter that there is now."""
        decoders = self._parts.decoders
        memory = msgspec.structs.replace(
            self.ready.memory,
            drafter_bytes=drafter_bytes(*decoders),
            kv_bytes=sum(decoder.cache.num_bytes for decoder in decoders),
        )
        return msgspec.structs.replace(self.ready, spec=self.spec, memory=memory)

    # --- beside others on the same target

    def draft_like(self, other: Model | None) -> None:
        """Drafts as another Model on the same target does, on the same weights; None drafts nothing."""
        parts = self._parts
        alike = other and other._parts.drafting.beside
        reason = FAILED if other is None else other.spec.reason
        drafting = alike(parts.target) if alike else without_drafter(parts.drafting.policy, reason)
        self._draft_by(drafting)
        self.ready = self._ready_again()
        self.tally.add(self.ready)

    @property
    def decoders(self) -> tuple[Resident, ...]:
        """The target's first, then the drafter's own."""
        return self._parts.decoders

    def prompt_ids(self, request: GenerateRequest, cancelled: Callable[[], bool] | None = None) -> list[int]:
        """The prompt as ids; of an answer that is continued, what stands before it."""
        request = self._folded(request)
        if request.continues:
            request = msgspec.structs.replace(request, messages=(request.messages or ())[:-1])
        return encoded(request, self._parts.prompter.using(request.template, cancelled))

    def num_reusable(self, ids: list[int]) -> int:
        """How many tokens of a prompt's beginning the cache holds; 0 where that is less than half of what it holds, and
        the prompt is of another conversation."""
        known, prompter = self._session.tokens, self._parts.prompter
        spelled = keep_spelling(known, ids, prompter.control_ids, prompter.tokenizer.decode)
        shared = common_prefix_length(known, spelled)
        return shared if 2 * shared >= len(known) else 0

    def forget(self) -> None:
        """Drop the conversation from the cache: the next prompt is read from its start."""
        self._session.rewind(0)

    def close(self) -> None:
        """Frees weights, caches and threads. Closing twice does no harm; all else then raises UsageError."""
        held, self._held = self._held, None
        for part in (held.drafting, *held.owned) if held else ():
            part.close()

    def check_open(self) -> None:
        if self._held is None:
            raise UsageError("This model is closed.", hint="Load it again.")

    @property
    def _parts(self) -> Parts:
        self.check_open()
        assert self._held is not None
        return self._held

    @property
    def _session(self) -> Session:
        return self._parts.session

    @contextmanager
    def _temporary_drafter(self, exit_layer: int | None) -> Iterator[None]:
        """Drafts with the target's first layers for one answer, if that was asked for."""
        session = self._session
        if exit_layer is not None:
            target = self._parts.target
            check_exit(exit_layer, self.ready.model.layers, self.ready.model.name)
            assert is_layered(target)
            session.drafter = TemporaryDrafter(EarlyExitDrafter(target, exit_layer), session.drafter)
        try:
            yield
        finally:
            if isinstance(session.drafter, TemporaryDrafter):  # else it failed
                session.drafter = session.drafter.suspended

    def _folded(self, request: GenerateRequest) -> GenerateRequest:
        """The request with the user's text folded; a raw prompt stays as it is."""
        folding = self._parts.folding
        if folding is None or request.messages is None:
            return request
        return msgspec.structs.replace(request, messages=folding.messages(request.messages))

    def _prepare(self, request: GenerateRequest, cancelled: Callable[[], bool] | None) -> tuple[list[int], Writer]:
        """The prompt as ids, and the Writer of the answer; sets the session's sampler."""
        check_limits(request)
        if request.beams > 1:
            check_beams(self._parts.target, request.beams)
        prompter, template = self._parts.prompter.using(request.template, cancelled), request.template
        stop_ids = self._parts.stop_ids
        if template is not None:
            request = msgspec.structs.replace(request, stop=(*request.stop, *template.stop))
            ids = [prompter.tokenizer.token_to_id(text) for text in template.stop]
            stop_ids |= prompter.control_ids.intersection(ids)
        self._references.begin()
        if lookup := self._parts.drafting.lookup:
            lookup.refer(self._references.texts(request, prompter))
        defaults = self._parts.defaults if request.beams == 1 else greedy(self._parts.defaults)
        self._sampling = resolve_sampling(request.sampling, defaults, usable=prompter.num_ids)
        self._look = FirstLook(make_sampler(self._sampling, greedy_draft=self._parts.drafting.greedy))
        sampler, self._recorders = recording(self._look, request, prompter.num_ids)
        self._session.begin(sampler, stop_ids=stop_ids, cancelled=cancelled)
        if request.continues:
            return go_on(request, prompter, self._session.tokens, stop_ids)
        return self._prompt(request, prompter), Writer(prompter.tokenizer, request.stop)

    def _begin_translating(self, request: GenerateRequest, ids: list[int]) -> None:
        """Gives the conversation to a drafter with another tokenizer."""
        if (translating := self._parts.drafting.translating) is not None:
            translating.begin(request, ids, self._parts.prompter)

    def _prompt(self, request: GenerateRequest, prompter: AnyPrompter) -> list[int]:
        """The prompt as ids, in the session's spelling where the text is equal."""
        ids = encoded(request, prompter)
        return keep_spelling(self._session.tokens, ids, prompter.control_ids, prompter.tokenizer.decode)

    def _turns_over(self, request: GenerateRequest) -> int:
        chat = self._parts.prompter.using(request.template).chat
        return turns_over(request.messages or (), self.ready.model.context_max, lambda messages: len(chat(messages)))

    def _read(self, ids: list[int]) -> Iterator[Reading]:
        """Reads the prompt; after memory ran out, `cached` is still that of the first attempt."""
        cached: int | None = None
        threads = self._parts.threads
        try:
            for reading in self._sparing_memory(lambda: self._session.prefill(ids)):
                if cached is None:
                    cached = reading.cached
                    if threads:
                        threads.read(reading.total - cached, self._parts.decoders)
                yield replace(reading, cached=cached)
        finally:
            if threads and self._held:
                threads.write(self._held.decoders)

    def _sparing_memory(self, work: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        """Yields the work's items. When memory runs out, drops the drafter and goes on."""
        try:
            yield from work()
            return
        except (RuntimeError, MemoryError) as fault:
            if not is_out_of_memory(fault) or self.spec.kind in ("off", LOOKUP.name):  # those hold no memory
                raise
        # Not sooner: the fault's traceback holds tensors.
        self._drop_drafter("Memory ran out, so the drafter was unloaded; decoding continues without it.")
        yield from work()

    def _steps(self, writer: Writer, request: GenerateRequest) -> Iterator[tuple[Round, Step]]:
        session, policy = self._session, self._policy(request)
        most = session.tokens_left + 1 if request.max_tokens is None else request.max_tokens
        last = len(session.tokens) + most
        rounds = (
            self._sparing_memory(lambda: decode(session, policy, max_tokens=last - len(session.tokens)))
            if request.beams == 1
            else self._searched(request.beams, most)
        )
        for bare in rounds:
            done = recorded(bare, self._recorders)
            step = writer.step(done, len(session.tokens) - len(done.tokens), shared=self._is_shared(done))
            session.rewind(len(session.tokens) - len(done.tokens) + len(step.tokens))
            yield done, step
            if writer.stopped:
                return
            if threads := self._parts.threads:
                threads.after(done.seconds, self._parts.decoders)

    def _is_shared(self, done: Round) -> bool:
        """Whether other answers had rows in the round's forward."""
        last = self._parts.company.last
        return last is not None and last.rows != done.drafted + 1

    def _searched(self, beams: int, most: int) -> Iterator[Round]:
        target = self._parts.target
        assert can_batch(target)
        return beam_search(self._session, target, self._sampling, beams=beams, max_tokens=most)

    def _policy(self, request: GenerateRequest) -> Policy:
        """The usual policy; a fresh one for a temporary drafter, since measurements do not carry over."""
        if request.exit_layer is not None:
            return SteerablePolicy(self.spec.mode, self.spec.k).for_one_answer(request.speculate is not False)
        steered = self._parts.drafting.policy
        return steered if request.speculate is None else steered.for_one_answer(request.speculate)

    def _tallied(self, event: AnyEvent) -> AnyEvent:
        self.tally.add(event)
        return event

    def _faults(self) -> Iterator[Notice]:
        """Notices, once each: a drafter that failed, CUDA graphs that are off, weights without information."""
        yield from graph_notices(self._parts.decoders)
        translating = self._parts.drafting.translating
        if translating is not None and (said := translating.notice(self.spec.name)):
            yield said
        if self._look.is_flat and not self._flat_noticed:
            self._flat_noticed = True
            yield flat(self.ready.model.name)
        drafter = self._session.drafter
        if isinstance(drafter, Guarded) and drafter.fault is not None:
            self._drop_drafter(f"The drafter failed ({first_line(drafter.fault)}); decoding continues without it.")
        notice, self._notice = self._notice, None
        if notice is not None:
            yield notice

    def _drop_drafter(self, message: str) -> None:
        """Decodes without it from now on, and frees its memory."""
        self._draft_by(without_failed(self._parts.drafting, FAILED))
        self._notice = drafter_failed(message)
        give_back()

    def _measured(self, prompt_seconds: float, step_seconds: list[float], bytes_read: int, beams: int) -> Stats:
        return msgspec.structs.replace(
            self.tally.stats,
            prompt_ms=1000 * prompt_seconds,
            predicted_ms=1000 * sum(step_seconds),
            read_bytes=bytes_read,
            drafter_bytes=drafter_bytes(*self._parts.decoders),
            kv_bytes=sum(decoder.cache.num_bytes for decoder in self._parts.decoders)
            + kv_bytes(self._parts.target, beams),
            peak_bytes=peak_bytes(),
            context_used=len(self._session.tokens),
        )

    def _bytes_read(self) -> int:
        return self._read_by_drafters + sum(decoder.bytes_read for decoder in self._parts.decoders)


def encoded(request: GenerateRequest, prompter: AnyPrompter) -> list[int]:
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
