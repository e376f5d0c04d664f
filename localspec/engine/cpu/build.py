"""Compiles the engine for one kind of processor and writes the machine code to a file: a process of its own.

python -m localspec.engine.cpu.build FILE. numba and its memory end with this process; a line a step tells how far it is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any  # Any: numba and llvmlite are untyped

os.environ["NUMBA_OPT"] = "0"  # everything is optimised once, below, and for the kind of processor that was chosen
SYMBOL = "localspec_enter"
STEPS = 4


def machine(isa: Any) -> Any:
    """LLVM's target machine for a kind of processor."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=isa.cpu, features=isa.features, opt=3, reloc="pic", codemodel="jitdefault")


def translated() -> Any:
    """The transformer in LLVM's language, as numba reads it, without what serves Python."""
    import llvmlite.binding as llvm

    from localspec.engine.cpu import forward, kernels
    from localspec.engine.cpu.lang import INT, ISA

    library = llvm.parse_assembly(str(kernels.library(ISA)))
    for function in library.functions:
        llvm.add_symbol(function.name, 1)  # numba wants to see the names; it never runs them
    signature = (INT,) * 5
    forward.enter.compile(signature)
    compiled = forward.enter.overloads[signature]
    module = llvm.parse_assembly(str(compiled.library._final_module))
    module.link_in(library)
    for function in module.functions:
        if not function.is_declaration:
            function.linkage = "internal"
    entry = module.get_function(compiled.fndesc.llvm_func_name)
    entry.name, entry.linkage = SYMBOL, "external"
    return module


def optimised(module: Any, target: Any) -> bytes:
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(target.emit_object(module))


def main() -> None:
    from localspec.engine.cpu.lang import ISA

    module = translated()
    print("translated", flush=True)
    Path(sys.argv[1]).write_bytes(optimised(module, machine(ISA)))


if __name__ == "__main__":
    main()
