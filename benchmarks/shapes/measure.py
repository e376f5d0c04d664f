"""Measures a shape: random weights in every format, peers on the same weights, all in one process and in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from benchmarks.llama_cpp import library as llama_cpp
from benchmarks.llama_cpp.library import RIVALS, LlamaCpp
from benchmarks.shapes.agreement import LENGTHS, PROMPT_TOKENS, Stand, Theirs, Writer, time_writers, writers
from benchmarks.shapes.forwards import Memory as MemoryRead
from benchmarks.shapes.forwards import Method, Ours, Plan, never, time_forwards
from benchmarks.shapes.layer_offload import Rate, from_disk, from_host, offloaded
from benchmarks.shapes.random_weights import BITS, SHAPES, USUAL, make_decoder, random_tensors, with_head_kept
from benchmarks.shapes.report import ShapeReport, Timed, Written
from benchmarks.shapes.transformers_forwards import TransformersForwards
from localspec.bench.machine import describe_machine
from localspec.bench.progress import Tell, shares
from localspec.core import processor
from localspec.core.drain import drain
from localspec.core.errors import EngineError, UsageError
from localspec.core.events import Loading
from localspec.core.main_memory import available_bytes
from localspec.core.sizes import size_words
from localspec.core.weight_formats import ListedFormat, find_format
from localspec.engine.arch import Arch
from localspec.engine.decoder import Decoder
from localspec.engine.four_bit import library
from localspec.engine.transformers_faults import keep_offline
from localspec.loading.sources import StateDictSource
from localspec.models.prequantised.stored_format import FOUR_BIT

if TYPE_CHECKING:
    from localspec.engine.cpu.decoder import PackedDecoder

SEED = 0
PLACED_BY = "accelerate"  # puts what transformers quantises on its device, and need not be there
USABLE = 0.6  # of free memory, for all formats together


@dataclass(frozen=True, slots=True)
class ShapeRequest:
    """A measurement's settings. `formats`: () for all that fit. `agree`: rates of forced agreement, () for no
    speculation."""

    shape: str
    formats: tuple[ListedFormat, ...] = ()
    against: tuple[str, ...] = ()
    agree: tuple[float, ...] = ()
    exit_layer: int | None = None
    max_tokens: int = 64
    repeats: int = 3
    threads: int | None = None
    plan: Plan = field(default_factory=Plan)
    lengths: tuple[str, ...] = LENGTHS
    offload: Rate | None = None
    device: str = "cpu"

    @property
    def leave(self) -> int:
        return max(1, SHAPES[self.shape].num_layers // 4) if self.exit_layer is None else self.exit_layer

    @property
    def cores(self) -> int:
        return self.threads or processor.physical_cores()

    @property
    def context(self) -> int:
        return max(self.plan.context, PROMPT_TOKENS + self.max_tokens + 1)


@dataclass(frozen=True, slots=True)
class Watch:
    """Follows a measurement: the share that is done, what is being made, and whether it should end now."""

    tell: Callable[[float], None] = lambda _share: None
    say: Callable[[str], None] = lambda _what: None
    late: Callable[[], bool] = never


def measure_shape(request: ShapeRequest, watch: Watch = Watch(), source: StateDictSource | None = None) -> ShapeReport:
    """Forwards of every method first; then, with `agree`, texts. `source`: the weights, if they are made already."""
    keep_offline()
    versions = check(request)
    torch.set_num_threads(request.cores)
    kinds, notes = choose_formats(request)
    if is_packed(request, kinds):
        compile_engine(watch.say)
    if source is None:
        watch.say("random weights")
        source = random_tensors(SHAPES[request.shape], SEED, request.device)
    with ExitStack() as held:
        bench = Bench(request, kinds, source, watch, held)
        times = time_forwards([*bench.methods, bench.memory], request.plan, request.repeats, watch.tell, watch.late)
        texts = bench.texts(watch) if request.agree else ()
    return ShapeReport(
        request.shape,
        SEED,
        request.repeats,
        {**describe_machine(request.cores, request.device), **kernels(request, kinds), **versions},
        timed(bench.memory, request.plan),
        tuple(request.plan.works),
        tuple(timed(method, request.plan) for method in bench.methods),
        times,
        texts,
        (*notes, *bench.notes),
    )


class Bench:
    """Everything that is measured, in memory at once."""

    def __init__(
        self,
        request: ShapeRequest,
        kinds: tuple[ListedFormat, ...],
        source: StateDictSource,
        watch: Watch,
        held: ExitStack,
    ) -> None:
        """`held`: files and engines of theirs, let go when all is measured."""
        self.request, self.held, say = request, held, watch.say
        arch, context, threads = SHAPES[request.shape].arch(request.context), request.context, request.cores
        self.engines: dict[str, LlamaCpp] = {}
        self.decoders: dict[ListedFormat, Decoder | PackedDecoder] = {}
        for kind in kinds:
            say(kind)
            self.decoders[kind] = self.decoder(arch, source, kind)
        for kind in kinds if "llama-cpp" in request.against else ():
            if kind in RIVALS:
                say(llama_cpp.name_of(RIVALS[kind]))
                self.engines[kind] = LlamaCpp(arch, source, RIVALS[kind], context=context, threads=threads)
                held.callback(self.engines[kind].close)
        self.theirs: list[TransformersForwards] = []
        for name in theirs(kinds) if "transformers" in request.against else ():
            say(f"transformers {name}".strip())
            self.theirs.append(
                TransformersForwards(
                    SHAPES[request.shape], source, context, threads=threads, kind=name, device=request.device
                )
            )
        largest = max(decoder.weights.num_bytes for decoder in self.decoders.values())
        self.memory = MemoryRead(largest, request.cores, request.device)
        mine = [*(self.ours(kind) for kind in kinds), *(self.as_theirs(kind, source) for kind in self.four_bits)]
        self.methods: list[Method] = [*mine, *self.engines.values(), *self.theirs]

    def decoder(self, arch: Arch, source: StateDictSource, kind: ListedFormat) -> Decoder | PackedDecoder:
        """All in memory, or with offloaded layers."""
        context, cores, offload = self.request.context, self.request.cores, self.request.offload
        if offload is None:
            return make_decoder(arch, source, kind, context=context, threads=cores, device=self.request.device)
        shape, resident = SHAPES[self.request.shape], self.request.leave
        if self.request.device != "cpu":
            return from_host(arch, source, kind, resident=resident, context=context, device=self.request.device)
        if offload.bytes_per_second is None:
            found = self.held.enter_context(from_disk(shape, source, kind, resident=resident, context=context))
        else:
            whole = make_decoder(arch, source, kind, context=context, threads=cores)
            found = offloaded(whole, resident, offload.carry(whole.layer_bytes[-1]))
            whole.close()
        found.set_threads(cores)
        return found

    def named(self, kind: ListedFormat) -> str:
        return kind if self.request.offload is None else f"{kind} offloaded"

    @property
    def absent(self) -> list[str]:
        """A sentence about transformers in four bits, where it cannot be measured beside ours."""
        if "transformers" not in self.request.against or find_spec(PLACED_BY) or not set(self.decoders) & set(FOUR_BIT):
            return []
        return [f"Left out: transformers nf4. It needs {PLACED_BY}, which is not installed."]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader of the table."""
        found = [*(llama_cpp.NOTES if self.engines else ()), *self.absent]
        found += [f"{kind}+head leaves the head in 16 bits, as transformers does." for kind in self.four_bits]
        if self.request.offload is None:
            return tuple(found)
        resident, layers = self.request.leave, SHAPES[self.request.shape].num_layers
        away = ", ".join(
            f"{size_words(sum(decoder.layer_bytes[resident:]))} in {kind}" for kind, decoder in self.decoders.items()
        )
        there = f"Offloaded: {resident} of {layers} layers are in memory"
        how = self.request.offload if self.request.device == "cpu" else "from main memory"
        return (*found, f"{there}; the others ({away}) come {how} in every forward.")

    def ours(self, kind: ListedFormat) -> Ours:
        same = [self.engines[kind]] if kind in self.engines else []
        peers = self.theirs[-1:] if kind in self.four_bits else self.theirs[:1]
        rivals = (*(one.name for one in same), *(one.name for one in peers))
        threads = self.torch_threads(kind)
        return Ours(
            self.named(kind), self.decoders[kind], exit_layer=self.request.leave, threads=threads, rivals=rivals
        )

    @property
    def four_bits(self) -> list[ListedFormat]:
        """Our 4-bit formats that transformers has too."""
        return [kind for kind in self.decoders if kind in FOUR_BIT and len(self.theirs) > 1]

    def as_theirs(self, kind: ListedFormat, source: StateDictSource) -> Ours:
        """Our decoder with the head in 16 bits, as transformers has it."""
        decoder, threads = self.decoders[kind], self.torch_threads(kind)
        assert isinstance(decoder, Decoder)
        kept = with_head_kept(decoder, source, kind)
        rivals = (self.theirs[-1].name,)
        return Ours(f"{kind}+head", kept, exit_layer=self.request.leave, threads=threads, rivals=rivals)

    def torch_threads(self, kind: ListedFormat) -> int:
        """One beside the CPU engine's own, as `resident.set_threads` has it."""
        return self.request.cores if isinstance(self.decoders[kind], Decoder) else 1

    def texts(self, watch: Watch) -> tuple[Written, ...]:
        """Each format's plain and speculative writing, then llama.cpp's plain."""
        request, all_of_them = self.request, list[Writer]()
        for kind, decoder in self.decoders.items():
            decoder.crop(0)
            stand = Stand(decoder, request.max_tokens, threads=self.torch_threads(kind))
            watch.say(f"{self.named(kind)}'s own text")
            all_of_them += writers(self.named(kind), stand, request.agree, request.leave, request.lengths)
        all_of_them += [Theirs(engine, max_tokens=request.max_tokens) for engine in self.engines.values()]
        texts = time_writers(all_of_them, request.repeats, watch.tell, watch.late)
        return tuple(
            Written(one.name, one.k, one.agreement, one.plain, one.peer, tuple(found))
            for one, found in zip(all_of_them, texts, strict=True)
        )


