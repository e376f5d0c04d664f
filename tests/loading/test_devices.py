"""Which device computes, what a GPU has room for, and what is said where one is missing, too old, taken or full."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from localspec.__main__ import main
from localspec.core import nvidia
from localspec.core.errors import DoesNotFit, EngineError, UsageError
from localspec.core.requests import WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine.arch import read_arch
from localspec.engine.linear import EightBitLinears
from localspec.engine.memory import is_out_of_memory
from localspec.loading import weight_cache
from localspec.loading.devices import gpu_bytes, gpu_faults, pick_device
from localspec.loading.footprint import footprint
from localspec.loading.plan import ladder, make_plan
from localspec.loading.plan_request import PlanRequest
from localspec.loading.sources import Files, WeightReader
from localspec.loading.torch import assemble_in
from localspec.models.checkpoint import open_snapshot
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.usefixtures("verified")

LAYERS = 6
OLD = nvidia.Driver("470.1", "11.4", ("Fake 3090",), None)
BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be reported later."
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "look", lambda: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models") / "six"
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": LAYERS}
    return save_snapshot(where, gpt2_like(), template=CHATML, eos="<|im_end|>", **sizes)


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`localspec run FOLDER hi …`: exit code, stdout and stderr."""
    monkeypatch.setattr("localspec.cli.main.read_prompt", lambda prompt: prompt)

    def command(*arguments: str) -> tuple[int, str, str]:
        always = ["--draft", "off", "--threads", "1", "--max-tokens", "2", "--temperature", "0"]
        monkeypatch.setattr(sys, "argv", ["localspec", "run", str(folder), "hi", *always, *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return command


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two of them; which were chosen."""
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


def full(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 8 << 30))


def main_memory(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=available, total=1 << 40))


# --- which one


def test_a_gpu_is_chosen_by_its_number(gpus: list[int]):
    assert [pick_device(asked) for asked in ("auto", "cuda", "cuda:1", "cuda:0", "cpu")] == [*["cuda"] * 4, "cpu"]
    assert gpus == [1, 0]


@pytest.mark.parametrize("asked", ["cuda:2", "cuda:-1", "cuda:x", "cuda:²", "cuda:1:1"])
@pytest.mark.usefixtures("gpus")
def test_a_number_that_no_gpu_has_is_a_usage_error(asked: str):
    with pytest.raises(UsageError, match="There is no device 'cuda:") as met:
        pick_device(asked)
    assert met.value.hint == "Use --device cuda:0 to cuda:1."


def test_int4_is_the_cpus_on_every_gpu(gpus: list[int]):
    for asked in ("cuda", "cuda:1"):
        with pytest.raises(UsageError, match="on a CPU only"):
            pick_device(asked, "int4")
    assert [pick_device(asked, "int4") for asked in ("auto", "cpu")] == ["cpu", "cpu"]
    with pytest.raises(UsageError, match="There is no device 'mps'"):
        pick_device("mps", "int4")
    assert gpus == []


def test_a_shape_is_measured_on_the_device_that_is_asked_for(gpus: list[int]):
    from benchmarks import offload
    from benchmarks.shapes.__main__ import read_arguments, shape_request

    tiny = ["--shape", "tiny", "--threads", "1"]
    asked = ([], ["--device", "cuda:1"], ["--device", "cpu"])
    assert [shape_request(read_arguments([*tiny, *words])).device for words in asked] == ["cuda", "cuda", "cpu"]
    request = offload.offload_request(offload.read_arguments(["2GB/s", *tiny]))
    assert (request.device, request.formats) == ("cuda", ("bf16",))
    assert gpus == [1]


# --- what there is room for


def rungs(
    folder: Path, gpu_bytes: int | None, options: WeightOptions | None = None, max_bytes: int | None = None
) -> list[tuple[str, int | None]]:
    request = PlanRequest(options or WeightOptions(), "cuda", max_bytes, gpu_bytes=gpu_bytes)
    return [(plan.weight_format.name, plan.resident) for plan in ladder(open_snapshot(folder), request)]


def test_what_a_gpu_has_no_room_for_is_not_tried(folder: Path):
    sizes = {
        quant: footprint(open_snapshot(folder), find_format(quant, "cuda"), 512) for quant in ("bf16", "int8", "nf4")
    }
    every = [("bf16", None), ("int8", None), ("nf4", None)]
    offloaded = sizes["bf16"].offloaded(2)
    assert rungs(folder, 1 << 40)[:3] == rungs(folder, None)[:3] == every
    assert rungs(folder, sizes["bf16"].whole - 1)[:2] == every[1:]
    assert rungs(folder, sizes["int8"].whole - 1)[0] == every[2]
    assert rungs(folder, offloaded)[-1] == ("bf16", 2)
    assert rungs(folder, offloaded, WeightOptions("bf16", "offload")) == [("bf16", 1)]  # the least memory
    assert rungs(folder, 1 << 40, WeightOptions("bf16", "offload"), offloaded) == [("bf16", 2)]
    with pytest.raises(DoesNotFit, match=r"1 kB free on the GPU\)") as met:
        rungs(folder, 1000)
    assert "--device cpu" in met.value.hint


def test_layers_that_come_to_a_gpu_must_have_room_in_main_memory(folder: Path, monkeypatch: pytest.MonkeyPatch):
    needs = footprint(open_snapshot(folder), find_format("bf16", "cuda"), 512)
    request = PlanRequest(WeightOptions("bf16", "offload"), "cuda", gpu_bytes=needs.offloaded(2))
    main_memory(monkeypatch, (LAYERS - 1) * needs.layer)
    assert make_plan(open_snapshot(folder), request).resident == 1
    main_memory(monkeypatch, (LAYERS - 1) * needs.layer - 1)
    with pytest.raises(DoesNotFit, match="Not enough main memory for the layers") as met:
        make_plan(open_snapshot(folder), request)
    assert met.value.hint


@pytest.mark.heavy
@pytest.mark.parametrize("keep_head", [True, False])
def test_the_plan_of_a_gpus_int8_is_what_is_held(keep_head: bool, folder: Path):
    """Of the weights; not what the CPU engine's int8 takes."""
    snapshot, maker = open_snapshot(folder), EightBitLinears(6.0, torch.float32, "cpu")
    needs = footprint(snapshot, find_format("int8", "cuda"), 64, keep_head=keep_head)
    planned = needs.tables + needs.layers * needs.layer
    decoder = assemble_in(
        maker, read_arch(snapshot.config), WeightReader(Files(snapshot)), context=64, keep_head=keep_head
    )
    assert decoder.weights.num_bytes == pytest.approx(planned, rel=0.1)


def test_what_torch_holds_for_later_is_free(monkeypatch: pytest.MonkeyPatch):
    full(monkeypatch, 100)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 10)
    assert gpu_bytes() == 120


# --- what cannot be, by the real command


def refused(found: tuple[int, str, str], code: int, *words: str) -> None:
    assert (found[0], found[1]) == (code, "")
    assert found[2].count("\n") == 1
    assert [word for word in words if word not in found[2]] == []


def test_without_a_gpu_it_is_one_sentence(run: Command):
    refused(run("--device", "cuda"), 2, "There is no CUDA device for --device cuda.", "Use --device cpu.")
    for device in ("mps", "cpu:3"):
        for quant in ("auto", "int4"):
            said = run("--device", device, "--quant", quant)
            refused(said, 2, f"There is no device '{device}'", "Use --device auto, cpu")


def test_a_driver_that_is_too_old_is_one_sentence(run: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nvidia, "look", lambda: OLD)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    refused(
        run("--device", "cuda"), 2, "supports CUDA 11.4, too old for this torch (13.0)", "--device cpu", "nvidia-smi"
    )


def test_with_auto_the_cpu_computes_and_says_why(run: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(nvidia, "look", lambda: OLD)
    code, out, err = run("--quant", "fp32")
    assert (code, bool(out.strip())) == (0, True)
    assert "too old for this torch (13.0). Using the CPU." in err
    monkeypatch.setattr(nvidia, "look", lambda: nvidia.Driver("550", "13.0", ("Fake",), ""))  # hidden on purpose
    assert "CPU computes" not in run("--quant", "fp32")[2]


@pytest.mark.usefixtures("gpus")
def test_a_gpu_that_another_program_has_is_one_sentence(run: Command, monkeypatch: pytest.MonkeyPatch):
    def taken(*_: object) -> Any:
        raise RuntimeError(BUSY)

    monkeypatch.setattr(torch.cuda, "mem_get_info", taken)
    for device in ("auto", "cuda"):
        refused(run("--device", device), 1, "busy or unavailable", "nvidia-smi", "--device cpu")
    monkeypatch.setattr(torch.cuda, "set_device", taken)
    refused(run("--device", "cuda:1"), 1, "busy or unavailable", "nvidia-smi", "--device cpu")


@pytest.mark.usefixtures("gpus")
def test_a_gpu_that_is_full_is_one_sentence_before_anything_is_loaded(run: Command, monkeypatch: pytest.MonkeyPatch):
    full(monkeypatch, 3_000_000)
    refused(run(), 5, "Not enough memory", "3 MB free on the GPU", "--device cpu")
    refused(run("--quant", "nf4"), 5, "in nf4 (needs", "3 MB free on the GPU", "--device cpu")


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("CUDA error: no kernel image is available for execution on the device\nCompile", 1, "no kernel image"),
        ("CUDA error: out of memory\nCUDA kernel errors", 5, "memory"),
        ("CUDA out of memory. Tried to allocate 1 GiB.", 5, "memory"),
    ],
)
def test_what_cuda_says_while_loading_is_one_sentence(
    said: str, code: int, words: str, run: Command, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: object, **__: object) -> Any:
        raise (torch.OutOfMemoryError if "Tried" in said else RuntimeError)(said)

    full(monkeypatch, 1 << 40)
    monkeypatch.setattr("localspec.runtime.open.load_decoder", fails)
    refused(run("--quant", "bf16"), code, words, "nvidia-smi")


