"""Compiles the engine, or look-up's search, for one instruction set and writes the machine code to a file, in a
process of its own.

python -m localspec.engine.cpu.build FILE PART. numba's memory is freed with this process; it prints a line for each
step.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any  # Any: numba and llvmlite are untyped

os.environ["NUMBA_OPT"] = "0"  # everything is optimised once, below, and for the kind of processor that was chosen
FORWARD, PACK, SCAN = "localspec_enter", "localspec_pack", "localspec_scan"
ENGINE, SEARCH = "engine", "search"  # the parts
STEPS = {ENGINE: 4, SEARCH: 3}  # lines it prints


def machine(isa: Any) -> Any:
    """LLVM's target machine for an instruction set."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=isa.cpu, features=isa.features, opt=3, reloc="pic", codemodel="jitdefault")


def translated() -> Any:
    """The transformer and the packer as LLVM IR from numba, without the wrappers for Python."""
    import llvmlite.binding as llvm

    from localspec.engine.cpu import forward, kernels, packer
    from localspec.engine.cpu.lang import ISA

    library = llvm.parse_assembly(str(kernels.library(ISA)))
    for function in library.functions:
        llvm.add_symbol(function.name, 1)  # numba wants to see the names; it never runs them
    for function, symbol in ((forward.enter, FORWARD), (packer.pack, PACK)):
        library.link_in(read(function, symbol))
    return exporting(library, FORWARD, PACK)


def translated_search() -> Any:
    """Look-up's search as LLVM IR."""
    from localspec.engine.cpu import scan

    return exporting(read(scan.enter, SCAN), SCAN)


def exporting(module: Any, *symbols: str) -> Any:
    """The module with no other functions to be seen."""
    for function in module.functions:
        if not function.is_declaration and function.name not in symbols:
            function.linkage = "internal"
    return module


def read(function: Any, symbol: str) -> Any:
    """A compiled function of five numbers, with all that it calls, as a module that exports it as `symbol`."""
    import llvmlite.binding as llvm

    from localspec.engine.cpu.lang import INT

    signature = (INT,) * 5
    function.compile(signature)
    compiled = function.overloads[signature]
    module = llvm.parse_assembly(str(compiled.library._final_module))
    entry = module.get_function(compiled.fndesc.llvm_func_name)
    entry.name, entry.linkage = symbol, "external"
    print(f"{symbol} read", flush=True)
    return module


def optimised(module: Any, target: Any) -> bytes:
    import llvmlite.binding as llvm

    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(target, options)
    builder.getModulePassManager().run(module, builder)
    print("optimised", flush=True)
    return bytes(target.emit_object(module))


def main() -> None:
    from localspec.engine.cpu.lang import ISA

    part = translated() if sys.argv[2] == ENGINE else translated_search()
    Path(sys.argv[1]).write_bytes(optimised(part, machine(ISA)))
    print("written", flush=True)


if __name__ == "__main__":
    main()