def check(request: ShapeRequest) -> dict[str, str]:
    """Refuses what can be refused before any weight is made; returns the peers' versions."""
    layers = SHAPES[request.shape].num_layers
    if not 1 <= request.leave < layers:
        raise UsageError(
            f"--exit-layer is {request.leave}; {request.shape} has {layers} layers.",
            hint=f"Try: --exit-layer {max(layers // 4, 1)}",
        )
    if request.offload is not None and request.device == "cpu" and (unfit := set(request.formats) & set(FOUR_BIT)):
        raise UsageError(f"Layers in {min(unfit)} do not come from disk.", hint="Try: --format int8,int4,bf16")
    if request.device != "cpu" and "int4" in request.formats:
        raise UsageError("int4 weights run on a CPU only.", hint="Use --device cpu, or --format nf4.")
    if "llama-cpp" not in request.against:
        return {}
    if request.device != "cpu":
        raise UsageError("llama.cpp is compared on a CPU.", hint="Add --device cpu.")
    if request.formats and not RIVALS.keys() & set(request.formats):
        raise UsageError("llama.cpp is compared with int8 and int4.", hint="Try: --format int8,int4")
    return {"llama-cpp-python": llama_cpp.require()}


def choose_formats(request: ShapeRequest) -> tuple[tuple[ListedFormat, ...], tuple[str, ...]]:
    """The formats asked for, or all that fit in memory together, with a sentence about those that do not."""
    if request.formats:
        return request.formats, ()
    weights = SHAPES[request.shape].num_weights
    left = free_memory(request.device) * USABLE - 2 * weights  # the tensors they are all made from
    kept: list[ListedFormat] = []
    short: list[ListedFormat] = []
    notes: list[str] = []
    for kind in USUAL[request.device]:
        needs = weights * BITS[kind] / 8
        if why := missing(kind, request.device):
            notes.append(f"Left out: {kind}. {why}")
        elif needs < left:
            kept.append(kind)
            left -= needs
        else:
            short.append(kind)
    if not kept:
        raise UsageError(f"There is not enough memory for {request.shape}.", hint="Try: --shape tiny")
    notes += [f"Left out, since memory is short: {', '.join(short)}."] if short else []
    return tuple(kept), tuple(notes)


