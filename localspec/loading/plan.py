"""The plan decided before loading: weight format, context, device, and which layers are resident, by what fits.

Works from a snapshot's headers and config alone. Knows nothing about torch: how much a GPU has free it is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.main_memory import available_bytes
from localspec.core.requests import LoadRequest
from localspec.core.sizes import size_words
from localspec.core.weight_formats import FOUR_BIT, GPTQ, INT8_THRESHOLD, stored_kind
from localspec.engine.cpu.formats import Format
from localspec.engine.generic_arch import GenericArch, is_generic, read_any
from localspec.loading.footprint import ELEMENT_BYTES, PACKED, Footprint, footprint
from localspec.models.checkpoint import Snapshot

DENSE = ("fp32", "bf16")  # torch's on a CPU, best first
ON_GPU = ("bf16", "int8", "nf4")  # best first: a step takes as long as it takes to read the weights
SMALLER = {"fp64": "--quant bf16", "fp32": "--quant bf16", "bf16": "--quant int8", "int8": "--quant int4"}
DEFAULT_CONTEXT = 8192  # tokens; a longer one is asked for, because its KV store is paid for at load


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is loaded. `context` in tokens. `keep_head`: the head stays in 16 bits, whatever the format.
    `save_quantized`: what bitsandbytes makes of the weights is kept on disk.

    `resident`: how many layers stay in memory while the others come and go; None for all of them.
    """

    quant: str
    context: int
    device: str
    keep_head: bool = False
    int8_threshold: float = INT8_THRESHOLD
    resident: int | None = None
    save_quantized: bool = False

    @property
    def variant(self) -> str:
        """The format, with what is unusual about it: two of one name are equally fast."""
        head = "+head" if self.keep_head else ""
        threshold = f"+{self.int8_threshold:g}" if self.int8_threshold != INT8_THRESHOLD else ""
        resident = "" if self.resident is None else f"+resident{self.resident}"
        return f"{self.quant}{head}{threshold}{resident}"

    @property
    def packed(self) -> Format | None:
        """The CPU engine's format, where that engine is what runs."""
        return None if self.device == "cuda" else PACKED.get(self.quant)

    @property
    def place(self) -> str:
        """Where the layers are that come and go."""
        return "main memory" if self.device == "cuda" else "disk"

    def __str__(self) -> str:
        return self.quant if self.resident is None else f"{self.quant} with layers from {self.place}"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a plan, and what it must keep to.

    `may_pack`: the CPU engine runs here, so "auto" may choose its formats; they are faster than torch's. `limit`: bytes
    of memory. `gpu_bytes`: free on the GPU; None where nobody has asked. `offload`: layers come and go, even all that
    may where there is no limit. The first `least` may not: a drafter runs them over and over. `drafter`: a model that
    takes its memory beside the target, or on a GPU that the target leaves free, in `draft_quant`.
    """

    quant: str = "auto"
    context: int | None = None
    device: str = "auto"
    keep_head: bool = False
    int8_threshold: float = INT8_THRESHOLD
    may_pack: bool = True
    offload: bool = False
    limit: int | None = None
    least: int = 1
    drafter: Snapshot | None = None
    save_quantized: bool = False
    draft_quant: str = "auto"
    gpu_bytes: int | None = None

    @classmethod
    def of(cls, request: LoadRequest, device: str, *, limit: int | None, least: int, drafter: Snapshot | None) -> Self:
        """What was asked for, on the device that it means here."""
        return cls(
            quant=request.quant,
            context=request.ctx,
            device=device,
            keep_head=request.keep_head,
            int8_threshold=request.int8_threshold,
            offload=request.device == "offload",
            limit=limit,
            least=least,
            drafter=drafter,
            save_quantized=request.save_quantized,
            draft_quant=request.draft_quant,
        )

    @property
    def smallest(self) -> bool:
        """As little memory as there can be."""
        return self.offload and self.limit is None


def make_plan(snapshot: Snapshot, wish: Wish, *, held_bytes: int = 0) -> Plan:
    """The best one that fits."""
    return next(ladder(snapshot, wish, held_bytes=held_bytes))


def ladder(snapshot: Snapshot, wish: Wish, *, held_bytes: int = 0) -> Iterator[Plan]:
    """Every plan that fits, best first; where there is none, DoesNotFit says how much is missing. What is held would be
    given back first."""
    check(wish)
    arch = read_any(snapshot.config)
    choices(snapshot, wish)  # what is stored in a format has no other, which is said first
    if isinstance(arch, GenericArch):
        check_generic(arch, wish)
    context = choose_context(snapshot.name, arch.max_context, wish.context)
    wish, free = replace(wish, context=context), available_bytes() + held_bytes
    plans = rungs(snapshot, wish, free)
    first = next(plans, None)
    if first is None:
        raise too_large(snapshot, wish, free)
    yield first
    yield from plans


def rungs(snapshot: Snapshot, wish: Wish, free: int) -> Iterator[Plan]:
    """Those that fit, with so many bytes free in main memory."""
    room = room_of(wish, free)
    for quant in () if wish.smallest else choices(snapshot, wish):
        if room is None or needed(snapshot, wish, quant).whole <= room:
            yield plan_of(wish, quant)
    for quant in offloadable(snapshot, wish):
        needs = needed(snapshot, wish, quant)
        most = wish.least if room is None else needs.resident(room)
        resident = wish.least if wish.smallest else min(most, needs.layers - 1)
        if wish.least <= most and not short_of_main_memory(wish, needs, resident, free):
            yield plan_of(wish, quant, resident=resident)


def room_of(wish: Wish, free: int) -> int | None:
    """Bytes for what is computed with: a GPU has its own. None where they show themselves at loading."""
    known = wish.gpu_bytes if wish.device == "cuda" else free
    return min((size for size in (known, wish.limit) if size is not None), default=None)


def short_of_main_memory(wish: Wish, needs: Footprint, resident: int, free: int) -> bool:
    """Whether layers that come to a GPU have too little room where they come from."""
    return wish.device == "cuda" and (needs.layers - resident) * needs.layer > free


def plan_of(wish: Wish, quant: str, *, resident: int | None = None) -> Plan:
    plan = Plan(
        quant,
        wish.context or DEFAULT_CONTEXT,
        wish.device,
        wish.keep_head,
        wish.int8_threshold,
        resident,
        wish.save_quantized,
    )
    if plan.packed and wish.keep_head:
        raise UsageError(
            f"The CPU engine's {quant} has its head in eight bits or four.",
            hint="Use --quant nf4, or leave out --keep-head.",
        )
    return plan


def check(wish: Wish) -> None:
    if wish.quant not in ("auto", *PACKED, *FOUR_BIT, *ELEMENT_BYTES):
        raise UsageError(
            f"There is no weight format '{wish.quant}' in this version.",
            hint="Use --quant auto, int8, int4, nf4, fp4, fp32 or bf16.",
        )
    if not 0 <= wish.int8_threshold < float("inf"):
        raise UsageError(
            f"--int8-threshold {wish.int8_threshold} is not a number from 0 on.", hint=f"Use {INT8_THRESHOLD}, say."
        )
    if wish.device not in ("auto", "cpu", "cuda"):
        raise UsageError(
            f"There is no device '{wish.device[:20]}': localspec computes on CPUs and CUDA's GPUs.",
            hint="Use --device auto, cpu, cuda, cuda:1 or offload.",
        )


def check_generic(arch: GenericArch, wish: Wish) -> None:
    """What transformers' own models cannot be loaded in."""
    if wish.offload:
        raise UsageError(
            f"Models of type '{arch.family}' cannot be offloaded: transformers runs them whole.",
            hint="Leave out --device offload.",
        )
    if wish.quant == "int4" or (wish.quant == "int8" and wish.device != "cuda"):
        raise UsageError(
            f"The CPU engine, which {wish.quant} is for, does not know models of type '{arch.family}'.",
            hint="Use --quant fp32, bf16 or nf4.",
        )
    if wish.quant not in ("auto", *ELEMENT_BYTES) and not arch.can_rewind:
        raise UsageError(f"Models of type '{arch.family}' run in floats only.", hint="Use --quant fp32 or bf16.")


