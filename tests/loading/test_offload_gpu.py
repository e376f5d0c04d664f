"""Layers in main memory, in whatever a GPU computes with. The GPU is a pretended one: torch's cpu:0, with a thread for
its copies and memory that is not locked. A test in test_offload.py runs the same on a real one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from localspec.core.drain import drain
from localspec.core.errors import CheckpointError, DoesNotFit, EngineError
from localspec.core.events import Loading, Notice
from localspec.core.requests import WeightOptions
from localspec.core.weight_formats import WeightFormat, find_format
from localspec.engine.linear import Dense, EightBit, FloatLinears, FourBit, FourBitLinears
from localspec.engine.offload import OnThread
from localspec.loading import offload
from localspec.loading import torch as loader
from localspec.loading.footprint import footprint
from localspec.loading.kernels import load_decoder
from localspec.loading.offload import lock
from localspec.loading.plan import Plan
from localspec.loading.plan_request import PlanRequest
from localspec.models.checkpoint import open_snapshot
from localspec.runtime import open as opening
from localspec.runtime.open import offloaded
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

LAYERS, RESIDENT = 6, 2
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
KINDS = {"bf16": Dense, "fp32": Dense, "int8": EightBit, "nf4": FourBit, "fp4": FourBit}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models") / "six"
    config: dict[str, Any] = {**SIZES, "num_hidden_layers": LAYERS, "attention_bias": True, "mlp_bias": True}
    return save_snapshot(where, gpt2_like(), template=CHATML, eos="<|im_end|>", **config)


@pytest.fixture(autouse=True)
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the device of every maker that is made."""
    maker, asked = loader.linear_maker, list[str]()

    def linear_maker(row: WeightFormat, **options: Any) -> Any:
        asked.append(row.device)
        return replace(maker(row, **options), device="cpu:0")  # type: ignore[type-var]

    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(loader, "linear_maker", linear_maker)
    monkeypatch.setattr(offload, "lock", lambda *_: None)
    monkeypatch.setattr(offload, "unlock", lambda _: None)
    monkeypatch.setattr(offload, "OnDevice", OnThread)
    return asked


def opened(folder: Path, quant: str, resident: int | None, **plan: Any) -> Any:
    return drain(
        load_decoder(
            open_snapshot(folder),
            Plan(find_format(quant, "cuda"), 64, WeightOptions(**plan), resident=resident),
        )
    )


def logits(decoder: Any) -> Iterator[torch.Tensor]:
    """Of a prompt, of one token, and of the two again: by then every layer has come to either slot."""
    for _ in range(2):
        decoder.crop(0)
        yield decoder.forward(torch.arange(20))
        yield decoder.forward(torch.tensor([7]))


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(*pair) for pair in zip(logits(one), logits(other), strict=True))


@pytest.mark.parametrize("threshold", [6.0, 0.0])
@pytest.mark.parametrize("quant", KINDS)
def test_layers_from_main_memory_compute_what_resident_ones_do(
    quant: str, threshold: float, folder: Path, gpu: list[str]
):
    """To the bit, and of the layers that are elsewhere only the slots are where it computes."""
    whole, target = (opened(folder, quant, resident, int8_threshold=threshold) for resident in (None, RESIDENT))
    assert gpu == ["cuda", "cuda"]
    assert isinstance(target.weights.stream.slots[0].qkv, KINDS[quant])
    assert same(whole, target)
    assert whole.layer_bytes == target.layer_bytes
    away = (LAYERS - RESIDENT - len(target.weights.stream.slots)) * whole.layer_bytes[0]
    assert whole.weights.num_bytes - target.weights.num_bytes == away
    target.close()


