"""The plan decided before loading: weight format, context and device for a target, by what fits in memory.

Works from a snapshot's headers and config alone. Knows nothing about torch. Placement over several devices, offload
and quantised formats come with their own engine rooms.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from localspec.checkpoint import Snapshot
from localspec.engine.arch import Arch, read_arch
from localspec.errors import DoesNotFit, UsageError

FORMATS = ("fp32", "bf16")
ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "bf16": 2}
STORED_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
DEFAULT_CONTEXT = 8192  # tokens; a longer one is asked for, because its KV store is paid for at load
WORKSPACE_BYTES = 256 << 20  # activations of a prefill chunk, with room to spare


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is loaded. `context` in tokens."""

    quant: str
    context: int
    device: str


def make_plan(snapshot: Snapshot, *, quant: str, context: int | None, device: str) -> Plan:
    """The best format that fits; DoesNotFit says how much is missing. A GPU's memory shows itself at loading."""
    if quant not in ("auto", *ELEMENT_BYTES):
        raise UsageError(
            f"There is no weight format '{quant}' in this version.", hint="Use --quant auto, fp32 or bf16."
        )
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"There is no device '{device}'.", hint="Use --device auto, cpu or cuda.")
    arch = read_arch(snapshot.config)
    chosen = choose_context(snapshot.name, arch.max_context, context)
    free = psutil.virtual_memory().available
    formats = FORMATS if quant == "auto" else (quant,)
    for name in formats:
        if device == "cuda" or needed_bytes(snapshot, arch, name, chosen) <= free:
            return Plan(name, chosen, device)
    needed = needed_bytes(snapshot, arch, formats[-1], chosen)
    sizes = f"needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB free"
    raise DoesNotFit(
        f"Not enough memory for {snapshot.name} in {formats[-1]} ({sizes}).",
        hint="Try --quant bf16 or a smaller --ctx." if quant == "fp32" else "Try a smaller --ctx or a smaller model.",
    )


def choose_context(name: str, longest: int, asked: int | None) -> int:
    if asked is None:
        return min(longest, DEFAULT_CONTEXT)
    if not 1 < asked <= longest:
        raise UsageError(f"--ctx {asked:,} is outside what {name} was made for.", hint=f"Use --ctx 2 to {longest}.")
    return asked


def needed_bytes(snapshot: Snapshot, arch: Arch, quant: str, context: int) -> int:
    """Weights in this format, the KV store and workspace."""
    elements = sum(info.num_bytes // STORED_BYTES.get(info.dtype, 4) for info in snapshot.tensors.values())
    kv_bytes = arch.kv_elements(context) * arch.kv_element_bytes(context)
    return elements * ELEMENT_BYTES[quant] + kv_bytes + WORKSPACE_BYTES
