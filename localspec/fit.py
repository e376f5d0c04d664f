"""The plan decided before loading: weight format, context and device for a target, by what fits in memory.

Works from a snapshot's headers and config alone. Knows nothing about torch. Placement over several devices and
offload come with their own engine rooms.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from localspec.blueprint import Blueprint
from localspec.checkpoint import Snapshot
from localspec.engine.arch import Arch, read_arch
from localspec.engine.cpu.formats import Format
from localspec.errors import DoesNotFit, UsageError

PACKED: dict[str, Format] = {"int8": "int8", "int4": "int4"}  # formats of the CPU engine, best first
DENSE = ("fp32", "bf16")  # torch's, best first
ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "bf16": 2}
STORED_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
SMALLER = {"fp64": "--quant bf16", "fp32": "--quant bf16", "bf16": "--quant int8", "int8": "--quant int4"}
DEFAULT_CONTEXT = 8192  # tokens; a longer one is asked for, because its KV store is paid for at load
WORKSPACE_BYTES = 256 << 20  # activations of a prefill chunk, and rows on their way into blocks


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is loaded. `context` in tokens."""

    quant: str
    context: int
    device: str


def make_plan(snapshot: Snapshot, *, quant: str, context: int | None, device: str, may_pack: bool = True) -> Plan:
    """The best format that fits; DoesNotFit says how much is missing. A GPU's memory shows itself at loading.

    `may_pack`: the CPU engine runs here, so "auto" may choose its formats; they are faster than torch's.
    """
    if quant not in ("auto", *PACKED, *ELEMENT_BYTES):
        raise UsageError(
            f"There is no weight format '{quant}' in this version.", hint="Use --quant auto, int8, int4, fp32 or bf16."
        )
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"There is no device '{device}'.", hint="Use --device auto, cpu or cuda.")
    arch = read_arch(snapshot.config)
    chosen = choose_context(snapshot.name, arch.max_context, context)
    free = psutil.virtual_memory().available
    by_memory = tuple(PACKED) if may_pack and device != "cuda" else DENSE
    formats = by_memory if quant == "auto" else (quant,)
    for name in formats:
        if device == "cuda" or needed_bytes(snapshot, arch, name, chosen) <= free:
            return Plan(name, chosen, device)
    needed = needed_bytes(snapshot, arch, formats[-1], chosen)
    sizes = f"needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB free"
    smaller = SMALLER.get(formats[-1], "a smaller model")
    raise DoesNotFit(
        f"Not enough memory for {snapshot.name} in {formats[-1]} ({sizes}).", hint=f"Try {smaller} or a smaller --ctx."
    )


def fit_word(snapshot: Snapshot, free: int) -> str:
    """Whether it fits into so many bytes, and how well, as "auto" would load it on the CPU."""
    arch = read_arch(snapshot.config)
    context = choose_context(snapshot.name, arch.max_context, None)
    best, *smaller = PACKED
    if needed_bytes(snapshot, arch, best, context) <= free:
        return "fits"
    words = [f"fits in {name}" for name in smaller if needed_bytes(snapshot, arch, name, context) <= free]
    return words[0] if words else "too large"


def choose_context(name: str, longest: int, asked: int | None) -> int:
    if asked is None:
        return min(longest, DEFAULT_CONTEXT)
    if not 1 < asked <= longest:
        raise UsageError(f"--ctx {asked:,} is outside what {name} was made for.", hint=f"Use --ctx 2 to {longest}.")
    return asked


def needed_bytes(snapshot: Snapshot, arch: Arch, quant: str, context: int) -> int:
    """Weights in this format, the KV store and workspace."""
    if quant in PACKED:
        blueprint = Blueprint(arch, PACKED[quant])
        return blueprint.num_bytes + blueprint.kv_bytes(context) + WORKSPACE_BYTES
    elements = sum(info.num_bytes // STORED_BYTES.get(info.dtype, 4) for info in snapshot.tensors.values())
    kv_bytes = arch.kv_elements(context) * arch.kv_element_bytes(context)
    return elements * ELEMENT_BYTES[quant] + kv_bytes + WORKSPACE_BYTES
