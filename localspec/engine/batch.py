"""Several sequences at once: forwards of different sequences that wait are computed as one.

Each answer is a task, a greenlet: it runs until it needs a forward, waits there, and goes on when that is computed. So
the decode loop, drafters and samplers know nothing of a batch, and tasks come and go between any two forwards.
Orca, iteration-level scheduling: Yu et al., OSDI 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard
from weakref import WeakSet

from greenlet import getcurrent, greenlet
from torch import Tensor

from localspec.engine.protocols import ExitStates, Layered, Resident

Result = tuple[Tensor, Tensor]  # states [rows, hidden] where they were asked for, else [0, hidden]; and logits


@dataclass(frozen=True, slots=True)
class Pass:
    """One sequence's part of a forward: ids [rows] at `position` through layers 0..last - 1, the first rows from
    `exit_states`. All but the first `unread` rows get logits, `short` ones of the shortlist. `early`: states are
    wanted, and nothing is appended to the cache."""

    decoder: Batched
    ids: Tensor
    position: int
    last: int
    exit_states: ExitStates | None = None
    unread: int = 0
    short: bool = False
    early: bool = False

    def __len__(self) -> int:
        return self.ids.shape[0]


class Batched(Layered, Protocol):
    """A decoder that can compute its forwards together with those of others on the same weights."""

    compute: Callable[[Pass], Result]

    def beside(self) -> Batched:
        """Another decoder of the same weights, with an empty cache of its own."""
        ...

    def together(self, passes: Sequence[Pass]) -> list[Result]:
        """Computes passes of decoders of these weights, through the same layers, as one."""
        ...


def can_batch(decoder: Resident) -> TypeGuard[Batched]:
    """True if the decoder can compute several sequences at once."""
    return hasattr(decoder, "together")


def alone(one: Pass) -> Result:
    """Computes one pass by itself."""
    return one.decoder.together((one,))[0]


class Batch:
    """The tasks of one target, whose decoders `join`. One thread's."""

    def __init__(self) -> None:
        self._ready: list[tuple[greenlet, Result | BaseException | None]] = []
        self._waiting: list[tuple[greenlet, Pass]] = []
        self._decoders: WeakSet[Batched] = WeakSet()
        self.last_rows = 0  # rows of the last whole forward

    def join(self, decoder: Batched) -> None:
        """From now on the decoder's forwards wait for those of others."""
        decoder.compute = self.compute
        self._decoders.add(decoder)

    def __len__(self) -> int:
        """How many tasks there are."""
        return len(self._ready) + len(self._waiting)

    @property
    def others(self) -> int:
        """Rows that other tasks have in the next whole forward: those they ask for already, or one."""
        return sum(len(one) for _, one in self._waiting if not one.early) + len(self._ready)

    def start(self, work: Callable[[], object]) -> None:
        """Begins a task at the next step."""
        self._ready.append((greenlet(work), None))

    def step(self) -> bool:
        """Runs every task to its next forward, and computes what waits. False where no task is left."""
        self._run_tasks()
        passes = [one for _, one in self._waiting]
        drafts = [one for one in passes if one.early or one.last < one.decoder.arch.num_layers]
        chosen = drafts or passes  # verify forwards wait until everybody has drafted
        for task, one in [(task, one) for task, one in self._waiting if one in chosen]:
            self._waiting.remove((task, one))
            self._ready.append((task, attempt(one)))
        return bool(self)

    def close(self) -> None:
        """Ends all tasks where they wait."""
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
            return alone(one)
        self._waiting.append((task, one))
        return task.parent.switch()  # type: ignore[no-any-return]

    def _run_tasks(self) -> None:
        while self._ready:
            task, result = self._ready.pop(0)
            task.parent = getcurrent()
            if isinstance(result, BaseException):
                task.throw(result)
            else:
                task.switch(*(() if result is None else (result,)))


def attempt(one: Pass) -> Result | Exception:
    try:
        return alone(one)
    except Exception as fault:
        return fault
