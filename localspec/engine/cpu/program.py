"""The compiled engine: loaded from the cache on disk, else built, and called without the interpreter lock.

A cached file is used only if its checksum is right and its name says that it was built from these sources, by these
versions, for this instruction set. Knows nothing about models.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue

import llvmlite.binding as llvm

from localspec.core import paths
from localspec.core.build_lock import making
from localspec.core.drain import drain
from localspec.core.errors import EngineError, UsageError
from localspec.core.plain_file import plain
from localspec.core.weight_formats import FLOATS, either
from localspec.core.whole_file import write_whole
from localspec.engine.cpu.build import ENGINE, FORWARD, PACK, SCAN, SEARCH, STEPS, machine
from localspec.engine.cpu.isa import FORCE, Isa

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 5)
CHECKSUM_BYTES = 32
BEAT_SECONDS = 0.5  # between two signs of life while compiling
ProgramStep = tuple[int, int] | None
LOADED: dict[str, Program] = {}


class Code:
    """Machine code in memory, which it holds as long as it lives."""

    def __init__(self, code: bytes, isa: Isa) -> None:
        module = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(module, machine(isa))
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def entry(self, name: str) -> Callable[..., int]:
        return ENTRY(self._engine.get_function_address(name))


class LookupSearch:
    """Look-up's compiled search."""

    def __init__(self, code: bytes, isa: Isa) -> None:
        self._code = Code(code, isa)
        self._entry = self._code.entry(SCAN)

    def __call__(self, text: int, stop: int, ids: int, length: int, out: int) -> int:
        """Calls `scan.enter`."""
        return call(self._entry, text, stop, ids, length, out)


class Program:
    """The engine's machine code, with two entry points."""

    def __init__(self, code: bytes, isa: Isa, *, kept: bool = True) -> None:
        """Loads machine code. `kept`: it is cached on disk for the next start."""
        self.isa, self.kept = isa, kept
        self._code = Code(code, isa)
        self._enter, self._pack = self._code.entry(FORWARD), self._code.entry(PACK)

    def __call__(self, what: int, sync: int, job: int, thread: int = 0, seen: int = 0) -> int:
        """Calls `forward.enter`."""
        return call(self._enter, what, sync, job, thread, seen)

    def pack(self, bits: int, source: int, blocks: int, groups: int, out: int) -> bool:
        """Calls `packer.pack`."""
        return call(self._pack, bits, source, blocks, groups, out) != 0


def call(entry: Callable[..., int], *numbers: int) -> int:
    result, fault = ctypes.c_int64(), ctypes.c_void_p()
    if entry(ctypes.byref(result), ctypes.byref(fault), *numbers) != 0:
        raise EngineError("The CPU engine failed inside its compiled code.")
    return result.value


def fingerprint(isa: Isa) -> str:
    """A hash of the sources, versions and instruction set that code is built from."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    for word in (version("numba"), version("llvmlite"), sys.version, sys.platform, platform.machine()):
        digest.update(word.encode())
    for word in (isa.name, isa.cpu, isa.features):
        digest.update(word.encode())
    return digest.hexdigest()[:24]


def load(isa: Isa) -> Program:
    """The engine for an instruction set; compiled the first time."""
    return drain(loading(isa))


def loading(isa: Isa) -> Generator[ProgramStep, None, Program]:
    """Loads the engine. Yields (steps done, steps in all) now and then while it is compiled; None while another
    process compiles it."""
    name = fingerprint(isa)
    if name not in LOADED:
        file = cache_file(f"{isa.name}-{name}.bin")
        code = read(file)
        kept = code is not None
        if code is None:
            code, kept = yield from made(file, isa)
        LOADED[name] = Program(code, isa, kept=kept)
    return LOADED[name]


@cache
def load_search(isa: Isa) -> LookupSearch:
    """Look-up's search for an instruction set; compiled the first time, which takes seconds."""
    file = cache_file(f"search-{isa.name}-{fingerprint(isa)}.bin")
    return LookupSearch(read(file) or drain(made(file, isa, SEARCH))[0], isa)


def made(file: Path | None, isa: Isa, part: str = ENGINE) -> Generator[ProgramStep, None, tuple[bytes, bool]]:
    """The code, and whether it is cached: compiled here, or by a process that began before this one."""
    with making(file) as one:
        yield from one.wait()
        if (found := read(file)) is not None:
            return found, True
        code = yield from one.alive(building(isa, part))
        return code, write(file, code)


def cache_file(name: str) -> Path | None:
    """The cached file of this name; None where there is no folder for it."""
    try:
        return paths.compiled_dir() / name
    except UsageError:
        return None


def read(file: Path | None) -> bytes | None:
    """The code in a cached file; None where there is none or its checksum is wrong."""
    try:
        found = plain(file).read_bytes() if file else b""
    except OSError:
        return None
    checksum, code = found[:CHECKSUM_BYTES], found[CHECKSUM_BYTES:]
    return code if code and hashlib.sha256(code).digest() == checksum else None


def write(file: Path | None, code: bytes) -> bool:
    """Caches the code; False where that fails."""
    if file is None:
        return False
    with suppress(OSError):  # a full or read-only disk: the next start compiles again
        write_whole(file, hashlib.sha256(code).digest() + code)
        return True
    return False


def building(isa: Isa, part: str = ENGINE) -> Generator[ProgramStep, None, bytes]:
    """Compiles a part's code in a process of its own."""
    try:
        with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
            return (yield from building_in(Path(folder), isa, part))
    except OSError as fault:
        raise not_here(fault.strerror or str(fault)) from fault


def building_in(folder: Path, isa: Isa, part: str) -> Generator[ProgramStep, None, bytes]:
    out, errors = folder / "code", folder / "errors"
    command = [sys.executable, "-m", "localspec.engine.cpu.build", str(out), part]
    with errors.open("wb") as stderr:
        child = subprocess.Popen(command, env=environment(isa), stdout=subprocess.PIPE, stderr=stderr)
    try:
        yield from following(child, STEPS[part])
    finally:
        child.kill()  # it still runs if the caller stopped waiting
        child.wait()
    if child.returncode == 0:
        return out.read_bytes()
    lines = errors.read_text(errors="replace").strip().splitlines()
    raise not_here(lines[-1] if lines else f"its compiler ended with {child.returncode}")


def following(child: subprocess.Popen[bytes], most: int) -> Iterator[tuple[int, int]]:
    """Yields (steps done, `most`) after each line of the child, and now and then without one."""
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=listen, args=(child, lines), daemon=True).start()
    steps, line = 0, b"begun"
    while line:
        yield min(steps, most), most
        with suppress(Empty):
            line = lines.get(timeout=BEAT_SECONDS)
            steps += 1
    child.wait()


def listen(child: subprocess.Popen[bytes], lines: SimpleQueue[bytes]) -> None:
    """Puts every line of the child into the queue, then an empty one."""
    assert child.stdout is not None
    with child.stdout as out:
        for line in out:
            lines.put(line)
    lines.put(b"")


def not_here(reason: str) -> EngineError:
    sentence = " ".join(reason.split()).rstrip(".")[-200:]
    return EngineError(f"The CPU engine cannot be compiled here ({sentence}).", hint=f"Use --quant {either(*FLOATS)}.")


def environment(isa: Isa) -> dict[str, str]:
    """The child's environment: it builds for this instruction set and imports this package."""
    package = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(part for part in (package, os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, FORCE: isa.name, "PYTHONPATH": path}
