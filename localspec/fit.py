"""The plan decided before loading: weight format, context and device for a target, by what fits in memory.

Works from a snapshot's headers and config alone. Knows nothing about torch. Placement over several devices and
offload come with their own engine rooms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import psutil

from localspec.blueprint import Blueprint
from localspec.checkpoint import Snapshot
from localspec.engine.arch import Arch
from localspec.engine.cpu.formats import Format
from localspec.engine.generic_arch import GenericArch, read_any
from localspec.errors import DoesNotFit, UsageError
from localspec.formats import FOUR_BIT, INT8_THRESHOLD, stored_kind

PACKED: dict[str, Format] = {"int8": "int8", "int4": "int4"}  # formats of the CPU engine, best first
DENSE = ("fp32", "bf16")  # torch's, best first
ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "bf16": 2}
STORED_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
SMALLER = {"fp64": "--quant bf16", "fp32": "--quant bf16", "bf16": "--quant int8", "int8": "--quant int4"}
FOUR_BIT_BYTES = 9 / 16  # a weight of four bits with its share of a float32 scale, which the scale has at most
DEFAULT_CONTEXT = 8192  # tokens; a longer one is asked for, because its KV store is paid for at load
WORKSPACE_BYTES = 256 << 20  # activations of a prefill chunk, and rows on their way into blocks


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is loaded. `context` in tokens. `keep_head`: the head stays in 16 bits, whatever the format."""

    quant: str
    context: int
    device: str
    keep_head: bool = False
    int8_threshold: float = INT8_THRESHOLD

    @property
    def variant(self) -> str:
        """The format, with what is unusual about it: two of one name are equally fast."""
        head = "+head" if self.keep_head else ""
        threshold = f"+{self.int8_threshold:g}" if self.int8_threshold != INT8_THRESHOLD else ""
        return f"{self.quant}{head}{threshold}"

    @property
    def packed(self) -> Format | None:
        """The CPU engine's format, where that engine is what runs."""
        return None if self.device == "cuda" else PACKED.get(self.quant)


def make_plan(
    snapshot: Snapshot,
    *,
    quant: str,
    context: int | None,
    device: str,
    may_pack: bool = True,
    keep_head: bool = False,
    int8_threshold: float = INT8_THRESHOLD,
) -> Plan:
    """The best format that fits; DoesNotFit says how much is missing. A GPU's memory shows itself at loading.

    `may_pack`: the CPU engine runs here, so "auto" may choose its formats; they are faster than torch's.
    """
    check_format(quant, int8_threshold)
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"There is no device '{device}'.", hint="Use --device auto, cpu or cuda.")
    arch = read_any(snapshot.config)
    if generic := isinstance(arch, GenericArch):
        check_generic(arch, quant, device)
    chosen = choose_context(snapshot.name, arch.max_context, context)
    free = psutil.virtual_memory().available
    for name in choices(snapshot, quant, may_pack=may_pack and device != "cuda" and not generic):
        plan = Plan(name, chosen, device, keep_head, int8_threshold)
        needed = needed_bytes(snapshot, arch, name, chosen, keep_head=keep_head)
        if keep_head and plan.packed:
            raise UsageError(
                f"The CPU engine's {name} has its head in eight bits or four.",
                hint="Use --quant nf4, or leave out --keep-head.",
            )
        if device == "cuda" or needed <= free:
            return plan
    raise DoesNotFit(
        f"Not enough memory for {snapshot.name} in {name} (needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB free).",
        hint=f"Try {smaller(name, device, generic=generic)} or a smaller --ctx.",
    )


def check_generic(arch: GenericArch, quant: str, device: str) -> None:
    """What transformers' own models cannot be loaded in."""
    if quant == "int4" or (quant == "int8" and device != "cuda"):
        raise UsageError(
            f"The CPU engine, which {quant} is for, does not know models of type '{arch.family}'.",
            hint="Use --quant fp32, bf16 or nf4.",
        )
    if quant not in ("auto", *ELEMENT_BYTES) and not arch.can_rewind:
        raise UsageError(f"Models of type '{arch.family}' run in floats only.", hint="Use --quant fp32 or bf16.")


def check_format(quant: str, int8_threshold: float) -> None:
    if quant not in ("auto", *PACKED, *FOUR_BIT, *ELEMENT_BYTES):
        raise UsageError(
            f"There is no weight format '{quant}' in this version.",
            hint="Use --quant auto, int8, int4, nf4, fp4, fp32 or bf16.",
        )
    if not 0 <= int8_threshold < float("inf"):
        raise UsageError(
            f"--int8-threshold {int8_threshold} is not a number from 0 on.", hint=f"Use {INT8_THRESHOLD}, say."
        )


