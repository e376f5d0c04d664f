"""Several sequences at once: forwards of different sequences that wait are computed as one.

Each answer is a task, a greenlet: it runs until it needs a forward, waits there, and goes on when that is computed. So
the decode loop, drafters and samplers know nothing of a batch, and tasks begin and end between any two forwards.
Orca, iteration-level scheduling: Yu et al., OSDI 2022.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from weakref import WeakSet

from greenlet import getcurrent, greenlet

from localspec.engine.limits import PREFILL_CHUNK
from localspec.engine.passes import Batched, Pass, PassResult, alone
from localspec.engine.pieces import LEAST_READ, PromptPieces
from localspec.engine.protocols import Forward, Sized

Result = PassResult | Exception


@dataclass(slots=True, eq=False)
class WaitingPass:
    """What is left of a pass that a task waits for. `results`: those of all its passes, None until there is one."""

    task: greenlet
    left: Pass
    results: list[Result | None]
    index: int


class Batch:
    """The tasks of one target, whose decoders `join`, the target's own first. It belongs to one thread."""

    def __init__(self) -> None:
        self._new: list[tuple[greenlet, list[Result] | None]] = []
        self._ready: list[tuple[greenlet, list[Result] | None]] = []
        self._waiting: list[WaitingPass] = []
        self._decoders: WeakSet[Batched] = WeakSet()  # a drafter that is dropped frees its memory
        self._weights: Sized | None = None  # the target's
        self._pieces: defaultdict[int, PromptPieces] = defaultdict(PromptPieces)  # by weights
        self.last: Forward | None = None

    def join(self, decoder: Batched) -> None:
        """Makes the decoder's forwards wait for those of others from now on."""
        decoder.compute = self.compute
        self._decoders.add(decoder)
        self._weights = self._weights or decoder.weights

    def __len__(self) -> int:
        """How many tasks there are."""
        return len(self._new) + len(self._ready) + len({id(one.task) for one in self._waiting})

    @property
    def others(self) -> int:
        """Rows that other tasks have in the next whole forward: those they ask for already, or one; none while their
        drafters read a prompt."""
        waiting = [one.left for one in self._waiting]
        asked = [self._is_drafting(one) if self._is_draft(one) else len(one) for one in waiting]
        return sum(asked) + len(self._new) + len(self._ready)

    @property
    def is_reading(self) -> bool:
        """Whether a prompt is being read, in pieces beside others that write."""
        return any(self._is_prompt(one.left) for one in self._waiting)

    def start(self, work: Callable[[], object]) -> None:
        """Begins a task at the next step, which raises what the task does not catch."""
        self._new.append((greenlet(work), None))

    def step(self) -> bool:
        """Runs every task to its next forward, and computes what waits. False where no task is left."""
        self._run_tasks()
        drafts = [(one, one.left) for one in self._waiting if self._is_drafting(one.left)]
        chosen = drafts or self._shared_out()  # verify forwards wait until everybody has drafted
        for some in groups(chosen):
            started = perf_counter()
            results = attempt([one for _, one in some])
            if not drafts:
                self._measure([one for _, one in some], perf_counter() - started)
            for (waiting, one), result in zip(some, results, strict=True):
                self._take(waiting, len(one), result)
        return bool(self)

    def close(self) -> None:
        """Ends all tasks where they wait; their decoders compute alone again."""
        tasks = [task for task, _ in (*self._new, *self._ready)]
        for task in (*tasks, *[one.task for one in self._waiting]):
            if task:  # one that has begun, and not ended
                task.throw()
        self._new, self._ready, self._waiting = [], [], []
        for decoder in self._decoders:
            decoder.compute = alone

    def compute(self, passes: Sequence[Pass]) -> Sequence[PassResult]:
        """Waits until the passes are computed, each of another decoder; outside of a task they are computed at once."""
        task = getcurrent()
        if task.parent is None:
            started = perf_counter()
            computed = alone(passes)
            if not self._is_drafting(passes[0]):
                self._measure(passes, perf_counter() - started)
            return computed
        results: list[Result | None] = [None] * len(passes)
        self._waiting.extend(WaitingPass(task, one, results, index) for index, one in enumerate(passes))
        return task.parent.switch()  # type: ignore[no-any-return]

    def _run_tasks(self) -> None:
        """New ones go first: the others then know that a prompt is read before they choose their drafts."""
        while self._new or self._ready:
            task, results = (self._new or self._ready).pop(0)
            task.parent = getcurrent()
            if results is None:
                task.switch()
            elif fault := next((one for one in results if isinstance(one, Exception)), None):
                task.throw(fault)
            else:
                task.switch(results)

    def _is_draft(self, one: Pass) -> bool:
        return one.early or one.decoder.weights is not self._weights

    def _is_prompt(self, one: Pass) -> bool:
        """Whether a prompt is read, or by a drafter what it has missed of a text."""
        return one.unread > 0 and (len(one) >= LEAST_READ or not self._is_draft(one))

    def _is_drafting(self, one: Pass) -> bool:
        return self._is_draft(one) and not self._is_prompt(one)

    def _shared_out(self) -> list[tuple[WaitingPass, Pass]]:
        """Returns what waits, prompts cut to what a step may take of them: little while others write."""
        prompts = [one.left for one in self._waiting if self._is_prompt(one.left)]
        if not prompts or len(self._waiting) == 1:
            return [(one, one.left) for one in self._waiting]
        readers = Counter(id(one.decoder.weights) for one in prompts)
        shares = {weights: max(self._most(weights, readers) // count, 1) for weights, count in readers.items()}
        return [
            (one, one.left.first(shares[id(one.left.decoder.weights)]) if self._is_prompt(one.left) else one.left)
            for one in self._waiting
        ]

    def _most(self, weights: int, readers: Counter[int]) -> int:
        """Rows of prompts that these weights may read in a step; a drafter has the time that the target leaves."""
        writing = [len(one.left) for one in self._waiting if not self._is_prompt(one.left)]
        if not writing:
            return PREFILL_CHUNK
        if weights == id(self._weights):
            return self._pieces[weights].most(len(writing), sum(writing) - len(writing))
        if self.last is None or id(self._weights) in readers:
            return LEAST_READ
        return self._pieces[weights].behind(self.last.seconds)

    def _measure(self, passes: Sequence[Pass], seconds: float) -> None:
        rows, read = sum(map(len, passes)), sum([len(one) for one in passes if one.unread])
        writers = sum([not one.unread for one in passes])
        if not self._is_draft(passes[0]):
            self.last = Forward(rows, seconds, is_mixed=read > 0)
        pieces = self._pieces[id(passes[0].decoder.weights)]
        pieces.observe(max(seconds, 1e-9), read=read, writers=writers, drafted=rows - read - writers)

    def _take(self, waiting: WaitingPass, rows: int, result: Result) -> None:
        """A task goes on with the results of its passes, or waits for the rest of one."""
        if rows < len(waiting.left) and not isinstance(result, Exception):
            waiting.left = waiting.left.behind(rows)
            return
        self._waiting.remove(waiting)
        waiting.results[waiting.index] = result
        results = [one for one in waiting.results if one is not None]
        if len(results) == len(waiting.results):
            self._ready.append((waiting.task, results))


def groups(chosen: Sequence[tuple[WaitingPass, Pass]]) -> Iterator[list[tuple[WaitingPass, Pass]]]:
    """Yields what can be computed as one: of the same weights, through the same layers, from the same exit. A short
    head is its decoder's own."""
    found: dict[tuple[int, int, int, int], list[tuple[WaitingPass, Pass]]] = {}
    leaves = [one.exit_states.layer for _, one in chosen if one.exit_states is not None]
    for waiting, one in chosen:
        leave = one.exit_states.layer if one.exit_states is not None else (leaves or [0])[0]
        key = (id(one.decoder.weights), one.last, leave, id(one.decoder) if one.short else 0)
        found.setdefault(key, []).append((waiting, one))
    yield from found.values()


def attempt(passes: Sequence[Pass]) -> Sequence[Result]:
    """Computes the passes as one; where that fails, each by itself, so that one's fault is its own."""
    try:
        return passes[0].decoder.together(passes)
    except Exception as fault:
        return [fault] if len(passes) == 1 else [attempt([one])[0] for one in passes]
