"""Times forwards of one width at one depth, every method in turn, and collects milliseconds.

Depth is reached without computing it where the engine is ours: what a cache holds does not change the time. Knows
nothing about how the figures are printed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Literal, Protocol

import torch

from localspec.bench.turns import rotated
from localspec.engine.bandwidth import MOST_BYTES
from localspec.engine.cpu.pages import in_large_pages
from localspec.engine.decoder import Decoder
from localspec.engine.limits import PREFILL_CHUNK

if TYPE_CHECKING:
    from localspec.engine.cpu.decoder import PackedDecoder

LEAST_SECONDS = 0.02  # of a timing: shorter forwards are repeated inside it
MOST_CALLS = 20
LONG_SECONDS = 1.0  # what waking up takes is nothing beside it
PREFILLS = 3  # a long forward varies little
MOST_ON_DEVICE = 4 << 30  # a GPU reads less in no time, and then its start is what is timed


@dataclass(frozen=True, slots=True)
class Work:
    """`rows` at once over `depth` cached positions; a prefill reads only its last row at the head."""

    kind: Literal["forward", "prefill", "early exit"]
    rows: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The forwards to time. `prefill`: tokens of a prompt read from nothing, 0 for none."""

    widths: tuple[int, ...] = (1, 2, 3, 4, 5, 8, 16)
    depths: tuple[int, ...] = (128, 1024, 4096)
    prefill: int = 512

    @property
    def context(self) -> int:
        """Positions that a cache must hold."""
        return max(max(self.depths) + max(self.widths), self.prefill)

    def at(self, depth: int) -> list[Work]:
        return [*(Work("forward", width, depth) for width in self.widths), Work("early exit", 1, depth)]

    @property
    def works(self) -> list[Work]:
        reading = [Work("prefill", self.prefill)] if self.prefill else []
        return [*reading, *(work for depth in sorted(self.depths) for work in self.at(depth))]


class Method(Protocol):
    """An engine with weights in one format. `rivals`: whose times its own are compared with."""

    name: str
    rivals: tuple[str, ...]

    def fill(self, depth: int) -> None:
        """The cache holds `depth` positions."""
        ...

    def can(self, work: Work) -> bool: ...

    def prepare(self, work: Work) -> None:
        """Prepares its runs, not timed."""
        ...

    def run(self, work: Work) -> None:
        """Runs once, on a cache of `work.depth` positions, which has as many again afterwards."""
        ...

    def num_bytes(self, work: Work) -> int:
        """Weights that `run` must read."""
        ...


class Ours:
    """One of our decoders. `threads` are torch's: one where the decoder has its own, as when it answers."""

    def __init__(
        self,
        name: str,
        decoder: Decoder | PackedDecoder,
        *,
        exit_layer: int,
        threads: int = 1,
        rivals: tuple[str, ...] = (),
    ) -> None:
        self.name, self.decoder, self.exit_layer, self.rivals = name, decoder, exit_layer, rivals
        self.threads = threads
        self.ids = (torch.arange(decoder.context) * 7919 % decoder.arch.vocab_size).to(decoder.device)
        store = decoder.cache.store
        store.normal_(generator=torch.Generator(store.device).manual_seed(0))

    def fill(self, depth: int) -> None:
        self.decoder.cache.length = depth

    def can(self, work: Work) -> bool:  # noqa: ARG002 - any
        return True

    def prepare(self, work: Work) -> None:  # noqa: ARG002 - any
        torch.set_num_threads(self.threads)

    def run(self, work: Work) -> None:
        if work.kind == "early exit":
            self.decoder.early(self.ids[: work.rows], self.exit_layer, work.depth)
        else:
            last_only = work.kind == "prefill"
            for part in torch.split(self.ids[: work.rows], PREFILL_CHUNK):
                self.decoder.forward(part, last_only=last_only)
            self.decoder.crop(work.depth)
        finish(self.decoder.device)

    def num_bytes(self, work: Work) -> int:
        layers = self.exit_layer if work.kind == "early exit" else self.decoder.arch.num_layers
        return sum(self.decoder.layer_bytes[:layers]) + self.decoder.weights.head.num_bytes


class Memory:
    """Reads as many bytes as the weights are, once, and does nothing with them: the floor under a forward's time. It
    takes turns like the others, for on a shared machine it changes from one minute to the next."""

    name: str = "memory"
    rivals: tuple[str, ...] = ()

    def __init__(self, num_bytes: int, threads: int, device: str = "cpu") -> None:
        most = MOST_BYTES if device == "cpu" else MOST_ON_DEVICE
        self.bytes_ = torch.empty(max(min(num_bytes, most) // 4, 1), device=device)
        if device == "cpu":
            in_large_pages(self.bytes_)
        self.bytes_.fill_(1)
        self.threads = threads

    def fill(self, depth: int) -> None: ...

    def can(self, work: Work) -> bool:  # noqa: ARG002 - any
        return True

    def prepare(self, work: Work) -> None:  # noqa: ARG002 - any
        torch.set_num_threads(self.threads)

    def run(self, work: Work) -> None:  # noqa: ARG002 - any
        self.bytes_.sum()
        finish(self.bytes_.device)

    def num_bytes(self, work: Work) -> int:  # noqa: ARG002 - any
        return self.bytes_.nbytes


def finish(device: torch.device) -> None:
    """Waits for a device that computes by itself."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


Times = dict[str, dict[Work, list[float]]]


def never() -> bool:
    return False


def time_forwards(
    methods: Sequence[Method],
    plan: Plan,
    repeats: int,
    tell: Callable[[float], None],
    late: Callable[[], bool] = never,
) -> Times:
    """Seconds by method and work, one for every repeat, in the same order for all. Once it is `late`, what has one
    gets no more."""
    times: Times = {method.name: defaultdict(list) for method in methods}
    steps = [(work, turn) for works in stages(plan) for turn in range(repeats) for work in works if counts(work, turn)]
    depth = -1
    for step, (work, turn) in enumerate(steps):
        if turn and late():
            continue
        if work.depth != depth:
            depth = work.depth
            for method in methods:
                method.fill(depth)
        for method in rotated(methods, step + turn):
            if method.can(work):
                method.prepare(work)
                times[method.name][work].append(seconds(method, work))
        tell((step + 1) / len(steps))
    return {name: dict(found) for name, found in times.items()}


def stages(plan: Plan) -> list[list[Work]]:
    """Groups the works by depth, since filling a cache takes long where it must be computed."""
    by_depth: dict[int, list[Work]] = {}
    for work in plan.works:
        by_depth.setdefault(work.depth, []).append(work)
    return list(by_depth.values())


def counts(work: Work, turn: int) -> bool:
    return work.kind != "prefill" or turn < PREFILLS


def seconds(method: Method, work: Work) -> float:
    """Time of one run. A short one before it is not counted: it wakes this method's threads while the last one's go to
    sleep."""
    started = perf_counter()
    method.run(work)
    first = perf_counter() - started
    if first > LONG_SECONDS:
        return first
    calls = max(1, min(MOST_CALLS, int(LEAST_SECONDS / first)))
    started = perf_counter()
    for _ in range(calls):
        method.run(work)
    return (perf_counter() - started) / calls
