"""What /fit says: what `localspec fit` does, what would be loaded, and what stays in 16 bits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from localspec.cli.compatibility_text import fit_text
from localspec.core.drain import drain
from localspec.core.requests import LoadRequest, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine.linear import Dense
from localspec.hub.compatibility import fit_found
from localspec.loading.footprint import in_16_bits
from localspec.loading.kernels import load_decoder
from localspec.loading.plan import Plan
from localspec.models.checkpoint import open_snapshot
from localspec.tui.control.fit_report import what_fits
from tests.support.generic_models import make_model, save_generic
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

CPU, GPU = ["int8", "int4", "fp32", "bf16", "nf4", "fp4"], ["bf16", "int8", "nf4", "fp4", "fp32"]
SIZES = {"vocab_size": 20_000, "hidden_size": 64, "intermediate_size": 128}  # a table of 2.56 MB in 16 bits


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top, tokenizer = tmp_path_factory.mktemp("models"), gpt2_like()
    for name, tied in (("apart", False), ("tied", True)):
        save_snapshot(top / name, tokenizer, template=CHATML, eos="<|im_end|>", tie_word_embeddings=tied, **SIZES)
    save_generic(make_model("gpt2", vocab_size=20_000).float(), top / "gpt2", tokenizer, chat_template=CHATML)
    return top


def told(folder: Path, **asked: Any) -> list[str]:
    """`device` "cuda": on a GPU with much memory."""
    gpu_bytes = 10**10 if asked.get("device") == "cuda" else None
    return what_fits(LoadRequest.of(str(folder), draft="off", **asked), None, gpu_bytes=gpu_bytes).splitlines()


def formats(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines[2:-2]]


@pytest.mark.parametrize(
    ("name", "asked", "rows"),
    [
        ("apart", {}, CPU),
        ("apart", {"quant": "int4"}, CPU),
        ("apart", {"quant": "nf4"}, CPU),
        ("apart", {"quant": "fp32", "device": "cpu"}, CPU),
        ("apart", {"quant": "nf4", "device": "cuda"}, GPU),
        ("gpt2", {"quant": "nf4"}, ["fp32", "bf16", "nf4", "fp4"]),
    ],
)
def test_the_format_it_would_be_loaded_in_has_its_row(name: str, asked: dict[str, Any], rows: list[str], models: Path):
    lines = told(models / name, **asked)
    assert formats(lines) == rows
    assert f"It would be loaded in {asked.get('quant', 'int8')}." in lines[-2]


@pytest.mark.parametrize("free", [10**10, 10**6])
def test_it_is_what_localspec_fit_says(free: int, models: Path, monkeypatch: pytest.MonkeyPatch):
    """Word for word, but for the parts, where it fits and where it does not."""
    for where in ("fit", "plan"):
        monkeypatch.setattr(f"localspec.loading.{where}.available_bytes", lambda: free)
    monkeypatch.setattr("localspec.hub.compatibility.usable_gpu_bytes", lambda: None)
    printed = fit_text(fit_found(str(models / "apart"), "", WeightOptions())).splitlines()
    cells = [re.split(" {2,}", line) for line in told(models / "apart")[2:-2]]
    assert cells == [[name, *rest] for name, _, _, _, _, *rest in (re.split(" {2,}", line) for line in printed[2:])]
    assert ("← localspec takes this" in "\n".join(printed)) == (free == 10**10)


def test_on_a_gpu_layers_in_four_bits_may_come_from_main_memory(models: Path):
    """On a CPU they may not come from the disk, which was what it said."""
    load = LoadRequest.of(str(models / "apart"), draft="off", quant="nf4", device="offload")
    lines = what_fits(load, None, gpu_bytes=10**9).splitlines()
    assert "of 1.0 GB on the GPU" in lines[1]
    assert formats(lines) == GPU
    assert "from disk   ← localspec takes this" in lines[4]
    assert "It would be loaded in nf4 with layers from main memory." in lines[-2]


def test_it_has_one_where_it_does_not_fit_too(models: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1 << 20, total=1 << 40))
    assert "nf4" in formats(told(models / "apart", quant="nf4"))


@pytest.mark.parametrize(
    ("name", "asked", "sentence"),
    [
        ("apart", {}, "In nf4 the embedding (3 MB) stays in 16 bits."),
        ("tied", {}, "In nf4 the embedding (3 MB) stays in 16 bits."),
        ("apart", {"keep_head": True}, "In nf4 the embedding (3 MB) and the head (3 MB) stay in 16 bits."),
        ("tied", {"keep_head": True}, "In nf4 the embedding with the tied head (3 MB) stays in 16 bits."),
        ("apart", {"quant": "int8", "device": "cuda"}, "In int8 the embedding (3 MB) stays in 16 bits."),
        ("gpt2", {}, "In nf4 the embedding (1 MB) stays in 16 bits."),
        ("gpt2", {"keep_head": True}, "In nf4 the embedding with the tied head (1 MB) stays in 16 bits."),
    ],
)
def test_what_stays_in_16_bits_is_named(name: str, asked: dict[str, Any], sentence: str, models: Path):
    quant = asked.get("quant", "nf4")
    assert told(models / name, **{"quant": quant, **asked})[-2] == f"It would be loaded in {quant}. {sentence}"


@pytest.mark.parametrize("quant", ["auto", "int8", "int4", "fp32", "bf16"])
def test_where_all_weights_are_in_one_format_nothing_is_named(quant: str, models: Path):
    assert "16 bits" not in "\n".join(told(models / "apart", quant=quant))


@pytest.mark.parametrize("keep_head", [False, True])
@pytest.mark.parametrize("name", ["apart", "tied"])
def test_what_is_named_is_what_the_loader_keeps(name: str, keep_head: bool, models: Path):
    snapshot = open_snapshot(models / name)
    weights: Any = drain(
        load_decoder(snapshot, Plan(find_format("nf4"), 64, WeightOptions(keep_head=keep_head)))
    ).weights
    heads = [weights.head.weight] if isinstance(weights.head, Dense) else []
    kept = {tensor.data_ptr(): tensor for tensor in (weights.embedding, *heads)}.values()  # a tied one once
    assert {tensor.dtype for tensor in kept} == {torch.bfloat16}
    named = in_16_bits(snapshot, find_format("nf4"), keep_head=keep_head)
    assert sum(named.values()) == sum(tensor.nbytes for tensor in kept)


def test_a_head_that_somebody_else_has_quantised_is_not_named(models: Path, tmp_path: Path):
    codes = {"lm_head.weight": torch.zeros(20_000 * 32, 1, dtype=torch.uint8)}
    codes["lm_head.weight.quant_state.bitsandbytes__nf4"] = torch.zeros(8, dtype=torch.uint8)
    save_file(load_file(models / "apart" / "model.safetensors") | codes, tmp_path / "model.safetensors")
    for file in models.joinpath("apart").glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    said = {"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **said}))
    snapshot = open_snapshot(tmp_path)
    assert in_16_bits(snapshot, find_format("nf4"), keep_head=True).keys() == {"embedding"}
