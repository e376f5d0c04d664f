"""Whole models that others have quantised: held in our formats, they say what the floats say that they stand for.

With early exit, layers from disk, draft models and the weight cache, as any other; one notice says what the files are.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from localspec import load
from localspec.core.drain import drain
from localspec.core.errors import LocalspecError
from localspec.core.events import AnyEvent, Loading, Notice
from localspec.core.requests import LoadRequest, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.isa import choose
from localspec.loading import weight_cache
from localspec.loading.cpu import Packer
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.footprint import footprint
from localspec.loading.kernels import load_decoder
from localspec.loading.plan import Plan
from localspec.loading.unpacking.source import Unpacked
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import load_events
from localspec.tui.control.fit_report import what_fits
from tests.loading.test_packed_loading import PEAK
from tests.support.models import save_snapshot
from tests.support.prequantised import STYLES, store_folder
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "tie_word_embeddings": False,
    "vocab_size": 448,
}
FAMILIES = {
    "gptq": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "gptq 3": {"model_type": "mistral", "sliding_window": None},
    "awq": {"model_type": "qwen2"},
    "fp8": {"model_type": "qwen3", "head_dim": 16},
    "w4a16": {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
}
SOME = tuple(FAMILIES)
HI = [{"role": "user", "content": "hello there general"}]
IDS = torch.arange(20)


@pytest.fixture(scope="module", autouse=True)
def engine() -> program.Program:
    """Compiled before any test turns its cache away."""
    return program.load(choose())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A style's name → a folder in it, and one with the floats that it stands for."""
    top, lock = tmp_path_factory.mktemp("models"), threading.Lock()

    def pair(name: str) -> tuple[Path, Path]:
        folder, meant = top / name, top / f"{name} meant"
        with lock:
            if not folder.exists():
                for one in (folder, meant):
                    config = {**SIZES, **FAMILIES.get(name, {})}
                    save_snapshot(one, gpt2_like(), template=CHATML, eos="<|im_end|>", **config)
                save_file(store_folder(folder, STYLES[name]), meant / "model.safetensors")
        return folder, meant

    return pair


def logits(folder: Path, quant: str, resident: int | None = None, **more: Any) -> torch.Tensor:
    plan = Plan(find_format(quant), 64, WeightOptions(**more), resident)
    decoder: Any = drain(load_decoder(open_snapshot(folder), plan))
    try:
        found: torch.Tensor = decoder.forward(IDS)
        return found
    finally:
        decoder.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STYLES)
