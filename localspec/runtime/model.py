"""A loaded model that answers requests, one at a time, and takes another drafter between two of them.

Knows nothing about processes or screens.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import msgspec

from localspec.core.errors import EngineDied, UsageError, first_line
from localspec.core.events import AnyEvent, Loading, Notice, Ready, SpecCard
from localspec.core.requests import ChangeDrafter, GenerateRequest, SpecOptions
from localspec.engine.memory import give_back
from localspec.engine.protocols import Resident
from localspec.engine.session import common_prefix_length
from localspec.runtime.answer import AnswerRun, IsCancelled, Trace, encoded, folded
from localspec.runtime.model_state import FAILED, ModelState
from localspec.runtime.notices import drafter_failed, graph_notices
from localspec.runtime.parts import ModelParts
from localspec.runtime.prompt_reuse import keep_spelling
from localspec.runtime.ready_drafter import without_drafter
from localspec.runtime.references import References


class Model:
    """Target, drafter and conversation, ready to answer."""

    def __init__(self, parts: ModelParts) -> None:
        self.state = ModelState(parts)
        self._references = References(parts.folding)
        self._answering = threading.Lock()

    def answer(
        self, request: GenerateRequest, cancelled: IsCancelled | None = None, trace: Trace | None = None
    ) -> Generator[AnyEvent, None, None]:
        """Prefill, Steps and Notices, then Done. LocalspecError where it cannot go on; the text so far stands.

        The next answer may begin when this one has ended, was closed or was garbage-collected. `trace` is called with
        every round before its Step; its time is not counted. A search of beams has none.
        """
        state, exit_layer = self.state, request.exit_layer if request.beams == 1 else None
        with self._alone(), state.steered(request.spec), state.temporary_drafter(exit_layer):
            yield from AnswerRun(state, self._references, request, cancelled).events(trace)

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

    @property
    def ready(self) -> Ready:
        return self.state.ready

    @property
    def spec(self) -> SpecCard:
        return self.state.spec

    def steer(self, options: SpecOptions) -> SpecCard:
        """Steers the drafter, as ModelState does; from any thread."""
        return self.state.steer(options)

    def change_drafter(self, asked: ChangeDrafter) -> Generator[Loading | Notice | Ready, None, None]:
        """Drafts with another drafter from now on, then Ready again. Weights and conversation of the target stay; what
        was measured of the drafter before is forgotten. A drafter that fails is a Notice, and none drafts."""
        with self._alone():
            state, failed = self.state, None
            state.draft_by(without_drafter(state.parts.drafting.policy, FAILED))  # its memory may be needed
            give_back()
            try:
                state.draft_by((yield from state.parts.another(asked)))
            except EngineDied:
                raise
            except Exception as fault:
                failed = drafter_failed(f"The drafter could not be loaded ({first_line(fault)}).")
            ready = state.ready_again()
            yield from graph_notices(self.decoders)
            yield ready
            if failed is not None:
                yield failed

    def draft_like(self, other: Model | None) -> None:
        """Drafts as another Model on the same target does, on the same weights; None drafts nothing."""
        parts = self.state.parts
        alike = other and other.state.parts.drafting.beside
        reason = FAILED if other is None else other.spec.reason
        self.state.draft_by(alike(parts.target) if alike else without_drafter(parts.drafting.policy, reason))
        self.state.ready_again()

    @property
    def decoders(self) -> tuple[Resident, ...]:
        """The target's first, then the drafter's own."""
        return self.state.parts.decoders

    def prompt_ids(self, request: GenerateRequest, cancelled: IsCancelled | None = None) -> list[int]:
        """The prompt as ids; of an answer that is continued, what stands before it."""
        parts = self.state.parts
        request = folded(request, parts.folding)
        if request.continues:
            request = msgspec.structs.replace(request, messages=(request.messages or ())[:-1])
        return encoded(request, parts.prompter.using(request.template, cancelled))

    def num_reusable(self, ids: list[int]) -> int:
        """How many tokens of a prompt's beginning the cache holds; 0 where that is less than half of what it holds, and
        the prompt is of another conversation."""
        known, prompter = self.state.session.tokens, self.state.parts.prompter
        spelled = keep_spelling(known, ids, prompter.control_ids, prompter.tokenizer.decode)
        shared = common_prefix_length(known, spelled)
        return shared if 2 * shared >= len(known) else 0

    def forget(self) -> None:
        """Drop the conversation from the cache: the next prompt is read from its start."""
        self.state.session.rewind(0)

    def close(self) -> None:
        """Frees weights, caches and threads. Closing twice does no harm; all else then raises UsageError."""
        self.state.close()

    def check_open(self) -> None:
        self.state.check_open()
