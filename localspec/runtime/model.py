"""A loaded model that answers requests: prompt to ids, rounds to Steps, sums to Stats. One answer at a time.

Knows text and events on one side, the session on the other. Knows nothing about processes or screens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol, TypeVar

import msgspec

from localspec.core import calibration
from localspec.core.errors import Cancelled, ContextOverflow, EngineDied, EngineError, UsageError, first_line
from localspec.core.events import AnyEvent, Done, FinishReason, Notice, Prefill, Ready, SpecCard, Stats, Step
from localspec.core.requests import GenerateRequest, SamplingOptions, SpecWish
from localspec.engine.cuda_graphs import Graphed
from localspec.engine.decode import decode
from localspec.engine.drafters.early_exit import EarlyExit
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.none import NoDrafter
from localspec.engine.drafters.temporary import Relief
from localspec.engine.first_look import FirstLook
from localspec.engine.memory import give_back, is_out_of_memory
from localspec.engine.policy import Policy, Steered
from localspec.engine.protocols import Resident, Round, Sampler, is_layered
from localspec.engine.recording_sampler import Witness
from localspec.engine.samplers import make_sampler
from localspec.engine.session import Reading, Session
from localspec.loading.devices import is_lost
from localspec.loading.threads import Threads
from localspec.models.folding import READ_AS, Folding
from localspec.models.prompt_sandbox import AnyPrompter
from localspec.runtime.continuation import go_on
from localspec.runtime.draft_choice import check_exit, check_k
from localspec.runtime.prompt_reuse import keep_spelling
from localspec.runtime.sampling_defaults import check_limits, resolve_sampling
from localspec.runtime.shortening import turns_over
from localspec.runtime.stats import Tally
from localspec.runtime.steps import Writer
from localspec.runtime.usage import peak_bytes

Item = TypeVar("Item")
LOAD_AGAIN = "Load it again; what was written is kept."
MORE_MEMORY = "Close other programs, or load it again with a smaller --ctx."


class Closable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a Model is made of. `decoders` are those whose weight reads are counted, `owned` those that end with it."""

    ready: Ready
    prompter: AnyPrompter
    session: Session
    policy: Steered
    defaults: SamplingOptions
    stop_ids: frozenset[int]
    decoders: tuple[Resident, ...]
    owned: tuple[Closable, ...] = ()
    threads: Threads | None = None  # None where their count stays
    greedy_drafts: bool = False
    calibration_key: str = ""
    folding: Folding | None = None

    def without_drafter(self) -> Parts:
        """The same, decoding plain. What the drafter held in memory is held by this one alone."""
        target, *drafters = self.decoders
        for decoder in drafters:
            decoder.close()
        self.session.drafter = NoDrafter()
        return replace(self, decoders=(target,), owned=tuple(one for one in self.owned if one not in drafters))


