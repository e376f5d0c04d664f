"""The compiled engine in this process: found in the cache on disk, else built, and called without the interpreter lock.

A file of code is used only when its checksum is right and its name says that it was built from these sources, by these
versions, for this kind of processor. Knows nothing about models.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding as llvm

from localspec import paths
from localspec.engine.cpu.build import FORWARD, PACK, machine
from localspec.engine.cpu.isa import FORCE, Isa
from localspec.errors import EngineError, UsageError

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 5)
CHECKSUM_BYTES = 32


class Program:
    """Machine code in memory, with two doors."""

    def __init__(self, code: bytes, isa: Isa) -> None:
        self.isa = isa
        module = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(module, machine(isa))
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        self._enter, self._pack = (ENTRY(self._engine.get_function_address(name)) for name in (FORWARD, PACK))

    def __call__(self, what: int, sync: int, job: int, thread: int = 0, seen: int = 0) -> int:
        """See `forward.enter`."""
        return through(self._enter, what, sync, job, thread, seen)

    def pack(self, bits: int, source: int, blocks: int, groups: int, out: int) -> bool:
        """See `packer.pack`."""
        return through(self._pack, bits, source, blocks, groups, out) != 0


def through(door: Callable[..., int], *numbers: int) -> int:
    result, fault = ctypes.c_int64(), ctypes.c_void_p()
    if door(ctypes.byref(result), ctypes.byref(fault), *numbers) != 0:
        raise EngineError("The CPU engine failed inside its compiled code.")
    return result.value


def fingerprint(isa: Isa) -> str:
    """What a file of code was built from."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    for word in (version("numba"), version("llvmlite"), sys.version, isa.name, isa.cpu, isa.features):
        digest.update(word.encode())
    return digest.hexdigest()[:24]


def read(file: Path) -> bytes | None:
    """The code in a file whose checksum is right."""
    try:
        found = file.read_bytes()
    except OSError:
        return None
    checksum, code = found[:CHECKSUM_BYTES], found[CHECKSUM_BYTES:]
    return code if code and hashlib.sha256(code).digest() == checksum else None


def build(isa: Isa) -> bytes:
    """The code, compiled in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "code"
        command = [sys.executable, "-m", "localspec.engine.cpu.build", str(out)]
        done = subprocess.run(command, env={**os.environ, FORCE: isa.name}, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EngineError(f"The CPU engine cannot be compiled here ({done.stderr.strip()[-200:]}).")
        return out.read_bytes()


@cache
def load(isa: Isa) -> Program:
    """The engine for a kind of processor; the first time it is compiled."""
    file = paths.cache_dir() / "engine" / f"{isa.name}-{fingerprint(isa)}.bin"
    code = read(file)
    if code is None:
        code = build(isa)
        with suppress(OSError, UsageError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(hashlib.sha256(code).digest() + code)
    return Program(code, isa)
