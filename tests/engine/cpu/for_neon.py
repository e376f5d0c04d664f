"""Compiles the whole engine for a processor with NEON and says how often it uses what it should: word, count.

A process of its own, as build.py: the kind of processor is settled when `lang` is imported. numba reads the functions
for this machine, so the one instruction of theirs that only x86 has is exchanged.
"""

from __future__ import annotations

import llvmlite.binding as llvm

from localspec.engine.cpu import isa

NEON = next(kind for kind in isa.KINDS if kind.name == "neon")
TRIPLE = "aarch64-linux-gnu"
WORDS = ("sdot", "tbl", "fmla", "fcvtl", "yield", "llvm.")


def main() -> None:
    isa.choose = lambda: NEON
    from localspec.engine.cpu import build

    text = str(build.translated()).replace("void @llvm.x86.sse2.pause()", "void @llvm.aarch64.hint(i32 1)")
    text = text.replace("declare void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)")
    lines = [line for line in text.splitlines() if not line.startswith(("target triple", "target datalayout"))]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=NEON.cpu, features=NEON.features, opt=3)
    module = llvm.parse_assembly("\n".join(lines))
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    assert build.optimised(module, machine).startswith(b"\x7fELF")
    assembly = str(machine.emit_assembly(module))
    for word in WORDS:
        print("count", word, assembly.count(word))


if __name__ == "__main__":
    main()