def test_every_kind_says_what_its_floats_say(name: str, models: Any):
    """In fp32 and in int8, to the bit: the weights are the same, and so is what is done with them."""
    folder, meant = models(name)
    for quant in ("fp32", "int8"):
        got, expected = logits(folder, quant), logits(meant, quant)
        assert got.isfinite().all()
        assert torch.equal(got, expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("quant", ["bf16", "int4", "nf4", "fp4"])
@pytest.mark.parametrize("name", SOME)
def test_any_other_format_may_be_asked_for(name: str, quant: str, models: Any):
    folder, meant = models(name)
    for keep_head in {False, quant == "nf4"}:
        assert torch.equal(logits(folder, quant, keep_head=keep_head), logits(meant, quant, keep_head=keep_head))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("quant", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("name", ["gptq", "awq", "fp8"])
def test_layers_may_come_from_disk(name: str, quant: str, models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path))
    folder, _ = models(name)
    assert torch.equal(logits(folder, quant, resident=1), logits(folder, quant))


@pytest.mark.parametrize("steps", [1, 700])
def test_a_layer_from_disk_is_unpacked_in_steps(steps: int, models: Any, monkeypatch: pytest.MonkeyPatch):
    """By the thread that brings it: a whole tensor in float32 would be twice what its floats are in a file."""
    real, sizes = Unpacked.rows, list[int]()

    def rows(self: Unpacked, name: str, first: int, last: int) -> torch.Tensor:
        found = real(self, name, first, last)
        if threading.current_thread() is not threading.main_thread():
            sizes.append(found.numel())
        return found

    monkeypatch.setattr(Unpacked, "rows", rows)
    monkeypatch.setattr("localspec.loading.offload.READ_ELEMENTS", steps)
    folder, _ = models("gptq")
    assert torch.equal(logits(folder, "fp32", resident=1), logits(folder, "fp32"))
    assert 0 < max(sizes) <= max(steps, SIZES["intermediate_size"])


def answer(model: Path, **asked: Any) -> tuple[list[int], Any]:
    with load(str(model), threads=1, **asked) as llm:
        found = llm.generate(HI, max_tokens=24, temperature=0)
        return [token.id for token in found.tokens], llm


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("one_state_folder")
@pytest.mark.parametrize("name", SOME)
def test_drafting_changes_no_token(name: str, models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Early exit, the floats as a draft, itself as their draft, and layers from disk."""
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path))
    folder, meant = models(name)
    plain, llm = answer(folder, draft="off")
    assert (llm.ready.model.quant, llm.ready.model.layers) == ("int8", 3)
    for target, asked in (
        (folder, {"draft": "early-exit:1", "k": 4}),
        (folder, {"draft": str(meant), "k": 4, "draft_quant": "fp32"}),
        (meant, {"draft": str(folder), "k": 4}),
        (folder, {"draft": "early-exit:1", "k": 4, "device": "offload", "quant": "int8"}),
    ):
        ids, llm = answer(target, **asked)
        assert ids == plain
        assert llm.ready.spec.kind == ("early-exit" if asked["draft"] == "early-exit:1" else "model")


def heard(folder: Path, **asked: Any) -> list[AnyEvent]:
    return list(load_events(LoadRequest.of(str(folder), **{"draft": "off", "threads": 1, **asked})))


def notices(events: list[AnyEvent]) -> list[Notice]:
    return [event for event in events if isinstance(event, Notice)]


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("one_state_folder")
@pytest.mark.parametrize("name", SOME)
def test_one_notice_says_what_the_files_are(name: str, models: Any):
    folder, _ = models(name)
    for asked in ({}, {"quant": "int8"}, {"draft": str(folder)}):
        (notice,) = (one for one in notices(heard(folder, **asked)) if one.code != "own_draft")
        assert (notice.level, notice.code) == ("info", "converted")
        assert notice.message == f"Loaded in int8; the files are {STYLES[name].label}."
        assert notice.hint == "--quant int4 needs less memory, but rounds the weights again."
    (notice,) = notices(heard(folder, quant="bf16"))
    assert notice.message == f"Loaded in bf16; the files are {STYLES[name].label}."
    assert notice.hint == ""


def test_floats_have_no_such_notice(models: Any):
    _, meant = models("gptq")
    assert [notice.code for notice in notices(heard(meant))] == ["format"]


def test_where_int8_does_not_fit_both_are_said(models: Any, monkeypatch: pytest.MonkeyPatch):
    folder, _ = models("gptq")
    snapshot = open_snapshot(folder)
    needed = footprint(snapshot, find_format("int4"), 512).whole
    monkeypatch.setattr("localspec.loading.plan.available_bytes", lambda: needed)
    messages = [notice.message for notice in notices(heard(folder))]
    assert messages == [
        "Loaded in int4: int8 does not fit in memory.",
        "Loaded in int4; the files are GPTQ 4-bit.",
    ]


def test_fit_says_what_the_floats_would_take(models: Any, monkeypatch: pytest.MonkeyPatch):
    for where in ("loading.plan", "loading.fit"):
        monkeypatch.setattr(f"localspec.{where}.available_bytes", lambda: 10**9)
    for name in SOME:
        folder, meant = models(name)
        for quant in ("auto", "nf4"):
            reports = [what_fits(LoadRequest.of(str(one), draft="off", quant=quant), None) for one in (folder, meant)]
            assert reports[0].splitlines()[1:] == reports[1].splitlines()[1:]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(weight_cache, "SMALLEST_BYTES", 0)
    return tmp_path / "cache" / "packed"


@pytest.mark.parametrize("name", SOME)
def test_the_second_start_maps_what_the_first_has_packed(
    name: str, models: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, _ = models(name)
    expected = logits(folder, "int8")
    (file,) = cache.iterdir()
    monkeypatch.setattr(Packer, "pieces", None)
    assert torch.equal(logits(folder, "int8"), expected)
    assert list(cache.iterdir()) == [file]


def test_what_bitsandbytes_makes_is_kept_where_that_is_asked_for(models: Any, cache: Path):
    folder, _ = models("gptq")
    expected = logits(folder, "nf4", save_quantized=True)
    assert len(list(cache.iterdir())) == 1
    events: list[AnyEvent] = []
    decoder: Any = drain(
        load_decoder(open_snapshot(folder), Plan(find_format("nf4"), 64, WeightOptions(save_quantized=True))),
        events.append,
    )
    assert torch.equal(decoder.forward(IDS), expected)
    assert not [event for event in events if isinstance(event, Notice)]


def test_files_that_are_read_in_another_way_are_packed_anew(models: Any, cache: Path, tmp_path: Path):
    folder = tmp_path / "model"
    shutil.copytree(models("gptq")[0], folder)
    before = logits(folder, "int8")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    (folder / "config.json").write_text(json.dumps(config))
    assert not torch.equal(logits(folder, "int8"), before)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("quant", ["fp32", "nf4"])
def test_progress_ends_where_it_should(quant: str, models: Any):
    folder, _ = models("awq")
    events: list[AnyEvent] = []
    drain(load_decoder(open_snapshot(folder), Plan(find_format(quant), 64)), events.append)
    steps = [event for event in events if isinstance(event, Loading) and event.stage == "loading weights"]
    assert steps[-1].done == steps[-1].total > 0


def test_an_adapter_beside_the_weights_is_refused(models: Any, tmp_path: Path):
    """As some tools store them: what nobody adds would be missing."""
    folder = tmp_path / "model"
    shutil.copytree(models("gptq")[0], folder)
    tensors = load_file(folder / "model.safetensors")
    extra = {"model.layers.0.mlp.down_proj.lora_A": torch.zeros(96, 4)}
    save_file(tensors | extra, folder / "model.safetensors")
    with pytest.raises(LocalspecError, match=r"does not explain: 'model\.layers\.0\.mlp.down_proj\.lora_A'"):
        logits(folder, "int8")


def random_words(*shape: int) -> torch.Tensor:
    return torch.randint(-(1 << 31), (1 << 31) - 1, shape, dtype=torch.int32)


RANDOM: dict[str, Any] = {  # tensors of a linear [outputs, inputs] in groups of 32, whatever they stand for
    "gptq": lambda outputs, inputs: {
        "qweight": random_words(inputs // 8, outputs),
        "qzeros": random_words(inputs // 32, outputs // 8),
        "scales": torch.rand(inputs // 32, outputs).half(),
    },
    "awq": lambda outputs, inputs: {
        "qweight": random_words(inputs, outputs // 8),
        "qzeros": random_words(inputs // 32, outputs // 8),
        "scales": torch.rand(inputs // 32, outputs).half(),
    },
    "w4a16": lambda outputs, inputs: {
        "weight_packed": random_words(outputs, inputs // 8),
        "weight_scale": torch.rand(outputs, inputs // 32).half(),
        "weight_shape": torch.tensor([outputs, inputs]),
    },
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", RANDOM)
def test_unpacking_takes_no_more_memory_than_packing_floats_does(name: str, tmp_path: Path):
    """As test_packed_loading.py has it of 280 MB of float32: the packed size, and twice the largest tensor at most."""
    small = save_snapshot(tmp_path / "small", gpt2_like())
    wide = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 6, "num_attention_heads": 16}
    folder = save_snapshot(tmp_path / "big", gpt2_like(), **wide, num_key_value_heads=4, vocab_size=2000)
    tensors = load_file(folder / "model.safetensors")
    largest = max(tensor.nbytes for tensor in tensors.values())
    for key in [key for key in tensors if key.endswith("_proj.weight")]:
        parts = RANDOM[name](*tensors.pop(key).shape)
        tensors |= {f"{key.removesuffix('weight')}{part}": tensor for part, tensor in parts.items()}
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": STYLES[name].config}))
    command = [sys.executable, "-c", PEAK, small, folder, "int8", tmp_path / "cache"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "MALLOC_MMAP_THRESHOLD_": "250000"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    end, peak = map(int, done.stdout.split())
    packed = Blueprint(read_arch(open_snapshot(folder).config), "int8").num_bytes
    assert packed <= end <= peak <= packed + 2 * largest