def missing(kind: ListedFormat, device: str) -> str:
    """The reason why this machine cannot run this format, in one sentence; "" if it can."""
    row = find_format(kind, device)
    if row.is_packed:
        return "" if find_spec("numba") else "The CPU engine needs numba, which is not installed."
    if row.kernel == "bitsandbytes":
        try:
            library()
        except EngineError as fault:
            return fault.message
    return ""


def free_memory(device: str) -> int:
    if device != "cpu":
        return int(torch.cuda.mem_get_info()[0])
    return available_bytes()


def theirs(kinds: Sequence[ListedFormat]) -> list[str]:
    """The formats in which transformers is measured beside ours: its floats, and bitsandbytes' where we have them."""
    return ["", "nf4"] if set(kinds) & set(FOUR_BIT) and find_spec(PLACED_BY) else [""]


def is_packed(request: ShapeRequest, kinds: Sequence[ListedFormat]) -> bool:
    """Whether the CPU engine is among what is measured."""
    return request.device == "cpu" and any(find_format(kind).is_packed for kind in kinds)


def compile_engine(say: Callable[[str], None]) -> None:
    """The first time on a machine it takes half a minute: each step is reported once."""
    from localspec.engine.cpu import isa, program
    from localspec.engine.cpu.build import STEPS

    seen = set[int]()

    def tell(step: tuple[int, int] | None) -> None:
        done, total = step or (0, STEPS)
        if done not in seen:
            seen.add(done)
            say(f"the CPU engine, which is then kept: step {done} of {total}")

    drain(program.loading(isa.choose()), tell)


def kernels(request: ShapeRequest, kinds: Sequence[ListedFormat]) -> dict[str, str]:
    """The kernels that compute, beside torch's."""
    found: dict[str, str] = {}
    if is_packed(request, kinds):
        from localspec.engine.cpu import isa

        found["kernels"] = isa.choose().name
    if set(kinds) & set(FOUR_BIT) or (request.device != "cpu" and "int8" in kinds):
        found["bitsandbytes"] = library().__version__
    return found


def timed(method: Method, plan: Plan) -> Timed:
    return Timed(method.name, method.rivals, {work: method.num_bytes(work) for work in plan.works})


def watch(shape: str, tell: Tell) -> Watch:
    """The share that is done, and what is being made."""

    def say(what: str) -> None:
        tell(Loading(f"making {what}", 0, 1, "steps"))

    return Watch(shares(tell, shape), say)
