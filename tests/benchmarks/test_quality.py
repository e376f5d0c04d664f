"""What benchmarks/quality.py rests on: exact changes, bytes that are read back as they were packed, and a fair text."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import held, quality
from benchmarks.curve import Point, curve_at, standing
from benchmarks.llama_cpp import quantiser as llama_files
from benchmarks.llama_cpp.gguf_file import by_pairs
from benchmarks.models import EMBEDDING, HEAD, TECHNICAL, Model, Text, untied
from benchmarks.rotation import orthogonal, rotated
from localspec.engine.arch import Arch, read_arch
from localspec.engine.cpu.formats import PackedFormat
from localspec.loading.self_check.cpu_reference import stored
from localspec.loading.sources import StateDictSource
from localspec.loading.torch import assemble
from training import corpus

ROOT = Path(__file__).parents[2]
IDS = torch.arange(3, 43) * 7 % 96
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,  # no whole groups, nor are the heads whole vectors
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}


def tiny(*, tied: bool = True, dtype: torch.dtype = torch.float32) -> Model:
    """Random weights, norms far from 1."""
    arch = read_arch({**CONFIG, "tie_word_embeddings": tied})
    generator = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in shapes(arch).items()}
    norms = {name: tensor.abs() + 0.5 for name, tensor in tensors.items() if tensor.dim() == 1}
    linears = {name: tensor / 6 for name, tensor in tensors.items() if tensor.dim() == 2}
    return Model("tiny", arch, norms | linears, (Text(IDS, 4),))


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    hidden, inner = arch.hidden_size, arch.intermediate_size
    queries, keys = arch.num_heads * arch.head_dim, arch.num_kv_heads * arch.head_dim
    found: dict[str, tuple[int, ...]] = {EMBEDDING: (arch.vocab_size, hidden), "model.norm.weight": (hidden,)}
    for index in range(arch.num_layers):
        layer = {
            "input_layernorm": (hidden,),
            "post_attention_layernorm": (hidden,),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        found |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    return found if arch.tied_head else found | {HEAD: (arch.vocab_size, hidden)}


def logits(model: Model) -> Tensor:
    return assemble(model.arch, StateDictSource(model.tensors), dtype=torch.float64, context=64).forward(IDS)


# --- the change of basis


@pytest.mark.parametrize("tied", [True, False])
def test_a_change_of_basis_changes_no_logit(tied: bool):
    before = tiny(tied=tied, dtype=torch.float64)
    after = rotated(before)
    expected, found = logits(before), logits(after)
    assert (found - expected).abs().max() < 1e-9 * expected.abs().max()


def test_a_change_of_basis_leaves_no_weight_that_meets_the_stream_where_it_was():
    before = tiny()
    after = rotated(before)
    _, tensors = untied(before.arch, before.tensors)
    assert after.tensors.keys() == tensors.keys()
    for name, tensor in after.tensors.items():
        if tensor.dim() == 2:
            assert (tensor - tensors[name]).norm() > 0.3 * tensors[name].norm(), name
        else:
            assert torch.equal(tensor, torch.ones_like(tensor)), name


def test_the_basis_is_orthogonal():
    turn = orthogonal(48)
    assert torch.allclose(turn @ turn.t(), torch.eye(48, dtype=torch.float64), atol=1e-12)


# --- what formats hold


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("tied", [True, False])
def test_packed_weights_are_read_back_where_they_were(kind: PackedFormat, tied: bool):
    """Every linear within a twentieth (int4: a seventh) of itself: a row, head or gate out of place is off by all."""
    model = tiny(tied=tied)
    found = held.ours(model, kind)
    _, tensors = untied(model.arch, model.tensors)
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        far = (found.tensors[name] - tensor).norm() / tensor.norm()
        assert far < (0.05 if kind == "int8" or tensor.dim() == 1 else 0.15), name


def test_what_is_evaluated_is_what_blocks_hold():
    model = tiny()
    name = "model.layers.1.mlp.up_proj.weight"
    assert torch.equal(held.ours(model, "int8").tensors[name], stored(model.tensors[name], "int8")[:, :64])


def test_a_tied_head_counts_once_where_it_is_kept_once():
    tied, own = tiny(), tiny(tied=False)
    assert held.exact(tied).num_bytes == 4 * tied.num_weights
    assert own.num_weights - tied.num_weights == 96 * 64
    assert held.ours(own, "int8").num_bytes - held.ours(tied, "int8").num_bytes >= 96 * 64
    assert held.nf4(tied, head=False).num_bytes == pytest.approx(
        sum(tensor.numel() * (4.5 / 8 if "_proj." in name else 2) for name, tensor in tied.tensors.items())
    )


def test_rotary_channels_go_into_pairs_and_back():
    weight = torch.randn(48, 5)
    assert torch.equal(llama_files.by_halves(by_pairs(weight, 24), 24), weight)


@pytest.mark.parametrize("tied", [True, False])
def test_llama_cpp_quantises_our_weights_and_they_come_back(tied: bool):
    pytest.importorskip("llama_cpp")
    pytest.importorskip("gguf")
    model = tiny(tied=tied)
    (found,) = held.llama_cpp(model, ["Q8_0"])
    _, tensors = untied(model.arch, model.tensors)
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (found.tensors[name] - tensor).norm() < 0.01 * tensor.norm(), name
    assert 8 * found.num_bytes / model.num_weights < 9


# --- figures


def test_exact_weights_diverge_from_nothing_and_others_do():
    model = tiny()
    same, other = (
        quality.Exact(model).figures("x", 4 * model.num_weights, quality.in_torch(model, held.exact(one)))
        for one in (model, replace(model, tensors={name: 2 * one for name, one in model.tensors.items()}))
    )
    assert (same.kl, same.same, same.bits) == (0, 1, 32)
    assert other.kl == 0, "the first one asked is what others are compared with"
    exact = quality.Exact(model)
    exact.figures("fp32", 0, quality.in_torch(model, held.exact(model)))
    four = held.ours(model, "int4")
    found = exact.figures("int4", four.num_bytes, quality.in_torch(model, four))
    assert found.kl > 0
    assert found.same < 1


def test_only_the_positions_that_count_are_counted():
    """Perplexity of the rows from `first` on, by hand."""
    model = tiny()
    rows = (
        assemble(model.arch, StateDictSource(model.tensors), dtype=torch.float32, context=64).forward(IDS[:-1]).double()
    )
    losses = -rows.log_softmax(-1)[torch.arange(39), IDS[1:]]
    found = quality.Exact(model).figures("fp32", 0, quality.in_torch(model, held.exact(model)))
    assert found.perplexity == pytest.approx(losses[4:].mean().exp().item(), rel=1e-5)


@pytest.mark.parametrize("words", [["smollm3"], ["--only", "int5"], ["guide", "--only", "Q5_K_M"]])
def test_a_name_that_is_not_known_is_refused_with_those_that_are(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        quality.read_arguments(words)
    assert "is not one of" in capsys.readouterr().err


CURVE = [Point(8.5, 0.001), Point(6.5, 0.01), Point(4.5, 0.1), Point(5.0, 0.2)]  # the last is beaten in both


@pytest.mark.parametrize(
    ("bits", "kl"), [(8.5, 0.001), (4.5, 0.1), (5.5, 0.1 / 10**0.5), (7.5, 0.01 / 10**0.5), (3.5, 0.1 * 10**0.5)]
)
def test_the_curve_is_straight_in_the_logarithm_between_neighbours(bits: float, kl: float):
    assert curve_at(CURVE, bits) == pytest.approx(kl)


def test_a_point_is_told_beside_the_curve():
    assert standing(CURVE, Point(4.5, 0.08)) == "20% below llama.cpp's curve at 4.50 bits"
    assert standing(CURVE, Point(6.5, 0.015)) == "50% above llama.cpp's curve at 6.50 bits"
    assert "whose formats take 4.50 to 8.50 bits" in standing(CURVE, Point(4.0, 0.1))


# --- a fair text

GRAM = 8  # words


def grams(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9']+", text.lower())
    return {tuple(words[at : at + GRAM]) for at in range(len(words) - GRAM + 1)}


def files_of_the_package() -> list[Path]:
    """All that any code of ours could read: sources, texts, and what comes with them."""
    found = [file for folder in ("localspec", "assets") for file in sorted((ROOT / folder).rglob("*"))]
    return [file for file in found if file.suffix in {".py", ".txt", ".md", ".toml", ".json"} and file.is_file()]


@cache
def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def test_no_file_of_the_package_shares_eight_words_with_the_text_that_quality_is_measured_on():
    """Whatever packing reads one day lies in the package."""
    measured = grams(text_of(TECHNICAL))
    assert len(measured) > 3000
    assert [file for file in files_of_the_package() if grams(text_of(file)) & measured] == []


def test_no_text_that_packing_may_read_shares_eight_words_with_what_guide_is_measured_on():
    """guide's questions and answers stand in its corpus, which only its recipe reads."""
    learned = ("recipe", "exam")  # never read by packing, and full of what guide says
    texts = [file for file in files_of_the_package() if file.suffix in {".txt", ".toml", ".json"}]
    texts = [file for file in texts if ROOT / "localspec" in file.parents and not set(learned) & set(file.parts)]
    asked = {gram for entry in corpus.load().known for gram in grams(f"{entry.held_out}\n{entry.answer}")}
    assert len(asked) > 1000
    assert [file for file in texts if grams(text_of(file)) & asked] == []


def test_nothing_in_the_package_names_the_text_that_quality_is_measured_on():
    assert [file for file in files_of_the_package() if TECHNICAL.name in text_of(file)] == []