class Model:
    """Target, drafter and conversation, ready to answer. Its tally carries the measured baseline from turn to turn."""

    def __init__(self, parts: Parts) -> None:
        self.ready = parts.ready
        self.spec = parts.ready.spec
        self.tally = Tally()
        self.tally.add(parts.ready)
        self._held: Parts | None = parts
        self._answering = threading.Lock()
        self._read_by_drafters = 0  # in bytes, by those that are gone
        self._untold: Notice | None = None
        self._flat_noticed = False

    def answer(
        self, request: GenerateRequest, cancelled: Callable[[], bool] | None = None
    ) -> Generator[AnyEvent, None, None]:
        """Prefill, Steps and Notices, then Done. LocalspecError where it cannot go on; the text so far stands.

        The next answer may begin when this one has ended, was closed or is gone; one never begun is in nobody's way.
        """
        if not self._answering.acquire(blocking=False):
            raise UsageError("The model is in the middle of another answer.", hint="Read that to its end, or close it.")
        try:
            with self._relief(request.exit_layer):
                yield from self._answer(request, cancelled)
        finally:
            self._answering.release()

    def _answer(self, request: GenerateRequest, cancelled: Callable[[], bool] | None) -> Iterator[AnyEvent]:
        """Times count the engine's work only, however slowly the events are taken."""
        typed, request = request, self._folded(request)
        read_as = read_otherwise(typed, request)
        self.tally.begin()
        reason: FinishReason = "cancelled"
        step_seconds: list[float] = []
        prompt_seconds, read_before = 0.0, self._bytes_read()
        try:
            ids, writer = self._prepare(request, cancelled)
            if read_as and not request.continues:
                yield Notice("info", READ_AS, f"Read as: {read_as}")
            for seconds, reading in timed(self._read(ids)):
                prompt_seconds += seconds
                yield self._told(Prefill(reading.done - reading.cached, reading.total, reading.cached))
                yield from self._faults()
            read_before = self._bytes_read()
            for seconds, (done, step) in timed(self._steps(writer, request)):
                step_seconds.append(seconds)
                reason = "stop" if writer.stopped else done.ended or reason
                yield self._told(step)
                yield from self._faults()
        except Cancelled:
            reason = "cancelled"
        except ContextOverflow as fault:
            turns = self._turns_over(request)
            raise ContextOverflow(fault.message, hint=self._ways_out(turns), turns_over=turns) from fault
        except (RuntimeError, MemoryError) as fault:
            if is_out_of_memory(fault):
                raise EngineError("Memory ran out while answering.", hint=MORE_MEMORY) from fault
            if is_lost(fault):
                said = first_line(fault)[:200]
                raise EngineDied(f"The GPU failed while answering ({said}).", hint=LOAD_AGAIN) from fault
            raise EngineError(f"The model failed while answering ({first_line(fault)}).", hint="Ask again.") from fault
        measured = self._measured(prompt_seconds, step_seconds, self._bytes_read() - read_before)
        yield self._told(Done(reason, msgspec.structs.replace(measured, finish_reason=reason, read_as=read_as)))

    def steer(self, wish: SpecWish) -> SpecCard:
        """Draft so from the next round on, also in the middle of an answer; from any thread. Without a drafter nothing
        changes."""
        check_k(wish.k)
        wish = SpecWish.of(wish.k) if wish.mode == "on" and wish.k != "auto" else wish  # on with 0 is off
        if self.spec.kind != "off":
            self._parts.policy.steer(wish.mode, wish.k)
            self.spec = msgspec.structs.replace(self.spec, mode=wish.mode, k=wish.k)
        return self.spec

    def forget(self) -> None:
        """Drop the conversation from the cache: the next prompt is read from its start."""
        self._session.rewind(0)

    def close(self) -> None:
        """Let weights, caches and threads go. Twice does no harm; all else is a UsageError from now on."""
        held, self._held = self._held, None
        for part in held.owned if held else ():
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
    def _relief(self, exit_layer: int | None) -> Iterator[None]:
        """For one answer the target's first layers draft, if that was asked for."""
        session = self._session
        if exit_layer is not None:
            target = self._parts.decoders[0]
            check_exit(exit_layer, self.ready.model.layers, self.ready.model.name)
            assert is_layered(target)
            session.drafter = Relief(EarlyExit(target, exit_layer), session.drafter)
        try:
            yield
        finally:
            if isinstance(session.drafter, Relief):  # else it had to go
                session.drafter = session.drafter.resting

    def _folded(self, request: GenerateRequest) -> GenerateRequest:
        """With what the user typed as the model reads it; a raw prompt is read as it is."""
        folding = self._parts.folding
        if folding is None or request.messages is None:
            return request
        return msgspec.structs.replace(request, messages=folding.messages(request.messages))

    def _prepare(self, request: GenerateRequest, cancelled: Callable[[], bool] | None) -> tuple[list[int], Writer]:
        """The prompt as ids, and who writes what follows; the session set to choose as asked."""
        check_limits(request)
        prompter, template = self._parts.prompter.using(request.template, cancelled), request.template
        stop_ids = self._parts.stop_ids
        if template is not None:
            request = msgspec.structs.replace(request, stop=(*request.stop, *template.stop))
            ids = [prompter.tokenizer.token_to_id(text) for text in template.stop]
            stop_ids |= prompter.control_ids.intersection(ids)
        usable = prompter.num_ids
        sampling = resolve_sampling(request.sampling, self._parts.defaults, usable=usable)
        self._look = FirstLook(make_sampler(sampling, certain_drafts=self._parts.greedy_drafts))
        sampler: Sampler = Witness(self._look) if request.odds else self._look
        self._session.begin(sampler, stop_ids=stop_ids, cancelled=cancelled)
        if request.continues:
            return go_on(request, prompter, self._session.tokens, stop_ids)
        return self._prompt(request, prompter), Writer(prompter.tokenizer, request.stop)

    def _prompt(self, request: GenerateRequest, prompter: AnyPrompter) -> list[int]:
        """In ids, spelled as the session spells it."""
        ids = prompter.text(request.prompt or "") if request.messages is None else prompter.chat(request.messages)
        if not ids:
            raise UsageError("The prompt is empty.", hint="Give some text to continue.")
        return keep_spelling(self._session.tokens, ids, prompter.control_ids, prompter.tokenizer.decode)

    def _ways_out(self, turns_over: int) -> str:
        """What helps against a prompt that is too long. A new chat does where the question fits without the others."""
        card, longest = self.ready.model, self._parts.decoders[0].arch.max_context
        can_grow, fits_alone = card.context_max < longest, turns_over > 0
        ways = ["Shorten it", *["start a new chat"] * fits_alone, *[f"raise --ctx, up to {longest}"] * can_grow]
        return f"{', or '.join(ways)}."

    def _turns_over(self, request: GenerateRequest) -> int:
        chat = self._parts.prompter.using(request.template).chat
        return turns_over(request.messages or (), self.ready.model.context_max, lambda messages: len(chat(messages)))

    def _read(self, ids: list[int]) -> Iterator[Reading]:
        """The prompt; what was read of it before memory ran out was not there before."""
        cached: int | None = None
        for reading in self._sparing(lambda: self._session.prefill(ids)):
            cached = reading.cached if cached is None else cached
            yield replace(reading, cached=cached)

    def _sparing(self, work: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        """What the work gives. Where memory runs out the drafter is let go, and the work goes on from there."""
        try:
            yield from work()
            return
        except (RuntimeError, MemoryError) as fault:
            if not is_out_of_memory(fault) or isinstance(self._session.drafter, NoDrafter):
                raise
        # Not sooner: the fault's traceback holds the tensors that there was no room for.
        self._let_go("Memory ran out, so the drafter had to go; decoding goes on without it.")
        yield from work()

    def _steps(self, writer: Writer, request: GenerateRequest) -> Iterator[tuple[Round, Step]]:
        session, policy = self._session, self._policy(request)
        sampler, most = session.sampler, session.tokens_left + 1 if request.max_tokens is None else request.max_tokens
        last = len(session.tokens) + most
        for bare in self._sparing(lambda: decode(session, policy, max_tokens=last - len(session.tokens))):
            done = replace(bare, odds=sampler.odds) if isinstance(sampler, Witness) else bare
            step = writer.step(done)
            session.rewind(len(session.tokens) - len(done.tokens) + len(step.tokens))
            yield done, step
            if writer.stopped:
                return
            if threads := self._parts.threads:
                threads.after(done.seconds, self._parts.decoders)

    def _policy(self, request: GenerateRequest) -> Policy:
        """What was learnt of the usual drafter is not true of another."""
        if request.exit_layer is not None:
            return Steered(self.spec.mode, self.spec.k).once(request.speculate is not False)
        steered = self._parts.policy
        return steered if request.speculate is None else steered.once(request.speculate)

    def _told(self, event: AnyEvent) -> AnyEvent:
        self.tally.add(event)
        return event

    def _faults(self) -> Iterator[Notice]:
        """A drafter that failed or had to go is told of once, and so are graphs and weights that say nothing."""
        yield from told_eager(self._parts.decoders)
        if self._look.is_flat and not self._flat_noticed:
            self._flat_noticed = True
            yield flat(self.ready.model.name)
        drafter = self._session.drafter
        if isinstance(drafter, Guarded) and drafter.fault is not None:
            self._let_go(f"The drafter failed ({first_line(drafter.fault)}); decoding goes on without it.")
        untold, self._untold = self._untold, None
        if untold is not None:
            yield untold

    def _let_go(self, message: str) -> None:
        """Plain from now on; the drafter's memory is free."""
        self._read_by_drafters += sum(decoder.bytes_read for decoder in self._parts.decoders[1:])
        self._held = self._parts.without_drafter()
        self.spec = msgspec.structs.replace(self.spec, kind="off", reason="it failed")
        hint = "The text is the same, only slower. Reload to try again."
        self._untold = Notice("warning", "drafter_failed", message, hint)
        give_back()

    def _measured(self, prompt_seconds: float, step_seconds: list[float], bytes_read: int) -> Stats:
        meter = self.tally.meter
        if meter.source == "probe" and meter.baseline_ms and self._parts.calibration_key:
            calibration.remember(self._parts.calibration_key, plain_ms=meter.baseline_ms)
        return msgspec.structs.replace(
            self.tally.stats,
            prompt_ms=1000 * prompt_seconds,
            ttft_ms=1000 * (prompt_seconds + step_seconds[0]) if step_seconds else 0.0,
            predicted_ms=1000 * sum(step_seconds),
            read_bytes=bytes_read,
            drafter_bytes=sum(decoder.weights.num_bytes for decoder in self._parts.decoders[1:]),
            kv_bytes=sum(decoder.cache.num_bytes for decoder in self._parts.decoders),
            peak_bytes=peak_bytes(),
            context_used=len(self._session.tokens),
        )

    def _bytes_read(self) -> int:
        return self._read_by_drafters + sum(decoder.bytes_read for decoder in self._parts.decoders)


def flat(name: str) -> Notice:
    message = f"{name} finds every token equally likely: its weights are all zero, or so large that they overflow."
    return Notice("warning", "flat", message, "Download the model again, or choose another.")


def read_otherwise(typed: GenerateRequest, read: GenerateRequest) -> str:
    """The last question as it is read, where that is not as it was typed."""
    pairs = zip(reversed(typed.messages or ()), reversed(read.messages or ()), strict=True)
    was, now = next(((was, now) for was, now in pairs if was.role == "user"), (None, None))
    return now.content if now is not None and now != was else ""


def told_eager(decoders: Iterable[Resident]) -> Iterator[Notice]:
    """Which of these cannot replay CUDA graphs, and why; once each."""
    for decoder in decoders:
        if isinstance(decoder, Graphed) and (fault := decoder.unreported_fault()):
            yield Notice("info", "graphs", f"CUDA graphs are off: {fault}.", "The text is the same, only slower.")


def timed(items: Iterator[Item]) -> Iterator[tuple[float, Item]]:
    """Each item with the seconds that making it took; what the taker does in between is not counted."""
    while True:
        started = perf_counter()
        try:
            item = next(items)
        except StopIteration:
            return
        yield perf_counter() - started, item
