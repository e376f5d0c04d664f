"""GGUF files as models: what the metadata mean, and tensors under our names, to the bit those of the safetensors."""

from __future__ import annotations

import json
import math
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from torch import Tensor

from localspec.core.errors import CheckpointError, NotDownloaded
from localspec.core.weight_formats import find_format
from localspec.engine.arch import read_arch
from localspec.loading.sources import open_source, sizes_to_read
from localspec.loading.torch import assemble
from localspec.loading.unpacking import gguf as unpacking
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.models.gguf.config import LLAMA3, llama3_factors
from localspec.models.gguf.header import read_gguf
from localspec.runtime.local_models import stored
from tests.support.gguf_files import KINDS, SCALES, SIZES, Change, save_gguf, save_pair

pytestmark = pytest.mark.heavy

IDS = torch.arange(20)
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama with biases": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    "mistral": {"model_type": "mistral", "sliding_window": 7},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": False},
    "qwen3": {"model_type": "qwen3", "head_dim": 32},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A format and a family → the GGUF file, and the folder with the same numbers; each made once."""
    top = tmp_path_factory.mktemp("gguf")

    @cache
    def make(kind: str = "F32", family: str = "llama") -> tuple[Path, Path]:
        return save_pair(top / f"{family} {kind}", kind, **FAMILIES[family])

    return make


def changed(folder: Path, change: Change, **config: Any) -> Path:
    """A llama whose file says something else."""
    _, model = save_pair(folder, **config)
    return save_gguf(folder / "changed.gguf", model, change=change)


# --- tensors


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read_to_the_bit_under_our_names(kind: str, made: Any):
    ours, theirs = (open_snapshot(path) for path in made(kind))
    found, expected = open_source(ours), open_source(theirs)
    assert found.names() == expected.names()
    for name in expected.names():
        assert found.shape(name) == expected.shape(name)
        assert torch.equal(found.read(name).float(), expected.read(name))


@pytest.mark.parametrize("kind", ["F32", "Q4_0", "Q6_K"])
@pytest.mark.parametrize("steps", [1, 300, 5000])
def test_rows_in_pieces_are_those_of_the_whole(kind: str, steps: int, made: Any, monkeypatch: pytest.MonkeyPatch):
    """Also where a piece begins and ends inside a head, whose rows lie in another order."""
    source = open_source(open_snapshot(made(kind)[0]))
    for name in (
        "model.layers.1.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.norm.weight",
    ):
        whole = source.read(name)
        monkeypatch.setattr(unpacking, "SLAB_ELEMENTS", steps)
        rows = len(whole)
        for first, last in ((0, rows), (0, 1), (5, 70), (rows - 33, rows), (31, 33)):
            assert torch.equal(source.rows(name, first, last), whole[first:last])
        monkeypatch.undo()


def test_never_more_of_a_tensor_is_floats_at_once_than_a_slab(made: Any, monkeypatch: pytest.MonkeyPatch):
    sizes, real = list[int](), unpacking.dequantised

    def seen(octets: Tensor, kind: str) -> Tensor:
        found = real(octets, kind)
        sizes.append(found.numel())
        return found

    monkeypatch.setattr(unpacking, "dequantised", seen)
    monkeypatch.setattr(unpacking, "SLAB_ELEMENTS", 2048)
    open_source(open_snapshot(made("Q5_0")[0])).read("model.layers.0.mlp.gate_proj.weight")
    assert max(sizes) == 2048
    assert sum(sizes) == SIZES["hidden_size"] * SIZES["intermediate_size"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_computes_what_it_computes_from_safetensors(family: str, made: Any):
    """In float64, to the bit: shape, rotary embeddings, windows, biases, norms and the tied head are the same."""
    logits = []
    for path in made("F32", family):
        snapshot = open_snapshot(path)
        decoder = assemble(read_arch(snapshot.config), open_source(snapshot), dtype=torch.float64, context=64)
        logits.append(decoder.forward(IDS))
    assert logits[0].isfinite().all()
    assert torch.equal(*logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_configuration_is_that_of_config_json(family: str, made: Any):
    ours, theirs = (read_arch(open_snapshot(path).config) for path in made("F32", family))
    assert ours == theirs


def test_a_file_in_parts_is_one_model_whichever_part_is_named(tmp_path: Path):
    file, model = save_pair(tmp_path)
    whole = read_gguf(file)
    save_gguf(tmp_path / "split.gguf", model, tensors_each=5)
    named = sorted(tmp_path.glob("split-*.gguf"))
    assert len(named) == math.ceil(len(whole.tensors) / 5)
    for part in (named[0], named[-1]):
        snapshot = open_snapshot(part)
        assert (snapshot.folder, snapshot.name) == (named[0], "split")
        assert {info.file for info in snapshot.tensors.values()} == set(named)
        assert len(snapshot.state.splitlines()) == len(named)
        for name in snapshot.tensors:
            assert torch.equal(open_source(snapshot).read(name), open_source(open_snapshot(file)).read(name))


# --- what the metadata mean


def in_rope(**fields: Any) -> Change:
    def change(writer: Any) -> None:
        for name, value in fields.items():
            add = writer.add_string if isinstance(value, str) else writer.add_float32
            (writer.add_uint32 if isinstance(value, int) else add)(f"llama.rope.scaling.{name}", value)

    return change


YARN_IS = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
YARN = {"type": "yarn", "factor": 4.0, "original_context_length": 128}
ROPES: dict[str, tuple[Change, dict[str, Any]]] = {
    "linear": (in_rope(type="linear", factor=2.0), {"rope_type": "linear", "factor": 2.0}),
    "linear, unsaid": (in_rope(factor=2.0), {"rope_type": "linear", "factor": 2.0}),
    "none": (in_rope(type="none", factor=2.0), {"rope_type": "default"}),
    "a factor of one": (in_rope(type="linear", factor=1.0), {"rope_type": "default"}),
    "yarn": (
        in_rope(**YARN, attn_factor=1.0),
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    ),
    "yarn with betas": (
        in_rope(**YARN, yarn_beta_fast=16.0, yarn_beta_slow=2.0),
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 128,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
        },
    ),
}


@pytest.mark.parametrize("name", ROPES)
def test_rope_scaling_is_what_config_json_would_say(name: str, tmp_path: Path):
    change, expected = ROPES[name]
    found = open_snapshot(changed(tmp_path, change)).config["rope_parameters"]
    assert found == {**expected, "rope_theta": 10000.0}


def factors(writer: Any, *, theta: float, factor: float, head_dim: int, spoil: float = 1.0) -> None:
    """As llama.cpp's own program writes Llama 3's, in float32."""
    frequencies = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    low, high, original = LLAMA3.values()
    waves = 2 * math.pi / frequencies
    share = (original / waves - low) / (high - low)
    smooth = 1 / ((1 - share) / factor + share)
    found = torch.where(waves < original / high, 1.0, torch.where(waves > original / low, factor, smooth))
    writer.add_tensor("rope_freqs.weight", (found * spoil).float().numpy())


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3_s_rotary_factors_are_its_scaling(factor: float, tmp_path: Path):
    config = {"rope_theta": 500000.0, "max_position_embeddings": 131072}
    file = changed(tmp_path, lambda writer: factors(writer, theta=500000.0, factor=factor, head_dim=64), **config)
    snapshot = open_snapshot(file)
    assert snapshot.config["rope_parameters"] == {
        "rope_type": "llama3",
        "factor": factor,
        "rope_theta": 500000.0,
        **LLAMA3,
    }
    assert "rope_freqs.weight" not in snapshot.tensors
    assert len(set(llama3_factors(500000.0, 64, factor))) > 3


def test_factors_that_change_nothing_are_no_scaling(tmp_path: Path):
    file = changed(tmp_path, lambda writer: factors(writer, theta=10000.0, factor=1.0, head_dim=64))
    assert open_snapshot(file).config["rope_parameters"] == {"rope_type": "default", "rope_theta": 10000.0}


def test_numbers_are_those_that_were_written_before_they_were_float32(made: Any):
    """1e-6 as a float32 is another number, and another model."""
    assert open_snapshot(made()[0]).config["rms_norm_eps"] == 1e-6


def test_how_its_makers_sample_is_what_it_does_unasked(tmp_path: Path, made: Any):
    def change(writer: Any) -> None:
        writer.add_float32("general.sampling.temp", 0.7)
        writer.add_int32("general.sampling.top_k", 20)

    found = open_snapshot(changed(tmp_path, change)).generation
    assert found == {"do_sample": True, "temperature": 0.7, "top_k": 20}
    assert open_snapshot(made()[0]).generation == {}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda writer: writer.add_file_type(15), "Q4_K_M"),
        (lambda writer: writer.add_file_type(4711), "Q6_K"),
        (lambda _: None, "Q6_K"),
    ],
)
def test_a_file_is_called_by_the_format_that_people_know(change: Change, name: str, tmp_path: Path):
    _, model = save_pair(tmp_path)
    snapshot = open_snapshot(save_gguf(tmp_path / "named.gguf", model, "Q6_K", change))
    assert snapshot.stored_as == stored(snapshot) == name


def test_floats_are_no_other_format(made: Any):
    snapshots = [open_snapshot(made(kind)[0]) for kind in ("F32", "F16", "BF16")]
    assert [(one.stored_as, stored(one)) for one in snapshots] == [("", "fp32"), ("", "fp16"), ("", "bf16")]


def test_what_is_read_is_counted_as_it_is_given(made: Any):
    for kind in ("F16", "Q4_K"):
        snapshot = open_snapshot(made(kind)[0])
        source = open_source(snapshot)
        assert sizes_to_read(snapshot) == {name: source.read(name).nbytes for name in source.names()}


def test_tokenizer_template_and_ends_come_from_the_file(made: Any):
    ours, theirs = (open_snapshot(path) for path in made())
    assert set(theirs.eos_ids) <= set(ours.eos_ids)
    assert ours.chat_template == theirs.chat_template
    assert json.loads(ours.read_tokenizer().text)["model"]["vocab"].items() >= {"a": 64}.items()
    assert ours.name == "tiny-F32"


# --- what is refused, each in one sentence


def without(*names: str) -> Change:
    def change(writer: Any) -> None:
        for name in names:
            assert any(entries.pop(name, None) for entries in writer.kv_data)

    return change


def says(name: str, value: Any) -> Change:
    def change(writer: Any) -> None:
        for entries in writer.kv_data:
            entries.pop(name, None)
        kind = gguf.GGUFValueType.get_type(value)
        writer.add_key_value(name, value, gguf.GGUFValueType.UINT32 if kind.name == "INT32" else kind)

    return change


REFUSED: dict[str, tuple[Change, str]] = {
    "another architecture": (says("general.architecture", "gemma3"), "architecture 'gemma3'"),
    "no architecture": (without("general.architecture"), "does not say its general.architecture"),
    "experts": (says("llama.expert_count", 8), "llama.expert_count = 8"),
    "an embedding model": (says("llama.pooling_type", 3), "is an embedding model"),
    "attention both ways": (says("llama.attention.causal", False), "llama.attention.causal = False"),
    "scaled logits": (says("llama.logit_scale", 2.0), "llama.logit_scale = 2.0"),
    "part of a head turns": (says("llama.rope.dimension_count", 32), "partial rotary"),
    "values of another length": (says("llama.attention.value_length", 32), "values of another length"),
    "rope of a kind nobody knows": (in_rope(type="longrope", factor=2.0), "rope.scaling.type = longrope"),
    "yarn's own attention": (in_rope(**YARN, attn_factor=1.5), "attn_factor = 1.5"),
    "frequencies of its own": (
        lambda writer: factors(writer, theta=10000.0, factor=8.0, head_dim=64, spoil=1.01),
        "rotary frequencies of its own",
    ),
    "no layers said": (without("llama.block_count"), "llama.block_count is None"),
    "layers in words": (says("llama.block_count", "two"), "llama.block_count is two"),
    "no layers": (says("llama.block_count", 0), "num_hidden_layers = 0 is out of range"),
    "heads that do not divide": (says("llama.attention.head_count_kv", 3), "4 heads do not divide into 3"),
    "heads layer by layer": (says("llama.attention.head_count", [4, 2]), "head_count is (4, 2)"),
    "an eps that is no number": (says("llama.attention.layer_norm_rms_epsilon", math.nan), "epsilon is nan"),
    "more than it holds": (
        says("llama.embedding_length", 65536),
        "at least 2,155,872,256 bytes of weights, but there are",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_decoder_does_not_compute_is_refused_by_name(name: str, tmp_path: Path):
    change, fault = REFUSED[name]
    file = changed(tmp_path, change)
    with pytest.raises(CheckpointError, match=re.escape(fault)) as caught:
        open_snapshot(file)
    assert str(file) in caught.value.message
    assert caught.value.hint


def test_another_number_of_layers_than_tensors_is_refused(tmp_path: Path):
    from localspec.core.drain import drain
    from localspec.loading.kernels import load_decoder
    from localspec.loading.plan import Plan

    snapshot = open_snapshot(changed(tmp_path, says("llama.block_count", 3)))
    with pytest.raises(CheckpointError, match="num_hidden_layers = 3, and the checkpoint has 2"):
        drain(load_decoder(snapshot, Plan(find_format("fp32"), 64)))


@pytest.mark.parametrize("kind", ["TQ2_0", "I8"])
def test_a_format_that_is_not_read_is_named_with_one_that_is(kind: str, tmp_path: Path):
    used = gguf.GGMLQuantizationType[kind]
    numbers, size = gguf.GGML_QUANT_SIZES[used]
    raw = torch.zeros(4, 256 // numbers * size, dtype=torch.uint8).numpy()
    file = changed(tmp_path, lambda writer: writer.add_tensor("blk.0.extra.weight", raw, raw_dtype=used))
    with pytest.raises(CheckpointError, match=rf"'blk\.0\.extra\.weight' is {kind}") as caught:
        open_snapshot(file)
    assert "Q4_K_M" in caught.value.hint


def test_a_tensor_that_nobody_knows_is_refused_by_its_name(tmp_path: Path):
    extra = torch.zeros(4, 4).numpy()
    snapshot = open_snapshot(changed(tmp_path, lambda writer: writer.add_tensor("blk.0.attn_gate.weight", extra)))
    with pytest.raises(CheckpointError, match=r"'blk\.0\.attn_gate\.weight'"):
        assembled(snapshot)


def assembled(snapshot: Snapshot) -> None:
    from localspec.loading.sources import WeightReader

    reader = WeightReader(open_source(snapshot))
    for name in snapshot.tensors:
        if name.startswith("model."):
            reader.check(name, snapshot.tensors[name].shape)
    reader.refuse_unused(tied_head=True)


def test_a_file_that_is_none_is_one_sentence(tmp_path: Path):
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"\x10" * 100)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a GGUF file"):
        open_snapshot(other)
    with pytest.raises(NotDownloaded, match="There is no folder or file"):
        open_snapshot(tmp_path / "gone.gguf")


def test_a_folder_of_them_says_which_may_be_given(tmp_path: Path, made: Any):
    file = tmp_path / "one.gguf"
    file.symlink_to(made()[0])
    with pytest.raises(CheckpointError, match="has GGUF files") as caught:
        open_snapshot(tmp_path)
    assert str(file) in caught.value.hint


def test_a_folder_called_as_a_file_is_is_none_that_may_be_given(tmp_path: Path, made: Any):
    (tmp_path / "a.gguf").mkdir()
    file = tmp_path / "b.gguf"
    file.symlink_to(made()[0])
    with pytest.raises(CheckpointError, match="has GGUF files") as caught:
        open_snapshot(tmp_path)
    assert caught.value.hint == f"Give one of them: {file}"


def test_without_the_package_it_is_one_sentence(made: Any, monkeypatch: pytest.MonkeyPatch):
    """Floats need none."""
    monkeypatch.setitem(sys.modules, "gguf", None)
    open_source(open_snapshot(made("F16")[0])).read("model.embed_tokens.weight")
    with pytest.raises(CheckpointError, match="Reading Q4_K needs the package gguf") as caught:
        open_source(open_snapshot(made("Q4_K")[0])).read("model.embed_tokens.weight")
    assert "pip install" in caught.value.hint


def test_every_drawn_format_is_one_that_the_package_cannot_make():
    """Else its own quantiser would be the better evidence."""
    for kind in SCALES:
        with pytest.raises(NotImplementedError):
            gguf.quants.quantize(torch.zeros(1, 256).numpy(), gguf.GGMLQuantizationType[kind])