def choices(snapshot: Snapshot, quant: str, *, may_pack: bool) -> tuple[str, ...]:
    """The formats to try, best first. What is in four bits already has only its own."""
    if stored := stored_kind(snapshot.config):
        if quant not in ("auto", stored):
            raise UsageError(f"{snapshot.name} is stored in {stored} and cannot be {quant}.", hint="Use --quant auto.")
        return (stored,)
    if quant != "auto":
        return (quant,)
    return tuple(PACKED) if may_pack else DENSE


def smaller(quant: str, device: str, *, generic: bool = False) -> str:
    """What to try instead. `generic`: of a model that transformers runs."""
    if generic and quant == "bf16":
        return "a smaller model"
    if device == "cuda" and quant == "int8":
        return "--quant nf4"
    return SMALLER.get(quant, "a smaller model")


def fit_word(snapshot: Snapshot, free: int) -> str:
    """Whether it fits into so many bytes, and how well, as "auto" would load it on the CPU."""
    arch = read_any(snapshot.config)
    context = choose_context(snapshot.name, arch.max_context, None)
    best, *others = choices(snapshot, "auto", may_pack=isinstance(arch, Arch))
    if needed_bytes(snapshot, arch, best, context) <= free:
        return "fits"
    words = [f"fits in {name}" for name in others if needed_bytes(snapshot, arch, name, context) <= free]
    return words[0] if words else "too large"


def choose_context(name: str, longest: int, asked: int | None) -> int:
    if asked is None:
        return min(longest, DEFAULT_CONTEXT)
    if not 1 < asked <= longest:
        raise UsageError(f"--ctx {asked:,} is outside what {name} was made for.", hint=f"Use --ctx 2 to {longest}.")
    return asked


def needed_bytes(
    snapshot: Snapshot, arch: Arch | GenericArch, quant: str, context: int, *, keep_head: bool = False
) -> int:
    """Weights in this format, the KV store and workspace. int8 as on a CPU."""
    if isinstance(arch, GenericArch):
        kv_bytes = arch.kv_elements(context) * ELEMENT_BYTES.get(quant, 2)
        return generic_bytes(snapshot, arch, quant, keep_head=keep_head) + kv_bytes + WORKSPACE_BYTES
    if quant in PACKED:
        blueprint = Blueprint(arch, PACKED[quant])
        return blueprint.num_bytes + blueprint.kv_bytes(context) + WORKSPACE_BYTES
    kv_bytes = arch.kv_elements(context) * arch.kv_element_bytes(context)
    if quant in FOUR_BIT:
        return four_bit_bytes(arch, keep_head=keep_head) + kv_bytes + WORKSPACE_BYTES
    return elements(snapshot) * ELEMENT_BYTES[quant] + kv_bytes + WORKSPACE_BYTES


def generic_bytes(snapshot: Snapshot, arch: GenericArch, quant: str, *, keep_head: bool) -> int:
    """Of weights as transformers holds them. Before they are quantised they are all in 16 bits, which takes memory
    unless they are stored so."""
    if quant in ELEMENT_BYTES:
        return elements(snapshot) * ELEMENT_BYTES[quant]
    size = 0 if all(info.dtype == "BF16" for info in snapshot.tensors.values()) else 2 * elements(snapshot)
    for name, info in snapshot.tensors.items():
        words = arch.vocab_size in info.shape  # an embedding stays as it is, and is the head's weight too perhaps
        stays = words or len(info.shape) != 2 or "embed" in name or "wpe" in name
        narrow = not stays or (words and not keep_head)
        size += int((2 * stays + FOUR_BIT_BYTES * narrow) * math.prod(info.shape))
    return size


def elements(snapshot: Snapshot) -> int:
    """Numbers that are stored."""
    return sum(info.num_bytes // STORED_BYTES.get(info.dtype, 4) for info in snapshot.tensors.values())


def four_bit_bytes(arch: Arch, *, keep_head: bool) -> int:
    """The embedding in 16 bits, and the head too if it is kept so; a tied one is then the embedding itself."""
    table = arch.vocab_size * arch.hidden_size
    head = (0 if arch.tied_head else 2 * table) if keep_head else FOUR_BIT_BYTES * table
    return int(2 * table + head + FOUR_BIT_BYTES * arch.num_layers * arch.layer_elements)