@pytest.mark.parametrize("quant", KINDS)
def test_as_much_main_memory_is_locked_as_the_layers_have_and_let_go_with_them(
    quant: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """A piece for each layer, to the cache line."""
    locked: dict[int, int] = {}
    monkeypatch.setattr(offload, "lock", locked.__setitem__)
    monkeypatch.setattr(offload, "unlock", locked.pop)
    target = opened(folder, quant, RESIDENT)
    tensors = offload.tensors(target.weights.stream.slots[0])
    assert list(locked.values()) == [sum(map(offload.in_lines, tensors))] * (LAYERS - RESIDENT)
    assert 0 <= next(iter(locked.values())) - sum(tensor.nbytes for tensor in tensors) < 64 * len(tensors)
    target.close()
    del target, tensors
    gc.collect()
    assert locked == {}


def test_memory_that_cannot_be_locked_is_memory_that_ran_out(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """What CUDA says is a number; 2 is that there is no more."""
    monkeypatch.setattr(offload, "lock", lock)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: SimpleNamespace(cudaHostRegister=lambda *_: 2))
    with pytest.raises(DoesNotFit, match="Memory ran out while loading") as met:
        opened(folder, "nf4", RESIDENT)
    assert "CUDA error 2" in str(met.value.__cause__)


@pytest.mark.parametrize("quant", ["nf4", "fp4", "int8"])
def test_the_second_start_reads_what_the_first_one_made(quant: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Of the layers in main memory too."""
    first = opened(folder, quant, RESIDENT, save_quantized=True)
    monkeypatch.setattr("localspec.engine.linear.quantise", None)
    monkeypatch.setattr("localspec.engine.linear.EightBitLinears.linear", None)
    second, whole = (opened(folder, quant, resident) for resident in (RESIDENT, None))
    assert same(first, second)
    assert same(first, whole)
    first.close()
    second.close()


@pytest.mark.parametrize(
    "other", [FloatLinears(torch.bfloat16, "cpu:0"), FourBitLinears("fp4", torch.bfloat16, "cpu:0")]
)
def test_layers_in_several_formats_cannot_take_turns(other: Any, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """As some repositories on the hub have them: a few of their linears were left in floats."""
    real = loader.Assembly.quantised

    def quantised(self: Any, maker: Any, names: list[str], *rest: Any) -> Any:
        return real(self, other if "layers.4.mlp.down" in names[0] else maker, names, *rest)

    monkeypatch.setattr(loader.Assembly, "quantised", quantised)
    with pytest.raises(CheckpointError, match="quantised differently") as met:
        opened(folder, "nf4", RESIDENT)
    assert "--device cpu" in met.value.hint


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_notice_counts_what_this_device_is_brought(device: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """bitsandbytes' int8 or the CPU engine's."""
    monkeypatch.setattr("localspec.runtime.open.size_words", str)
    snapshot = open_snapshot(folder)
    told = offloaded(snapshot, Plan(find_format("int8", device), 64, resident=1))
    size = (LAYERS - 1) * footprint(snapshot, find_format("int8", device), 64).layer
    where = {"cpu": "disk", "cuda": "main memory"}[device]
    assert f"the others ({size}) are read from {where} for every round" in told.message


def test_without_bitsandbytes_auto_offloads_floats(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def verify(_: Any, plan: Plan) -> Iterator[Loading]:
        yield Loading("checking", 0, 1, "steps")
        if plan.weight_format.name not in ("bf16", "fp32"):
            raise EngineError("This weight format needs bitsandbytes.", hint="Run: pip install bitsandbytes")

    monkeypatch.setattr(opening, "verify", verify)
    heard: list[Any] = []
    request = PlanRequest(WeightOptions(device="offload", ctx=64), "cuda")
    plan, target = drain(opening.loaded(open_snapshot(folder), request), heard.append)
    assert (plan.weight_format.name, plan.resident) == ("bf16", 1)
    target.close()
    told = {event.code: event for event in heard if isinstance(event, Notice)}
    assert "needs bitsandbytes. Loaded in bf16 instead." in told["format"].message
    assert told["format"].hint == "Run: pip install bitsandbytes"
    assert "in bf16: 1 of 6 layers stay on the GPU" in told["offload"].message
    with pytest.raises(EngineError, match="needs bitsandbytes"):
        drain(opening.loaded(open_snapshot(folder), request.asking(weight_format="nf4")))
