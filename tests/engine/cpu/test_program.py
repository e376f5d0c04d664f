"""The compiled engine's cache on disk: rebuilt when it is broken or stale, bypassed when it cannot be written.

And the choice of instructions: one sentence when the environment asks for what does not run here.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import pytest
import torch

from localspec.core import paths
from localspec.core.drain import drain
from localspec.core.errors import EngineError, UsageError
from localspec.engine.cpu import isa, program
from localspec.engine.cpu.build import ENGINE
from localspec.engine.cpu.build import STEPS as STEPS_OF
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.model import PackedModel
from tests.support.packed_models import ISAS, packed_decoder, random_ids

BEST, STEPS = ISAS[0], STEPS_OF[ENGINE]
posix = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for a compiler is a shell script")


@pytest.fixture(scope="module")
def code() -> bytes:
    """The engine as it stands in this user's cache, compiled if need be."""
    program.load(BEST)
    found = program.read(file_of())
    return found if found is not None else drain(program.building(BEST))


@pytest.fixture
def builds(code: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache, nothing loaded, and a compiler that is counted and costs nothing."""
    built: list[str] = []

    def building(kind: isa.Isa, _: str) -> Generator[tuple[int, int], None, bytes]:
        built.append(kind.name)
        yield 0, STEPS
        return code

    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(program, "LOADED", {})
    monkeypatch.setattr(program, "building", building)
    return built


def file_of() -> Path:
    return paths.compiled_dir() / f"{BEST.name}-{program.fingerprint(BEST)}.bin"


def load() -> program.Program:
    """Anew, whatever this process has loaded before."""
    program.LOADED.clear()
    return program.load(BEST)


def computes(loaded: program.Program) -> None:
    weights = packed_decoder()
    models = (PackedModel(weights.arch, weights.weights, 64, code) for code in (loaded, weights.model.program))
    first, second = (PackedDecoder(model) for model in models)
    assert torch.equal(first.forward(random_ids(9)), second.forward(random_ids(9)))


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "a checksum of nothing": lambda _: hashlib.sha256(b"").digest(),
    "cut in the checksum": lambda whole: whole[:20],
    "cut in the code": lambda whole: whole[: len(whole) // 2],
    "a byte short": lambda whole: whole[:-1],
    "a byte more": lambda whole: whole + b"\0",
    "a bit turned": lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    "a bit turned in the checksum": lambda whole: bytes([whole[0] ^ 1]) + whole[1:],
    "all zeros": lambda whole: bytes(len(whole)),
}


@pytest.mark.heavy
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_file_is_built_again(broken: str, builds: list[str], code: bytes) -> None:
    load()
    file_of().write_bytes(BROKEN[broken](file_of().read_bytes()))
    assert program.read(file_of()) is None
    computes(load())
    assert builds == [BEST.name] * 2
    assert program.read(file_of()) == code


@pytest.mark.heavy
def test_a_folder_where_the_file_should_be_is_bypassed(builds: list[str]) -> None:
    file_of().mkdir(parents=True)
    computes(load())
    assert builds == [BEST.name]


@pytest.mark.heavy
def test_a_file_where_the_folder_should_be_is_bypassed(builds: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "engine").write_text("in the way")
    computes(load())
    assert builds == [BEST.name]


@pytest.mark.heavy
def test_a_cache_that_cannot_be_made_is_bypassed(
    builds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a read-only home: a root user may write anywhere, so a file stands where the folder's parent should."""
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "taken" / "cache"))
    computes(load())
    assert builds == [BEST.name]