def choices(snapshot: Snapshot, wish: Wish) -> tuple[str, ...]:
    """The formats to try with all layers resident, best first. What is in four bits already has only its own."""
    if stored := stored_kind(snapshot.config):
        if wish.quant not in ("auto", stored):
            raise UsageError(
                f"{snapshot.name} is stored in {stored} and cannot be {wish.quant}.", hint="Use --quant auto."
            )
        return (stored,)
    if wish.quant != "auto":
        return (wish.quant,)
    if packs(snapshot, wish):
        return tuple(PACKED)
    if wish.device == "cuda":
        return ON_GPU if read_any(snapshot.config).can_rewind else ON_GPU[:1]  # states stay in floats
    return DENSE


def offloadable(snapshot: Snapshot, wish: Wish) -> tuple[str, ...]:
    """The formats to try with layers that come and go: when that was asked for, or "auto" finds no other way out."""
    if is_generic(snapshot.config) or (not wish.offload and wish.quant != "auto"):
        return ()
    named = stored_kind(snapshot.config) or wish.quant
    if named == "auto":
        if wish.device != "cuda" and not packs(snapshot, wish):
            return ("bf16",)
        four_bit = "nf4" if wish.device == "cuda" else "int4"
        # Unasked, four bits: only half of int8 must be brought for every step. bf16 needs no packed copy on the disk.
        return ("int8", four_bit, "bf16") if wish.offload else (four_bit, "bf16")
    if can_offload(named, wish.device):
        return (named,)
    if wish.offload:
        ways = "Leave out --device offload." if named != wish.quant else "Use --quant bf16, int8 or int4."
        where = f"to {'a GPU from main memory' if wish.device == 'cuda' else 'a CPU from disk'}"
        raise UsageError(f"Layers in {named} do not come {where}.", hint=ways)
    return ()


