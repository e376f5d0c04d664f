"""`localspec doctor`: says what there is, names what is wrong with the next command, and never fails itself."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from localspec.cli.doctor import backend, examine, packages
from localspec.cli.doctor.findings import bitsandbytes_findings, driver_findings, package_findings
from localspec.cli.doctor.records import Bitsandbytes, DoctorReport, Package, Torch
from localspec.cli.doctor.text import WIDTH
from localspec.core import paths, processor
from localspec.core.disk import CACHE_SPARE_BYTES
from localspec.core.nvidia import Driver
from localspec.core.version import __version__
from localspec.hub import login
from localspec.loading.weight_cache import check_free_space
from tests.conftest import Program

ASKED = backend.probing
SECRET, OTHER_SECRET = "hf_sesame", "hf_mellon"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing slow, no GPU, no login, and a cache of its own."""
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "LOCALSPEC_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("localspec.engine.bandwidth.read_bandwidth", lambda _, device: {"cpu": 30.0}.get(device, 900.0))
    monkeypatch.setattr(backend, "probing", lambda: nullcontext(lambda: Bitsandbytes("CPU", "libbitsandbytes_cpu.so")))
    monkeypatch.setattr("localspec.core.nvidia.look", lambda: None)
    monkeypatch.setattr(processor, "usable_threads", processor.physical_cores)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def messages(report: DoctorReport) -> str:
    return "\n".join(f"{each.level}: {each.message} {each.hint}" for each in report.findings)


def keys(value: Any) -> Any:
    """The names in JSON, or of a record, at every depth."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    return [keys(inner) for inner in value] if isinstance(value, list) else None


def test_json_is_one_line_with_every_key_of_the_report(localspec: Program):
    code, out, err = localspec("doctor", "--json")
    found = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    report = msgspec.json.decode(out, type=DoctorReport)
    assert tuple(found) == DoctorReport.__struct_fields__
    assert keys(found) == keys(json.loads(msgspec.json.encode(report)))
    assert found["processor"]["read_gbs"] == 30.0
    assert {folder["purpose"] for folder in found["folders"]} == {"config", "cache", "state", "data", "models"}


def test_the_text_says_what_the_report_says_within_80_columns(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processor, "name", lambda: "Word " * 40)
    code, out, err = localspec("doctor")
    assert (code, err) == (0, "")
    for said in (__version__, f"torch {torch.__version__}", "30 GB/s", "libbitsandbytes_cpu.so", "No problems found."):
        assert said in out
    assert all(len(line) <= WIDTH or str(paths.folder("cache").parent) in line for line in out.splitlines())


def test_versions_are_those_of_the_metadata():
    found = {package.name: package.version for package in packages.look()}
    assert {"torch", "transformers", "safetensors", "textual", "bitsandbytes", "llama-cpp-python"} <= set(found)
    for name, said in found.items():
        try:
            assert said == version(name)
        except PackageNotFoundError:
            assert said is None, name


@pytest.mark.parametrize(("name", "exit_code"), [("bitsandbytes", 0), ("torch", 1)])
def test_a_package_that_is_missing_is_named_with_how_to_get_it(
    name: str, exit_code: int, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    installed = packages.installed
    monkeypatch.setattr(packages, "requirements", lambda: {"bitsandbytes": ">=0.50", "torch": ">=2.11"})
    monkeypatch.setattr(packages, "installed", lambda each: None if each == name else installed(each))
    code, out, err = localspec("doctor")
    assert (code, err) == (exit_code, "")
    assert f"{name} is not installed." in out
    assert f"pip install '{name}>=" in out


def test_a_version_outside_the_range_is_named():
    (old,) = package_findings(Package("transformers", "5.0.0", ">=5.3", True))
    assert old.level == "warning"
    assert "transformers 5.0.0" in old.message
    assert "pip install 'transformers>=5.3'" in old.hint
    assert [*package_findings(Package("torch", "2.13.0+cpu", ">=2.11,<2.14", True))] == []
    assert [*package_findings(Package("llama-cpp-python", None, "", False))] == []
    assert len([*package_findings(Package("torch", "mine", ">=2.11", True))]) == 1


@pytest.mark.parametrize("purpose", paths.PURPOSES)
def test_a_folder_that_cannot_be_made_is_named_and_nothing_fails(
    purpose: str, localspec: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    variable = paths.variable(purpose)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(variable, str(tmp_path / "file" / "inside"))
    code, out, err = localspec("doctor")
    assert (code, err) == (0, "")
    assert f"warning: The {purpose} folder" in out
    assert f"Set {variable} to another folder." in out
    assert "not writable" in out


def test_a_cache_on_a_read_only_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Simulated as Linux answers: a root user may write whatever the modes say."""
    (tmp_path / "cache").mkdir()
    real = tempfile.TemporaryFile

    def answer(*, dir: Path) -> Any:
        if dir == tmp_path / "cache":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", answer)
    report = examine()
    assert [folder.purpose for folder in report.folders if folder.fault] == ["cache"]
    assert "Read-only file system" in messages(report)
    assert not report.is_broken


