"""Several answers at once on one target: a Model for each, whose forwards wait for each other and are computed as one.

The Models share the weights of target and draft model, and the prompter; each has a conversation, a drafter and
references of its own. Knows no process and no screen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from msgspec.structs import replace

from localspec.core.errors import EngineDied, UsageError
from localspec.core.events import AnyEvent, Loading, Notice, Ready, SpecCard
from localspec.core.requests import ChangeDrafter, GenerateRequest, SpecOptions
from localspec.engine.passes import can_batch
from localspec.runtime.failures import failure
from localspec.runtime.model import Model

if TYPE_CHECKING:
    from localspec.engine.batch import Batch
    from localspec.runtime.answer import IsCancelled

Report = Callable[[AnyEvent], object]


class Leaving:
    """Stands among the locals of a thread that begins answers: when the thread ends, they do. No other can end them."""

    def __init__(self, slots: Slots) -> None:
        self._slots = ref(slots)

    def __del__(self) -> None:
        if slots := self._slots():
            slots.leave()


class Slots:
    """`first` owns what the others share. One thread's, but for `steer`."""

    def __init__(self, first: Model, *others: Model, batch: Batch | None = None) -> None:
        """`batch`: the one that their policies know."""
        self.first, self._others = first, others
        self._free = [first, *others]  # the longest unused first
        self._batch = batch
        self._starting = threading.Lock()
        self._here = threading.local()
        self._thread = 0  # whose the answers under way are

    def __len__(self) -> int:
        """How many answers there can be at once."""
        return 1 + len(self._others)

    @property
    def answering(self) -> int:
        """How many answers are under way."""
        return len(self) - len(self._free)

    @property
    def has_free(self) -> bool:
        """Whether another can be begun; the first Model may answer outside of the batch."""
        return any(not model.is_answering for model in self._free)

    @property
    def is_here(self) -> bool:
        """Whether this thread may go on with what is under way."""
        return not self.answering or self._thread == threading.get_ident()

    def check_thread(self) -> None:
        """UsageError where another thread began what is under way."""
        if not self.is_here:
            raise UsageError(
                "The model is answering in another thread.", hint="Continue in that thread, or wait until it has ended."
            )

    @property
    def ready(self) -> Ready:
        """What is loaded, with the caches of all."""
        ready = self.first.ready
        caches = sum(model.ready.memory.kv_bytes for model in self._all)
        return replace(ready, memory=replace(ready.memory, kv_bytes=caches), parallel=len(self))

    def start(self, request: GenerateRequest, report: Report, cancelled: IsCancelled | None = None) -> None:
        """Begins an answer at the next step; `report` is called with its events as they come, of which Done or a
        Failure is the last. Nothing that happens to it harms another."""
        with self._starting:
            self.check_thread()
            self._thread = threading.get_ident()
            self._here.leaving = getattr(self._here, "leaving", None) or Leaving(self)
            model = self._chosen(request, cancelled)
            self._free.remove(model)
        self._joined().start(partial(self._answer, model, request, report, cancelled))

    def step(self) -> bool:
        """Runs every answer to its next forward, and computes those; False where no answer is left."""
        self.check_thread()
        return self._batch is not None and self._batch.step()

    def steer(self, options: SpecOptions) -> SpecCard:
        """Speculate so from the next round on, in all answers that have no options of their own. From any thread."""
        for model in self._others:
            model.steer(options)
        return self.first.steer(options)

    def change_drafter(self, asked: ChangeDrafter) -> Generator[Loading | Notice | Ready, None, None]:
        """Drafts otherwise in all slots, between two answers, as a Model does; one that cannot be had twice drafts in
        the first alone."""
        if self.answering:
            raise UsageError("The model is in the middle of an answer.", hint="Read that to its end, or close it.")
        for model in self._others:
            model.draft_like(None)  # or the weights of the drafter before would stay in memory
        for event in self.first.change_drafter(asked):
            if isinstance(event, Ready):
                for model in self._others:
                    model.draft_like(self.first)
                yield self.ready
            else:
                yield event

    def leave(self) -> None:
        """Ends what is under way, if this thread began it."""
        if self._batch is not None and self.answering and self.is_here:
            self._batch.close()

    def close(self) -> None:
        """Ends what is under way, and frees the memory. Twice does no harm."""
        self.check_thread()
        if self._batch is not None:
            self._batch.close()
        for model in self._all:
            model.close()

    # --- inside

    @property
    def _all(self) -> tuple[Model, ...]:
        return (self.first, *self._others)

    def _joined(self) -> Batch:
        """The batch in which the forwards of all decoders wait for each other, where they can."""
        if self._batch is None:
            from localspec.engine.batch import Batch  # here: what measures on a bare GPU box has no greenlet

            self._batch = Batch()
        for model in self._all:
            for decoder in model.decoders:
                if can_batch(decoder):
                    self._batch.join(decoder)
        return self._batch

    def _chosen(self, request: GenerateRequest, cancelled: IsCancelled | None) -> Model:
        """The free slot that holds most of the prompt's beginning, else the one that was not used for longest."""
        free = [model for model in self._free if not model.is_answering]
        if not free:
            raise UsageError("The model is in the middle of another answer.", hint="Read that to its end, or close it.")
        if len(free) == 1:
            return free[0]
        try:
            ids = free[0].prompt_ids(request, cancelled)
            return max(free, key=lambda model: model.num_reusable(ids))  # of several, the first
        except Exception:  # the answer itself will say so
            return free[0]

    def _answer(self, model: Model, request: GenerateRequest, report: Report, cancelled: IsCancelled | None) -> None:
        try:
            for event in model.answer(request, cancelled):
                report(event)
        except EngineDied:
            raise
        except Exception as fault:
            report(failure(fault))
        finally:
            self._free.append(model)
