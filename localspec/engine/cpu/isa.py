"""Chooses the instruction set of the kernels from the processor's features, or by LOCALSPEC_CPU_ISA.

Every kind computes the same integers; float rounding differs only where a kind has no fused multiply-add.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import llvmlite.binding as llvm

from localspec.core.errors import UsageError

FORCE = "LOCALSPEC_CPU_ISA"


@dataclass(frozen=True, slots=True)
class Isa:
    """An instruction set. `cpu` and `features` go to LLVM; `needs` are the features that the processor must
    have; `rows` is the widest kernel worth building, an even number, by the number of vector registers."""

    name: str
    needs: frozenset[str]
    cpu: str
    features: str
    rows: int
    fused: bool = True  # has fused multiply-add


# All that LLVM may use for a level of x86-64: a virtual machine can hide any of them.
X86_V2 = frozenset({"cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2"})
X86_V3 = X86_V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
X86_V4 = X86_V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
KINDS = (
    Isa("avx512-vnni", X86_V4 | {"avx512vnni"}, "x86-64-v4", "+avx512vnni", 8),
    Isa("avx-vnni", X86_V3 | {"avxvnni"}, "x86-64-v3", "+avxvnni", 2),
    Isa("avx2", X86_V3, "x86-64-v3", "", 2),
    Isa("neon", frozenset({"neon", "dotprod"}), "generic", "+neon,+dotprod", 4),
    Isa("plain", frozenset(), "", "", 2, fused=False),
)


def on_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def on_arm() -> bool:
    return platform.machine().lower() in ("arm64", "aarch64")


def features() -> frozenset[str]:
    """The processor's features, in LLVM's names."""
    try:
        return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)
    except RuntimeError:  # LLVM does not know this processor
        return frozenset()


def available() -> tuple[Isa, ...]:
    """The kinds that this processor can run, best first."""
    found = features()
    native = {"plain", *(("avx512-vnni", "avx-vnni", "avx2") if on_x86() else ("neon",) if on_arm() else ())}
    return tuple(kind for kind in KINDS if kind.name in native and kind.needs <= found)


def choose() -> Isa:
    """The best kind this processor has, or the one that the environment forces."""
    here, forced = available(), os.environ.get(FORCE, "").lower()
    if not forced:
        return here[0]
    for kind in here:
        if kind.name == forced:
            return kind
    names = ", ".join(kind.name for kind in here)
    known = any(kind.name == forced for kind in KINDS)
    reason = "which this processor cannot run" if known else "which is not a known instruction set"
    raise UsageError(f"{FORCE} is '{forced}', {reason}.", hint=f"Use one of {names}.")