def can_offload(quant: str, device: str) -> bool:
    """To a CPU floats, and what its engine keeps on disk in its own order; to a GPU whatever it computes with."""
    return quant in ELEMENT_BYTES or quant in ((*FOUR_BIT, "int8") if device == "cuda" else PACKED)


def packs(snapshot: Snapshot, wish: Wish) -> bool:
    """Whether "auto" may choose what the CPU engine computes."""
    return wish.may_pack and wish.device != "cuda" and not is_generic(snapshot.config)


def needed(snapshot: Snapshot, wish: Wish, quant: str) -> Footprint:
    """In this format, with its drafter; the larger workspace is for both."""
    context = wish.context or DEFAULT_CONTEXT
    own = footprint(snapshot, quant, context, keep_head=wish.keep_head, device=wish.device)
    if wish.drafter is None:
        return own
    plan = draft_plan(wish.drafter, wish, quant)
    if plan.device != wish.device:
        return own
    drafter = footprint(wish.drafter, plan.quant, plan.context, keep_head=plan.keep_head, device=plan.device)
    return replace(own, drafter=drafter.whole - min(own.workspace, drafter.workspace))


def draft_plan(drafter: Snapshot, wish: Wish, quant: str) -> Plan:
    """Of a model that drafts for a target in this format: whole on the GPU where that has room for it, else in the
    memory that the target is in."""
    context = min(wish.context or DEFAULT_CONTEXT, read_any(drafter.config).max_context)
    wish = replace(wish, context=context, drafter=None, offload=False, least=1, limit=None)
    if wish.device != "cuda" and wish.gpu_bytes is not None and (found := on_gpu(drafter, wish)):
        return found
    theirs = draft_format(drafter, quant, wish.device, wish.draft_quant)
    return Plan(theirs, context, wish.device, wish.keep_head, wish.int8_threshold, None, wish.save_quantized)


def on_gpu(drafter: Snapshot, wish: Wish) -> Plan | None:
    """Whole, in the format that was asked for, or the best that fits."""
    if wish.draft_quant == "int4":
        return None  # the CPU engine's alone
    if wish.draft_quant != "auto":
        own_format(drafter, Wish(quant=wish.draft_quant, device="cuda"))
    plan = next(rungs(drafter, replace(wish, quant=wish.draft_quant, device="cuda"), free=0), None)
    return plan if plan and plan.resident is None else None


def draft_format(drafter: Snapshot, quant: str, device: str, asked: str = "auto") -> str:
    """The one asked for; else the target's, where the draft is not stored in another and can have it."""
    if asked != "auto":
        return own_format(drafter, Wish(quant=asked, device=device))
    if quant == GPTQ or (quant in PACKED and device != "cuda" and is_generic(drafter.config)):
        return choices(drafter, Wish(device=device))[0]
    return stored_kind(drafter.config) or quant


def own_format(drafter: Snapshot, wish: Wish) -> str:
    """The format that was wished of a draft, where it can have it on this device."""
    try:
        check(wish)
        arch, found = read_any(drafter.config), choices(drafter, wish)[0]
        if isinstance(arch, GenericArch):
            check_generic(arch, wish)
        if wish.quant == "int4" and wish.device == "cuda":
            raise UsageError("int4 weights run on a CPU only.", hint="Use --quant nf4.")
        return found
    except UsageError as fault:
        raise UsageError(fault.message, hint=fault.hint.replace("--quant", "--draft-quant")) from fault