def test_looking_makes_no_folder(tmp_path: Path):
    before = sorted(tmp_path.rglob("*"))
    report = examine()
    assert sorted(tmp_path.rglob("*")) == before
    assert not any(folder.exists or folder.fault for folder in report.folders)


def test_what_is_kept_is_counted(tmp_path: Path):
    for name, size in (("cache/packed/a.safetensors", 7), ("cache/packed/b.part", 2), ("cache/engine/x.bin", 3)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    paths.history_file().write_bytes(bytes(5))
    paths.history_file().with_name("history.db-wal").write_bytes(bytes(6))
    found = {each.kind: (each.files, each.num_bytes) for each in examine().kept}
    assert found == {"packed and quantised models": (2, 9), "compiled code": (1, 3), "chats": (2, 11)}


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5 << 20))
    assert "The disk of the cache folder has only 5 MB free." in messages(examine())


@pytest.mark.parametrize(("less", "is_named"), [(1, True), (0, False)])
def test_a_disk_is_full_for_doctor_where_it_is_for_the_weight_cache(
    less: int, is_named: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=CACHE_SPARE_BYTES - less))
    with nullcontext() if not is_named else pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        check_free_space(tmp_path, 0)
    assert ("The disk of the cache folder" in messages(examine())) == is_named


def test_the_instruction_set_is_the_one_the_engine_takes(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_CPU_ISA", "plain")
    report = examine()
    assert report.processor.instructions == "plain"
    assert "plain" in report.processor.choices
    monkeypatch.setenv("LOCALSPEC_CPU_ISA", "sse9")
    code, out, err = localspec("doctor")
    assert (code, err) == (1, "")
    assert "error: LOCALSPEC_CPU_ISA is 'sse9', which is not a known instruction set." in out


def test_the_families_of_instructions_are_told_apart(monkeypatch: pytest.MonkeyPatch):
    has = {"avx2", "avx512vnni", "avxvnniint8", "amx-tile", "amx-int8"}
    monkeypatch.setattr("localspec.engine.cpu.isa.features", lambda: frozenset(has))
    found = examine().processor
    assert found.vnni == ("avx512vnni", "avxvnniint8")
    assert found.amx == ("amx-int8", "amx-tile")


def test_settings_that_cannot_be_read_are_an_error(localspec: Program):
    paths.config_dir().mkdir(parents=True)
    paths.config_file().write_text("[sampling]\ntemprature = 1\n")
    code, out, _ = localspec("doctor")
    assert code == 1
    assert "there is no setting 'sampling.temprature'" in " ".join(out.split())


def test_fewer_cores_than_there_are_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processor, "physical_cores", lambda: 8)
    monkeypatch.setattr(processor, "usable_threads", lambda: 2)
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert "Only 2 of 8 cores" in messages(examine())
    assert asked == [2, torch.get_num_threads()]


def card(index: int) -> SimpleNamespace:
    if index == 2:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy\nCompile with TORCH_USE_CUDA_DSA")
    return SimpleNamespace(name=f"Fake {index}", major=9, minor=index)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three: one free, one full, one that another program has for itself."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", card)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: ([70, 2][index] << 30, 80 << 30))


@pytest.mark.usefixtures("cuda")
def test_gpus_are_listed_with_memory_and_bandwidth(localspec: Program):
    found = {device.name: device for device in examine().torch.devices}
    assert list(found) == ["cuda:0", "cuda:1", "cuda:2"]
    assert (found["cuda:0"].title, found["cuda:0"].compute_capability) == ("Fake 0", "9.0")
    assert (found["cuda:0"].free_bytes, found["cuda:0"].read_gbs) == (70 << 30, 900.0)
    assert found["cuda:2"].read_gbs is None
    code, out, err = localspec("doctor")
    said = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "cuda:0 Fake 0 · 85.9 GB, 75.2 GB free · reads 900 GB/s" in said
    assert "warning: cuda:1 has only 2.1 of 85.9 GB free" in said
    assert "warning: cuda:2 cannot be used (CUDA error: all CUDA-capable devices are busy)." in said
    assert "Compile with" not in said


