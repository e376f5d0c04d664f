"""A loaded target and the drafter that it has now, which is steered, changed, lent for one answer, or lost.

Knows no text of an answer and no events of its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from localspec.core.errors import UsageError, first_line
from localspec.core.events import Notice, Ready, SpecCard
from localspec.core.requests import GenerateRequest, SpecOptions
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.table import check_exit
from localspec.engine.drafters.temporary import TemporaryDrafter
from localspec.engine.memory import give_back
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Policy, is_layered
from localspec.engine.session import Session
from localspec.engine.shortlist import drafter_bytes
from localspec.runtime.notices import drafter_failed, flat, graph_notices
from localspec.runtime.parts import ModelParts
from localspec.runtime.ready_drafter import Drafting, without_failed
from localspec.runtime.stats import Tally

FAILED = "it failed"


class ModelState:
    """The parts of a model, as they are now. The tally carries the measured baseline from answer to answer."""

    def __init__(self, parts: ModelParts) -> None:
        self.ready = parts.ready
        self.spec = parts.ready.spec
        self.tally = Tally()
        self.tally.add(parts.ready)
        self._held: ModelParts | None = parts
        self._own_options: SpecOptions | None = None  # of the answer under way, where it has its own
        self._read_by_drafters = 0  # bytes, by drafters that were dropped
        self._fault: Notice | None = None
        self._flat_noticed = False

    @property
    def is_open(self) -> bool:
        return self._held is not None

    @property
    def parts(self) -> ModelParts:
        self.check_open()
        assert self._held is not None
        return self._held

    @property
    def session(self) -> Session:
        return self.parts.session

    @property
    def bytes_read(self) -> int:
        """Bytes of weights that the target and all its drafters so far have read."""
        return self._read_by_drafters + sum(decoder.bytes_read for decoder in self.parts.decoders)

    @property
    def cache_bytes(self) -> int:
        return sum(decoder.cache.num_bytes for decoder in self.parts.decoders)

    def steer(self, options: SpecOptions) -> SpecCard:
        """Changes how the next rounds draft, also in the middle of an answer that has no options of its own; from any
        thread. Nothing changes without a drafter."""
        options = options.checked
        if self.spec.kind != "off":
            self.spec = msgspec.structs.replace(self.spec, mode=options.mode, k=options.k)
            if self._own_options is None:
                self.parts.drafting.policy.steer(options.mode, options.k)
        return self.spec

    @contextmanager
    def steered(self, options: SpecOptions | None) -> Iterator[None]:
        """Drafts in the way that one answer asks for."""
        if options is None or self.spec.kind == "off":
            yield
            return
        self._own_options, policy = options.checked, self.parts.drafting.policy
        policy.steer(self._own_options.mode, self._own_options.k)
        try:
            yield
        finally:
            self._own_options = None
            policy.steer(self.spec.mode, self.spec.k)

    @contextmanager
    def temporary_drafter(self, exit_layer: int | None) -> Iterator[None]:
        """Drafts with the target's first layers for one answer, if that was asked for."""
        session = self.session
        if exit_layer is not None:
            target = self.parts.target
            check_exit(exit_layer, self.ready.model.layers, self.ready.model.name)
            assert is_layered(target)
            session.drafter = TemporaryDrafter(EarlyExitDrafter(target, exit_layer), session.drafter)
        try:
            yield
        finally:
            if isinstance(session.drafter, TemporaryDrafter):  # else it failed
                session.drafter = session.drafter.suspended

    def policy(self, request: GenerateRequest) -> Policy:
        """The usual policy; a fresh one for a temporary drafter, since measurements do not carry over."""
        if request.exit_layer is not None:
            return SteerablePolicy(self.spec.mode, self.spec.k).for_one_answer(request.speculate is not False)
        steered = self.parts.drafting.policy
        return steered if request.speculate is None else steered.for_one_answer(request.speculate)

    def draft_by(self, drafting: Drafting) -> None:
        """Drafts so from now on; frees the memory of the drafter before."""
        self._read_by_drafters += sum(decoder.bytes_read for decoder in self.parts.drafting.decoders)
        self._held = self.parts.drafted_by(drafting)
        self.spec = drafting.spec

    def ready_again(self) -> Ready:
        """What is loaded, with the drafter that there is now; what was measured of another is forgotten."""
        memory = msgspec.structs.replace(
            self.ready.memory, drafter_bytes=drafter_bytes(*self.parts.decoders), kv_bytes=self.cache_bytes
        )
        self.ready = msgspec.structs.replace(self.ready, spec=self.spec, memory=memory)
        self.tally.add(self.ready)
        return self.ready

    def drop_drafter(self, message: str) -> None:
        """Decodes without it from now on, and frees its memory; the next notices say so."""
        self.draft_by(without_failed(self.parts.drafting, FAILED))
        self._fault = drafter_failed(message)
        give_back()

    def notices(self, *, is_flat: bool | None) -> Iterator[Notice]:
        """Notices, once each: a drafter that failed, CUDA graphs that are off, weights without information (`is_flat`:
        the last logits had none)."""
        yield from graph_notices(self.parts.decoders)
        translating = self.parts.drafting.translating
        if translating is not None and (notice := translating.notice(self.spec.name)):
            yield notice
        if is_flat and not self._flat_noticed:
            self._flat_noticed = True
            yield flat(self.ready.model.name)
        drafter = self.session.drafter
        if isinstance(drafter, Guarded) and drafter.fault is not None:
            self.drop_drafter(f"The drafter failed ({first_line(drafter.fault)}); decoding continues without it.")
        fault, self._fault = self._fault, None
        if fault is not None:
            yield fault

    def close(self) -> None:
        """Frees weights, caches and threads. Closing twice does no harm; all else then raises UsageError."""
        held, self._held = self._held, None
        for part in (held.drafting, *held.owned) if held else ():
            part.close()

    def check_open(self) -> None:
        if self._held is None:
            raise UsageError("This model is closed.", hint="Load it again.")