def too_large(snapshot: Snapshot, wish: Wish, free: int) -> DoesNotFit:
    """Even the smallest plan."""
    room, on_gpu = room_of(wish, free), wish.device == "cuda"
    limited, where = room == wish.limit, " on the GPU" if on_gpu else ""
    has = f"--max-memory is {size_words(room or 0)}" if limited else f"{size_words(room or 0)} free{where}"
    if offloaded := offloadable(snapshot, wish):
        quant = min(offloaded, key=lambda name: needed(snapshot, wish, name).offloaded(wish.least))
        needs = needed(snapshot, wish, quant)
        if room is None or needs.offloaded(wish.least) <= room:
            return short_beside_gpu(snapshot, quant, needs, free)
        most = size_words(needs.offloaded(wish.least))
        return DoesNotFit(
            f"Not enough memory for {snapshot.name} in {quant}, even with {needs.layers - wish.least} of its"
            f" {needs.layers} layers elsewhere (needs {most}, {has}).",
            hint=f"Try {'a larger --max-memory' if limited else elsewhere(on_gpu)} or a smaller --ctx.",
        )
    quant = choices(snapshot, wish)[-1]
    most = size_words(needed(snapshot, wish, quant).whole)
    message = f"Not enough memory for {snapshot.name} in {quant} (needs {most}, {has})."
    ways = [way for way, other in others(wish).items() if fits(snapshot, other, free)]
    ways = ways or ["a larger --max-memory" if limited else elsewhere(on_gpu)]
    return DoesNotFit(message, hint=f"Try {', '.join(ways)} or a smaller --ctx.")


def others(wish: Wish) -> dict[str, Wish]:
    """What else could be asked for."""
    return {"--quant auto": replace(wish, quant="auto"), "--device offload": replace(wish, offload=True)}


def fits(snapshot: Snapshot, wish: Wish, free: int) -> bool:
    try:
        return next(rungs(snapshot, wish, free), None) is not None
    except UsageError:  # not of this model, or not in this format
        return False


def short_beside_gpu(snapshot: Snapshot, quant: str, needs: Footprint, free: int) -> DoesNotFit:
    """Neither the GPU's memory nor the computer's holds it."""
    most = size_words(needs.layers * needs.layer)
    return DoesNotFit(
        f"Not enough main memory for the layers of {snapshot.name} in {quant} (up to {most}, {size_words(free)} free).",
        hint=f"Try {'' if quant in FOUR_BIT else '--quant nf4, or '}--device cpu --quant int4.",
    )


def elsewhere(on_gpu: bool) -> str:
    return "--device cpu, a smaller model" if on_gpu else "a smaller model"


def ways_out(plan: Plan, *, generic: bool) -> str:
    """What to try where a plan does not fit. `generic`: of a model that transformers runs."""
    ways = [smaller(plan.quant, plan.device, generic=generic)]
    if plan.resident is None and not generic and can_offload(plan.quant, plan.device):
        ways.append("--device offload")
    if plan.device == "cuda":
        ways.append("--device cpu")
    return f"Try {', '.join(ways)} or a smaller --ctx."


def smaller(quant: str, device: str, *, generic: bool = False) -> str:
    """What to try instead. `generic`: of a model that transformers runs."""
    if generic and quant == "bf16":
        return "a smaller model"
    if device == "cuda" and quant == "int8":
        return "--quant nf4"
    return SMALLER.get(quant, "a smaller model")


def fit_word(snapshot: Snapshot, free: int) -> str:
    """Whether it fits into so many bytes, and how well, as "auto" would load it on the CPU."""
    context = choose_context(snapshot.name, read_any(snapshot.config).max_context, None)
    wish = Wish(device="cpu", context=context)
    plan = next(rungs(snapshot, wish, free), None)
    if plan is None:
        return "too large"
    if plan.resident is not None:
        return "from disk"
    return "fits" if plan.quant == choices(snapshot, wish)[0] else f"fits in {plan.quant}"


def choose_context(name: str, longest: int, asked: int | None) -> int:
    if asked is None:
        return min(longest, DEFAULT_CONTEXT)
    if not 1 < asked <= longest:
        raise UsageError(f"--ctx {asked:,} is outside what {name} was made for.", hint=f"Use --ctx 2 to {longest}.")
    return asked