@pytest.mark.usefixtures("cuda")
def test_a_gpu_that_is_too_full_to_measure_has_no_figure(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> float:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("localspec.engine.bandwidth.read_bandwidth", full)
    report = examine()
    assert [device.read_gbs for device in report.torch.devices] == [None, None, None]
    assert report.processor.read_gbs is None


def driver(cuda: str = "12.4", visible: str | None = None) -> Driver:
    return Driver("550.1", cuda, ("H200",), visible)


@pytest.mark.parametrize(
    ("there", "build", "said"),
    [
        (driver(), Torch(), "built without CUDA. Try: pip install --force-reinstall torch --index-url"),
        (driver("11.4"), Torch("12.8"), "too old for this torch (12.8)"),
        (driver("12.4"), Torch("12.8"), "torch cannot use the GPU (H200)"),
        (driver(visible=""), Torch("12.8"), "env -u CUDA_VISIBLE_DEVICES localspec doctor"),
    ],
)
def test_a_gpu_that_torch_does_not_use_is_named_with_the_reason(there: Driver, build: Torch, said: str):
    (found,) = driver_findings(there, build)
    assert said in f"{found.message} {found.hint}"


def test_a_torch_that_cannot_be_imported_is_one_sentence(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, out, err = localspec("doctor")
    assert (code, err) == (1, "")
    assert "error: torch is installed but cannot be imported" in out


def test_the_token_is_never_shown_and_its_source_always(
    localspec: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(f"{SECRET}\n")
    assert "logged in" in localspec("doctor")[1]
    monkeypatch.setenv("HF_TOKEN", OTHER_SECRET)
    for words in ((), ("--json",)):
        code, out, err = localspec("doctor", *words)
        assert code == 0
        assert "HF_TOKEN overrides" in out
        assert SECRET not in out + err
        assert OTHER_SECRET not in out + err


def test_what_leaves_the_machine_is_said_with_where_it_goes(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    def said() -> str:
        (_, words) = localspec("doctor")[1].split("leaves the machine: ")
        hub, server = " ".join(words.partition("\n\n")[0].split()).rsplit("; ", 1)
        assert server == "a chat with a server, to that server"
        return hub

    assert said() == "nothing to the hub, since it is off"
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    names = "names of repositories and files, and words searched for, to "
    assert said() == f"{names}https://huggingface.co"
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert said() == f"{names}https://mirror.example; the token to it alone"


def test_the_tokens_file_is_where_the_hubs_own_programs_have_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLACE", "/p")
    monkeypatch.setenv("HF_HOME", "$PLACE/hf")
    assert login.token_file() == Path("/p/hf/token")
    monkeypatch.setenv("HF_TOKEN_PATH", "$PLACE/mine")
    assert login.token_file() == Path("/p/mine")


def test_what_strangers_wrote_comes_through_clean(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processor, "name", lambda: "evil\x1b[2J\u202e")
    monkeypatch.setenv("TERM", "xterm\x1b]0;x\x07")
    for words in ((), ("--json",)):
        out = localspec("doctor", *words)[1]
        assert "\x1b" not in out
        assert "\u202e" not in out


PLANTED = """
try:
    import kernels
except ImportError:
    pass
class ErrorHandlerMockBNBNativeLibrary:
    def __init__(self, said):
        self.error_msg = said
class Sound:
    class _lib:
        _name = "/somewhere/libbitsandbytes_cuda128.so"
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Bitsandbytes]:
    """What is found out about a bitsandbytes with this code, asked as the real one is."""
    folder = tmp_path / "planted"
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(backend, "installed", lambda _: "0.50")

    def ask(code: str) -> Bitsandbytes:
        for name, text in (("bitsandbytes", "import kernels"), ("kernels", f"open({str(tmp_path / 'canary')!r}, 'w')")):
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").write_text(text)
        (folder / "bitsandbytes" / "cextension.py").write_text(PLANTED + code)
        with ASKED() as answer:
            found = answer()
        assert found is not None
        assert not (tmp_path / "canary").exists(), "it would have fetched code from the hub"
        return found

    return ask


def test_the_compiled_code_of_bitsandbytes_is_named(planted: Callable[[str], Bitsandbytes]):
    found = planted("print('Hello!')\nlib, BNB_BACKEND = Sound(), 'CUDA'")
    assert found == Bitsandbytes("CUDA", "libbitsandbytes_cuda128.so")
    assert [*bitsandbytes_findings(found)] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("lib, BNB_BACKEND = ErrorHandlerMockBNBNativeLibrary('libcudart: gone'), 'CUDA'", "for CUDA (libcudart"),
        ("raise RuntimeError('no backend\\x1b[2J')", "compiled library (RuntimeError: no backend"),
        ("import os; os.abort()", "its process ended with -"),
    ],
)
def test_a_bitsandbytes_without_a_backend_is_one_sentence(code: str, said: str, planted: Callable[[str], Bitsandbytes]):
    (found,) = bitsandbytes_findings(planted(code))
    assert said in found.message
    assert "\n" not in found.message
    assert "\x1b" not in found.message
    assert found.hint.startswith("Reinstall it: pip install")


def test_a_bitsandbytes_that_hangs_is_left_alone(
    planted: Callable[[str], Bitsandbytes], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backend, "PATIENCE_SECONDS", 0.1)
    assert "no answer" in planted("import time; time.sleep(600)").fault


@pytest.mark.parametrize(("answer", "tells"), [(b"\x1b[?0u\x1b[?62;22c", True), (b"\x1b[?62;22c", False)])
@pytest.mark.skipif(not hasattr(os, "login_tty"), reason="no pseudo-terminals here")
def test_the_terminal_is_asked_whether_it_tells_shift_enter(answer: bytes, tells: bool):
    code = "import os; os.login_tty(0); from localspec.cli.doctor import terminal; print(terminal.look())"
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT) as child:
        os.close(theirs)
        heard = os.read(ours, 100)
        assert heard.endswith(b"\x1b[c")
        os.write(ours, answer)
        shown = os.read(ours, 1000)
        assert f"tells_shift_enter={tells}".encode() in shown
        child.wait()
    os.close(ours)