@pytest.mark.heavy
def test_a_full_disk_is_bypassed_and_the_half_written_file_not_trusted(
    builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes

    def half(self: Path, content: bytes) -> int:
        write(self, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", half)
        computes(load())
    computes(load())
    assert builds == [BEST.name] * 2


# --- what a file was built from


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The engine's sources, copied where they can be changed."""
    copy = tmp_path / "cpu"
    shutil.copytree(Path(program.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(program, "__file__", str(copy / "program.py"))
    return copy


def test_the_fingerprint_changes_with_every_source(sources: Path) -> None:
    seen = {program.fingerprint(BEST)}
    assert program.fingerprint(BEST) in seen
    files = sorted(sources.glob("*.py"))
    assert {"kernels.py", "forward.py", "formats.py", "layout.py", "emit.py", "lang.py"} <= {f.name for f in files}
    for file in files:
        file.write_bytes(file.read_bytes() + b"\n")
        seen.add(program.fingerprint(BEST))
    assert len(seen) == len(files) + 1


def test_the_fingerprint_changes_with_versions_and_the_kind_of_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {program.fingerprint(kind) for kind in isa.KINDS}
    seen |= {program.fingerprint(kind) for kind in (replace(BEST, cpu="other"), replace(BEST, features="other"))}
    for package in ("numba", "llvmlite"):
        with monkeypatch.context() as other:
            other.setattr(program, "version", lambda name, package=package: "0" if name == package else "1")
            seen.add(program.fingerprint(BEST))
    with monkeypatch.context() as other:
        other.setattr(sys, "version", "3.99")
        seen.add(program.fingerprint(BEST))
    assert len(seen) == len(isa.KINDS) + 5


@pytest.mark.heavy
def test_a_file_built_from_other_sources_is_not_used(builds: list[str], sources: Path) -> None:
    load()
    stale = file_of()
    (sources / "kernels.py").write_text("# changed")
    load()
    assert builds == [BEST.name] * 2
    assert file_of() != stale


# --- which instructions


@pytest.mark.parametrize("name", ["sse9", "neon" if isa.on_x86() else "avx2", " ", "avx2,plain"])
def test_a_kind_that_does_not_run_here_is_refused_in_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(isa.FORCE, name)
    with pytest.raises(UsageError) as refused:
        isa.choose()
    assert f"'{name}'" in refused.value.message
    assert "\n" not in str(refused.value)
    assert refused.value.message.endswith(".")
    assert all(kind.name in refused.value.hint for kind in ISAS)


@pytest.mark.parametrize("kind", ISAS, ids=lambda kind: kind.name)
def test_a_kind_that_runs_here_can_be_forced(kind: isa.Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    for spelled in (kind.name, kind.name.upper()):
        monkeypatch.setenv(isa.FORCE, spelled)
        assert isa.choose() == kind


def test_the_best_kind_is_chosen_and_plain_loops_run_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(isa.FORCE, raising=False)
    assert isa.choose() == ISAS[0]
    assert ISAS[-1].name == "plain"
    order = [kind.name for kind in isa.KINDS]
    assert [kind.name for kind in ISAS] == sorted((kind.name for kind in ISAS), key=order.index)


FEATURES: dict[str, tuple[str, set[str]]] = {
    "none": ("x86_64", set()),
    "avx2": ("x86_64", {*isa.X86_V3}),
    "avx512f": ("x86_64", {*isa.X86_V4}),
    "avx-vnni": ("AMD64", {*isa.X86_V3, "avxvnni"}),
    "another family": ("riscv64", {*isa.X86_V4, "neon", "dotprod"}),
    "neon": ("aarch64", {"neon", "dotprod"}),
    "neon alone": ("arm64", {"neon"}),
}
CHOSEN = {
    "none": "plain",
    "avx2": "avx2",
    "avx512f": "avx2",
    "avx-vnni": "avx-vnni",
    "another family": "plain",
    "neon": "neon",
    "neon alone": "plain",
}


@pytest.mark.parametrize("features", FEATURES)
def test_a_processor_gets_the_best_kind_it_has_all_instructions_of(
    features: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, has = FEATURES[features]
    monkeypatch.delenv(isa.FORCE, raising=False)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(has, True) | {"sse9": False})
    assert isa.choose().name == CHOSEN[features]


@pytest.mark.parametrize("hidden", sorted(isa.X86_V4 | {"avx512vnni"}))
def test_one_instruction_that_a_virtual_machine_hides_means_the_next_kind(
    hidden: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM may use all of a level's: a kernel with one that is not there would end the program."""
    has = (isa.X86_V4 | {"avx512vnni"}) - {hidden}
    monkeypatch.delenv(isa.FORCE, raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(has, True))
    assert isa.choose().name == ("plain" if hidden in isa.X86_V3 else "avx2")


def test_a_processor_that_llvm_does_not_know_gets_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> dict[str, bool]:
        raise RuntimeError("unknown")

    monkeypatch.delenv(isa.FORCE, raising=False)
    monkeypatch.setattr(llvm, "get_host_cpu_features", unknown)
    assert isa.choose().name == "plain"


# --- the compiler, a process of its own


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """A script in Python's place; its third argument is the file to write."""
    script = folder / "python"
    script.write_text("\n".join(("#!/bin/sh", *lines)))
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))


@posix
def test_what_the_compiler_writes_is_the_code_and_its_lines_are_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "for i in 1 2 3 4 5 6; do echo line; done", 'printf "$LOCALSPEC_CPU_ISA" > "$3"')
    steps: list[tuple[int, int]] = []
    assert drain(program.building(BEST), steps.append) == BEST.name.encode()
    assert steps[0] == (0, STEPS)
    assert steps == sorted(steps)
    assert {most for _, most in steps} == {STEPS}
    assert steps[-1][0] == STEPS


FAILURES: dict[str, tuple[tuple[str, ...], str]] = {
    "a traceback": (("printf 'Traceback:\\n  File x\\nOSError: it broke.\\n' >&2", "exit 1"), "it broke"),
    "nothing said": (("exit 3",), "3"),
    "nothing written": (("exit 0",), "No such file"),
    "killed": (("kill -9 $$",), "9"),
}


@posix
@pytest.mark.parametrize("failure", FAILURES)
def test_a_compiler_that_fails_is_one_sentence(failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, said = FAILURES[failure]
    stand_in(tmp_path, monkeypatch, *lines)
    with pytest.raises(EngineError) as refused:
        drain(program.building(BEST))
    assert said in refused.value.message
    assert "\n" not in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_a_compiler_that_is_not_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    with pytest.raises(EngineError) as refused:
        drain(program.building(BEST))
    assert "\n" not in str(refused.value)


@posix
def test_a_compiler_that_nobody_waits_for_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid", "echo line", "exec sleep 600")
    building = program.building(BEST)
    while next(building)[0] == 0:
        pass
    building.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