def test_a_model_that_leaves_no_memory_to_measure_with_answers_all_the_same(
    run: Command, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: object) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 256 MiB.")

    monkeypatch.setattr("localspec.loading.resident_decoder.read_bandwidth", fails)
    code, out, err = run("--quant", "fp32", "--stats")
    assert (code, bool(out.strip())) == (0, True)
    assert '"bandwidth_peak_gbs": null' in err


def test_other_faults_stay_what_they_are():
    with pytest.raises(RuntimeError, match="shapes"), gpu_faults():
        raise RuntimeError("shapes differ")
    with pytest.raises(EngineError), gpu_faults():
        raise RuntimeError("CUDA error: device-side assert triggered")


def test_pinned_memory_that_is_not_there_is_memory_that_ran_out():
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"))
    assert not is_out_of_memory(RuntimeError(BUSY))


def test_a_bitsandbytes_without_its_library_is_one_sentence(run: Command, monkeypatch: pytest.MonkeyPatch):
    from localspec.engine import four_bit

    class Mock:
        pass

    monkeypatch.setattr(four_bit.library().cextension, "lib", Mock())
    four_bit.library.cache_clear()
    try:
        refused(run("--quant", "nf4"), 1, "bitsandbytes has no library for this machine.", "python -m bitsandbytes")
    finally:
        four_bit.library.cache_clear()


def test_a_disk_that_is_full_costs_the_copy_and_not_the_answer(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(weight_cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    code, out, err = run("--quant", "nf4", "--save-quantized")
    assert (code, bool(out.strip())) == (0, True)
    assert "cannot be kept on disk (No space left on device)" in err
    assert "LOCALSPEC_CACHE_DIR" in err
