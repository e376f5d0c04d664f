"""Several sequences at once: forwards of different sequences that wait are computed as one.

Each answer is a task, a greenlet: it runs until it needs a forward, waits there, and goes on when that is computed. So
the decode loop, drafters and samplers know nothing of a batch, and tasks begin and end between any two forwards.
Orca, iteration-level scheduling: Yu et al., OSDI 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Final
from weakref import WeakSet

from greenlet import getcurrent, greenlet

from localspec.engine.limits import PREFILL_CHUNK
from localspec.engine.passes import Batched, Pass, Result, alone
from localspec.engine.protocols import Forward, Sized

STEP_SECONDS: Final = 0.07  # of a step in which prompts are read while others write
LEAST_READ: Final = 16  # rows of prompts in such a step, however slow they are


class Batch:
    """The tasks of one target, whose decoders `join`, the target's own first. It belongs to one thread."""

    def __init__(self) -> None:
        self._ready: list[tuple[greenlet, Result | Exception | None]] = []
        self._waiting: list[tuple[greenlet, Pass]] = []
        self._decoders: WeakSet[Batched] = WeakSet()  # a drafter that is dropped frees its memory
        self._weights: Sized | None = None  # the target's
        self._rows_per_second = 0.0
        self.last: Forward | None = None

    def join(self, decoder: Batched) -> None:
        """Makes the decoder's forwards wait for those of others from now on."""
        decoder.compute = self.compute
        self._decoders.add(decoder)
        self._weights = self._weights or decoder.weights

    def __len__(self) -> int:
        """How many tasks there are."""
        return len(self._ready) + len(self._waiting)

    @property
    def others(self) -> int:
        """Rows that other tasks have in the next whole forward: those they ask for already, or one."""
        return sum([1 if self._is_draft(one) else len(one) for _, one in self._waiting]) + len(self._ready)

    @property
    def is_reading(self) -> bool:
        """Whether a prompt is being read, in pieces beside others that write."""
        return any(one.unread for _, one in self._waiting if not self._is_draft(one))

    def start(self, work: Callable[[], object]) -> None:
        """Begins a task at the next step, which raises what the task does not catch."""
        self._ready.append((greenlet(work), None))

    def step(self) -> bool:
        """Runs every task to its next forward, and computes what waits. False where no task is left."""
        self._run_tasks()
        drafts = [(task, one) for task, one in self._waiting if self._is_draft(one)]
        chosen = drafts or self._shared_out()  # verify forwards wait until everybody has drafted
        for some in groups(chosen):
            started = perf_counter()
            results = attempt([one for _, one in some])
            if not drafts:
                self._measure([one for _, one in some], perf_counter() - started)
            for (task, one), result in zip(some, results, strict=True):
                self._take(task, one, result)
        return bool(self)

    def close(self) -> None:
        """Ends all tasks where they wait; their decoders compute alone again."""
        for task, _ in (*self._ready, *self._waiting):
            if task:  # one that has begun
                task.throw()
        self._ready, self._waiting = [], []
        for decoder in self._decoders:
            decoder.compute = alone

    def compute(self, one: Pass) -> Result:
        """Waits until the pass is computed; outside of a task it is computed at once."""
        task = getcurrent()
        if task.parent is None:
            started = perf_counter()
            result = alone(one)
            if not self._is_draft(one):
                self._measure((one,), perf_counter() - started)
            return result
        self._waiting.append((task, one))
        return task.parent.switch()  # type: ignore[no-any-return]

    def _run_tasks(self) -> None:
        while self._ready:
            task, result = self._ready.pop(0)
            task.parent = getcurrent()
            if isinstance(result, Exception):
                task.throw(result)
            else:
                task.switch(*(() if result is None else (result,)))

    def _is_draft(self, one: Pass) -> bool:
        return one.early or one.decoder.weights is not self._weights

    def _shared_out(self) -> list[tuple[greenlet, Pass]]:
        """Returns what waits, prompts cut to what a step may take of them: little while others write."""
        prompts = sum([one.unread > 0 for _, one in self._waiting])
        if not prompts or len(self._waiting) == 1:
            return list(self._waiting)
        writing = sum([len(one) for _, one in self._waiting if not one.unread])
        most = max(LEAST_READ, int(self._rows_per_second * STEP_SECONDS) - writing) if writing else PREFILL_CHUNK
        share = max(most // prompts, 1)
        return [(task, one.first(share) if one.unread else one) for task, one in self._waiting]

    def _measure(self, passes: Sequence[Pass], seconds: float) -> None:
        self.last = last = Forward(sum(map(len, passes)), seconds, is_mixed=any(one.unread for one in passes))
        if last.is_mixed and last.rows >= LEAST_READ:
            self._rows_per_second = last.rows / max(seconds, 1e-9)

    def _take(self, task: greenlet, part: Pass, result: Result | Exception) -> None:
        """A task goes on with its result, or waits for the rest of its pass."""
        index = [waiting for waiting, _ in self._waiting].index(task)
        _, whole = self._waiting[index]
        if len(part) < len(whole) and not isinstance(result, Exception):
            self._waiting[index] = (task, whole.behind(len(part)))
        else:
            del self._waiting[index]
            self._ready.append((task, result))


def groups(waiting: Sequence[tuple[greenlet, Pass]]) -> Iterator[list[tuple[greenlet, Pass]]]:
    """Yields what can be computed as one: of the same weights, through the same layers, from the same exit. A short
    head is its decoder's own."""
    found: dict[tuple[int, int, int, int], list[tuple[greenlet, Pass]]] = {}
    leaves = [one.exit_states.layer for _, one in waiting if one.exit_states is not None]
    for task, one in waiting:
        leave = one.exit_states.layer if one.exit_states is not None else (leaves or [0])[0]
        key = (id(one.decoder.weights), one.last, leave, id(one.decoder) if one.short else 0)
        found.setdefault(key, []).append((task, one))
    yield from found.values()


def attempt(passes: Sequence[Pass]) -> Sequence[Result | Exception]:
    """Computes the passes as one; where that fails, each by itself, so that one's fault is its own."""
    try:
        return passes[0].decoder.together(passes)
    except Exception as fault:
        return [fault] if len(passes) == 1 else [attempt([one])[0] for one in passes]
