"""nf4, fp4 and LLM.int8: what they compute, what they load, what they refuse, and that speculation stays lossless.

Every figure is against the weights that the codes stand for, taken back into floats by bitsandbytes' own function. On
a GPU nothing of this runs here; LLM.int8's products are bitsandbytes' own in torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional
from transformers.utils import import_utils

from localspec.core import paths
from localspec.core.drain import drain
from localspec.core.errors import CheckpointError, EngineError, UsageError
from localspec.core.requests import WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine import four_bit, linear
from localspec.engine.arch import read_arch
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.four_bit import BLOCK
from localspec.engine.lengths import Lengths
from localspec.engine.linear import (
    FUSED_ROWS,
    Dense,
    EightBitLinears,
    FloatLinears,
    FourBit,
    FourBitLinears,
    Linear,
    LinearMaker,
)
from localspec.engine.protocols import Drafter
from localspec.engine.session import Session
from localspec.engine.short_head import TorchShortHead, shortened
from localspec.loading import torch as loader
from localspec.loading.devices import pick_device
from localspec.loading.footprint import footprint
from localspec.loading.kernels import load_decoder
from localspec.loading.plan import Plan, make_plan, smaller
from localspec.loading.plan_request import PlanRequest, choices
from localspec.loading.self_check import formats
from localspec.loading.self_check.config import reference_logits
from localspec.loading.sources import StateDictSource, WeightReader
from localspec.loading.torch import assemble_in
from localspec.models.checkpoint import open_snapshot
from localspec.models.prequantised.stored_format import FOUR_BIT, FourBitType, stored_format
from localspec.runtime.api import load
from localspec.runtime.local_models import stored
from tests.support.fakes import generate, text
from tests.support.models import random_tensors, save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

KINDS = FOUR_BIT
# Whole blocks, and outputs that the CPU's fused product takes; and sizes that it does not.
SHAPES = [(96, 128), (64, 192), (33, 128), (40, 48)]
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
WIDEST = 17


@pytest.fixture(scope="module")
def bnb() -> Any:
    return four_bit.library()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(
        tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML, eos="<|im_end|>", **sizes()
    )


def sizes() -> dict[str, Any]:
    """CONFIG without what the tokenizer decides."""
    return {name: value for name, value in CONFIG.items() if name != "vocab_size"}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(maker: LinearMaker, weight: Tensor, bias: Tensor | None = None) -> Any:
    """A Linear from slabs of one block of rows each."""
    return maker.linear(iter(weight.split(BLOCK)), tuple(weight.shape), bias)


def off(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


def unfused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU without AVX512-BF16."""
    monkeypatch.setattr(linear, "suits_the_cpu", lambda *_: False)


# --- what a linear computes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_codes_and_scales_are_to_the_bit_what_bitsandbytes_makes_of_the_whole(
    kind: FourBitType, shape: tuple[int, int], bnb: Any
):
    weight = normal(*shape)
    codes, state = four_bit.quantise(weight.split(BLOCK), shape, kind, "cpu")
    whole, theirs = bnb.functional.quantize_4bit(weight, blocksize=64, quant_type=kind, compress_statistics=True)
    assert torch.equal(codes, whole)
    assert torch.equal(state.absmax, theirs.absmax)
    assert torch.equal(state.offset, theirs.offset)
    assert torch.equal(state.state2.absmax, theirs.state2.absmax)
    if shape[1] % BLOCK == 0:  # else a CPU's bitsandbytes is wrong about its own weights
        assert torch.equal(four_bit.dequantised(codes, state), bnb.functional.dequantize_4bit(whole, theirs))
    assert off(four_bit.dequantised(codes, state), weight) < 0.2


@pytest.mark.parametrize("width", [7, FUSED_ROWS, FUSED_ROWS + 1])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_four_bit_linear_computes_what_its_weights_stand_for(
    kind: FourBitType, shape: tuple[int, int], biased: bool, width: int
):
    """In float32 up to the order of additions. In bfloat16 products see weights, scales, inputs and outputs of eight
    bits each, every one off by 2^-9 at most: four such errors, most of them averaging out, stay under 1 %."""
    weight, rows = normal(*shape), normal(width, shape[1], seed=1)
    bias = normal(shape[0], seed=2) if biased else None
    found = made(FourBitLinears(kind, torch.float32), weight, bias)
    expected = functional.linear(rows, four_bit.dequantised(*four_bit.quantise([weight], shape, kind, "cpu")), bias)
    got = found(rows)
    assert got.dtype == rows.dtype
    assert off(got, expected) <= (1e-6 if found.compute == torch.float32 else 1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_where_no_product_is_fused_floats_are_computed_with(kind: FourBitType, monkeypatch: pytest.MonkeyPatch):
    unfused(monkeypatch)
    weight, rows = normal(96, 128), normal(5, 128, seed=1)
    found = made(FourBitLinears(kind, torch.float32), weight)
    expected = functional.linear(rows, four_bit.dequantised(*four_bit.quantise([weight], (96, 128), kind, "cpu")))
    assert found.compute == torch.float32
    assert off(found(rows), expected) <= 1e-6


@pytest.mark.parametrize("shape", [(200, 128), (130, 40)])
@pytest.mark.parametrize("kind", KINDS)
def test_where_no_product_is_fused_few_rows_at_a_time_are_floats(
    kind: FourBitType, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    unfused(monkeypatch)
    bias, rows = normal(shape[0], seed=2), normal(5, shape[1])
    one, sizes, whole = (
        made(FourBitLinears(kind, torch.float32), normal(*shape), bias),
        list[int](),
        four_bit.dequantised,
    )
    expected = functional.linear(rows, whole(one.codes, one.state), bias)
    monkeypatch.setattr(four_bit, "SLAB", 1)
    monkeypatch.setattr(four_bit, "dequantised", lambda *given: sizes.append(given[1].shape[0]) or whole(*given))
    assert off(one(rows), expected) < 1e-6
    assert sum(sizes) == shape[0]
    assert max(sizes) == BLOCK


@pytest.mark.parametrize("shape", [(96, 128), (32, 64), (2080, 640)])
@pytest.mark.parametrize("kind", KINDS)
def test_codes_for_the_cpu_are_found_again_to_the_bit(kind: FourBitType, shape: tuple[int, int]):
    """Scales are bfloat16 there; the rest is what it was."""
    codes, state = four_bit.quantise([normal(*shape)], shape, kind, "cpu")
    scales = four_bit.flat_scales(state).bfloat16().float()
    expected = four_bit.dequantised(codes, four_bit.with_scales(state, scales, shape))
    assert torch.equal(four_bit.as_in_files(four_bit.for_the_cpu(codes.clone(), state)[0]), codes)
    found = torch.cat(list(four_bit.unpacked(*four_bit.for_the_cpu(codes.clone(), state), torch.float32)))
    assert torch.equal(found, expected)


def test_many_rows_on_a_cpu_are_computed_with_floats(monkeypatch: pytest.MonkeyPatch):
    """Few with the fused product, whose time grows with each."""
    taken, whole = list[int](), four_bit.unpacked
    monkeypatch.setattr(linear, "unpacked", lambda *given: taken.append(1) or whole(*given))
    found = made(FourBitLinears("nf4", torch.float32), normal(96, 128))
    if not found.is_fused:
        pytest.skip("no product is fused on this CPU")
    for width, times in ((FUSED_ROWS, 0), (FUSED_ROWS + 1, 1)):
        found(normal(width, 128))
        assert len(taken) == times


def test_double_quantisation_takes_four_bits_and_an_eighth(monkeypatch: pytest.MonkeyPatch):
    unfused(monkeypatch)
    weight = normal(256, 512)
    found = made(FourBitLinears("nf4", torch.float32), weight)
    assert found.num_bytes == weight.numel() // 2 + weight.numel() // 64 + 4 * weight.numel() // 64 // 256


def test_nf4_is_closer_to_normal_weights_than_fp4():
    weight = normal(64, 256)
    nf4, fp4 = (
        off(four_bit.dequantised(*four_bit.quantise([weight], (64, 256), kind, "cpu")), weight) for kind in KINDS
    )
    assert nf4 < 0.1 < fp4 < 0.2


@pytest.mark.parametrize("kind", KINDS)
def test_the_fused_product_gives_each_row_what_it_gives_it_alone(kind: FourBitType):
    """Bit for bit, at every width: what makes greedy speculation exact. Elsewhere a matrix product rounds by width."""
    found = made(FourBitLinears(kind, torch.float32), normal(96, 128))
    if found.compute != torch.bfloat16:
        pytest.skip("this CPU has no fused product")
    rows = normal(WIDEST, 128, seed=1)
    alone = torch.cat([found(row) for row in rows.split(1)])
    for width in range(2, WIDEST + 1):
        assert torch.equal(found(rows[:width]), alone[:width]), width


# --- LLM.int8, in bitsandbytes' own products in torch; on a GPU other kernels compute the same


def planted(rows: Tensor) -> Tensor:
    """Two channels a hundred times the rest, as real models have them."""
    rows = rows.clone()
    rows[:, [5, 77]] *= 100
    return rows


@pytest.mark.parametrize(
    ("threshold", "rows", "low", "high"),
    [
        (6.0, normal(9, 256, seed=1), 0.0, 0.02),
        (6.0, planted(normal(9, 256, seed=1)), 0.0, 0.02),
        (0.0, normal(9, 256, seed=1), 0.0, 0.02),
        (0.0, planted(normal(9, 256, seed=1)), 0.02, 0.1),
    ],
    ids=["6", "6, outliers", "0", "0, outliers"],
)
def test_int8_stays_under_two_percent_with_outliers_only_by_its_threshold(
    threshold: float, rows: Tensor, low: float, high: float
):
    weight, bias = normal(64, 256), normal(64, seed=3)
    found = made(EightBitLinears(threshold, torch.float32, "cpu"), weight, bias)
    assert low <= off(found(rows), functional.linear(rows, weight, bias)) <= high


def test_what_outliers_cost_without_a_threshold_is_in_the_other_channels():
    """The large ones set the scale of a row, so what the small ones say is off by a quarter."""
    rows, weight = planted(normal(9, 256, seed=1)), normal(64, 256)
    small = rows.clone()
    small[:, [5, 77]] = 0
    large = functional.linear(rows - small, weight)
    errors = {
        threshold: off(made(EightBitLinears(threshold, torch.float32, "cpu"), weight)(rows) - large, small @ weight.T)
        for threshold in (0.0, 6.0)
    }
    assert errors[6.0] < 0.12
    assert errors[0.0] > 0.2


def test_int8_rows_are_coupled_by_the_threshold_and_free_without():
    rows = normal(4, 256, seed=1)
    rows[2, 9] = 50
    weight = normal(64, 256)
    for threshold, free in ((0.0, True), (6.0, False)):
        found = made(EightBitLinears(threshold, torch.float32, "cpu"), weight)
        alone = torch.cat([found(row) for row in rows.split(1)])
        assert torch.equal(found(rows), alone) == free


def test_int8_takes_a_byte_a_weight_and_a_scale_an_output():
    assert made(EightBitLinears(6.0, torch.float32, "cpu"), normal(64, 256)).num_bytes == 64 * 256 + 4 * 64


# --- a head of fewer words


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(96, 128), (64, 192), (40, 48)])
def test_a_short_four_bit_head_has_the_outputs_of_the_whole_one(
    kind: FourBitType, shape: tuple[int, int], nested: bool, monkeypatch: pytest.MonkeyPatch
):
    """Where blocks cross rows it is used whole."""
    unfused(monkeypatch)
    found = made(FourBitLinears(kind, torch.float32), normal(*shape))
    if not nested:
        state = four_bit.with_scales(found.state, four_bit.flat_scales(found.state), shape)
        found = replace(found, state=state)
    short = shortened(found, Lengths(16, 8))
    assert (short is None) == (shape[1] % BLOCK > 0)
    if short is not None:
        check_short(short, found, shape)


def test_a_short_eight_bit_head_has_the_outputs_of_the_whole_one():
    """Without a threshold copies are in 16 bits, which is closer than rows in eight."""
    found = made(EightBitLinears(0.0, torch.float32, "cpu"), normal(64, 256))
    short = shortened(found, Lengths(16, 8))
    assert short is not None
    check_short(short, found, (64, 256), worst=0.02)


def check_short(short: TorchShortHead, whole: Linear, shape: tuple[int, int], worst: float = 1e-6) -> None:
    rows, ids = normal(3, shape[1], seed=1), torch.tensor([30, 17, 39, 20])
    short.copy(torch.tensor([7, 0, 3, 1]), ids)
    got, expected = short(rows), whole(rows)
    assert got.shape == (3, 24)
    assert off(got[:, :16], expected[:, :16]) <= 1e-6
    assert off(got[:, [16 + 7, 16, 16 + 3, 16 + 1]], expected[:, ids]) <= worst


def test_what_a_cpus_fused_product_takes_is_used_whole():
    found = made(FourBitLinears("nf4", torch.float32), normal(96, 128))
    if not four_bit.is_for_the_cpu(found.state):
        pytest.skip("no product is fused on this CPU")
    assert shortened(found, Lengths(32, 32)) is None


# --- whole models


def decoder_of(
    maker: LinearMaker, *, seed: int = 1, context: int = 128, keep_head: bool = False, **config: Any
) -> Decoder:
    said = {**CONFIG, **config}
    tensors = random_tensors(said, seed=seed, dtype=torch.float32)
    return assemble_in(
        maker, read_arch(said), WeightReader(StateDictSource(tensors)), context=context, keep_head=keep_head
    )


def forms() -> dict[str, FourBitLinears | EightBitLinears]:
    return {kind: FourBitLinears(kind, torch.float32) for kind in KINDS} | {
        "int8": EightBitLinears(6.0, torch.float32, "cpu")
    }


@pytest.mark.parametrize("name", [*KINDS, "int8"])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"tie_word_embeddings": True},
        {"model_type": "qwen2"},
        {"model_type": "qwen3", "head_dim": 32},
        {"attention_bias": True, "mlp_bias": True},
        {"vocab_size": 77, "intermediate_size": 104},
    ],
    ids=["llama", "tied", "qwen2", "qwen3", "biased", "odd sizes"],
)
def test_a_model_says_what_its_weights_stand_for(name: str, config: dict[str, Any]):
    """The reference is the same decoder on those weights in float32; see admission_formats.TOLERANCE."""
    arch = read_arch({**CONFIG, **config})
    assert formats.difference(arch, forms()[name]) <= formats.TOLERANCE


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", [*KINDS, "int8"])
def test_the_head_is_quantised_unless_it_is_kept(name: str, tied: bool):
    maker = forms()[name]
    whole = decoder_of(maker, tie_word_embeddings=tied).weights
    kept = decoder_of(maker, tie_word_embeddings=tied, keep_head=True).weights
    assert not isinstance(whole.head, Dense)
    assert isinstance(kept.head, Dense)
    assert kept.head.weight.dtype == whole.embedding.dtype == torch.bfloat16
    assert (kept.head.weight is kept.embedding) == tied
    assert all(not isinstance(layer.down, Dense) for layer in kept.layers)


def test_floats_are_what_they_were():
    decoder = decoder_of(FloatLinears(torch.float64))
    assert decoder.weights.layers[0].down.weight.dtype == torch.float64
    assert decoder.weights.embedding.dtype == torch.float64


# --- speculation


def early_exit(target: Decoder, _: LinearMaker) -> Drafter:
    return EarlyExitDrafter(target, 2)


def another(target: Decoder, maker: LinearMaker) -> Drafter:
    return ModelDrafter(decoder_of(maker, seed=9, num_hidden_layers=1), target.arch.vocab_size)


def itself(target: Decoder, maker: LinearMaker) -> Drafter:
    return ModelDrafter(decoder_of(maker), target.arch.vocab_size)


PROMPTS = [[3], [5, 9, 2, 40], list(range(11))]


@pytest.mark.parametrize("drafter", [early_exit, another, itself])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_speculation_in_four_bits_says_what_plain_decoding_says(
    kind: FourBitType, drafter: Callable[[Decoder, LinearMaker], Drafter]
):
    """L4: with float64 between the linears all that could differ by width is they, and the fused product does not."""
    maker = FourBitLinears(kind, torch.float64)
    target = decoder_of(maker)
    if any(isinstance(one, FourBit) and one.compute != torch.bfloat16 for one in linears(target)):
        pytest.skip("this CPU has no fused product, so rows are rounded by width")
    plain, session = Session(decoder_of(maker), NoDrafter()), Session(target, drafter(target, maker))
    for prompt in PROMPTS:
        expected = text(generate(plain, prompt, max_tokens=32))
        for k in (1, 5):
            rounds = generate(session, prompt, max_tokens=32, policy=k)
            assert text(rounds) == expected
            assert target.length == len(session.tokens) - 1  # L3
            if drafter is itself:
                assert all(done.accepted == done.drafted for done in rounds)


def linears(decoder: Decoder) -> Iterator[Any]:
    for layer in decoder.weights.layers:
        yield from (layer.qkv, layer.output, layer.gate_up, layer.down)
    yield decoder.weights.head


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*KINDS, "int8"])
@pytest.mark.parametrize("fused", [True, False])
def test_a_speculated_token_is_never_further_from_the_best_than_rounding(
    name: str, fused: bool, monkeypatch: pytest.MonkeyPatch
):
    """L6: each token of a speculated text is replayed alone; its score lies below the best by no more than twice what
    width alone changes in any score of the same text."""
    if not fused:
        unfused(monkeypatch)
    target = decoder_of(forms()[name])
    session = Session(target, EarlyExitDrafter(target, 2))
    generate(session, PROMPTS[1], max_tokens=64, policy=5)
    ids = torch.tensor(session.tokens)
    target.crop(0)
    alone = torch.cat([target.forward(one) for one in ids[:-1].split(1)])
    target.crop(0)
    wide = torch.cat([target.forward(some) for some in ids[:-1].split(6)])
    written = alone[len(PROMPTS[1]) - 1 :]
    gaps = written.max(-1).values - written.gather(1, ids[len(PROMPTS[1]) :, None])[:, 0]
    assert float(gaps.max()) <= 2 * float((alone - wide).abs().max())


# --- loading


def load_in(folder: Path, quant: str, **said: Any) -> Decoder:
    return drain(load_decoder(open_snapshot(folder), Plan(find_format(quant), 64, WeightOptions(**said))))  # type: ignore[return-value]


class Live:
    """Counts the bytes of the float tensors that readings of a checkpoint have handed out and that still live."""

    def __init__(self) -> None:
        self.now, self.most, self.largest = 0, 0, 0

    def watch(self, tensor: Tensor) -> Tensor:
        import weakref

        size = tensor.nbytes
        self.now += size
        self.most, self.largest = max(self.most, self.now), max(self.largest, size)
        weakref.finalize(tensor, self.let_go, size)
        return tensor

    def let_go(self, size: int) -> None:
        self.now -= size


@pytest.mark.parametrize("kind", [*KINDS, "bf16"])
def test_no_weight_is_ever_whole_in_floats(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is read is some rows: those of the parts of one linear, and the same as one tensor, live at once, and no
    more than that, however large the largest tensor is."""
    folder = save_snapshot(tmp_path / "wide", gpt2_like(), **{**sizes(), "hidden_size": 256, "intermediate_size": 768})
    step, live = 1 << 13, Live()
    monkeypatch.setattr("localspec.loading.sources.SLAB_ELEMENTS", step)
    rows, slabs = loader.Assembly.rows, loader.Assembly.slabs
    monkeypatch.setattr(loader.Assembly, "rows", lambda *args: live.watch(rows(*args)))
    monkeypatch.setattr(loader.Assembly, "slabs", lambda *args: map(live.watch, slabs(*args)))
    load_in(folder, kind)
    largest = max(info.num_bytes for info in open_snapshot(folder).tensors.values())
    one = max(4 * step, 4 * BLOCK * 768)  # a slab is no less than a block of rows
    assert live.largest <= one < largest
    assert live.most <= 3 * one < largest


def test_the_size_of_the_slabs_changes_no_bit(folder: Path, monkeypatch: pytest.MonkeyPatch):
    whole = load_in(folder, "nf4")
    monkeypatch.setattr("localspec.loading.sources.SLAB_ELEMENTS", 1)
    by_slabs = load_in(folder, "nf4")
    for one, other in zip(linears(whole), linears(by_slabs), strict=True):
        assert torch.equal(one.codes, other.codes)
        assert torch.equal(one.state.absmax, other.state.absmax)


@pytest.mark.parametrize("quant", KINDS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name", ["model.layers.3.mlp.down_proj.weight", "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"]
)
def test_a_weight_that_is_no_number_is_refused_by_its_tensors_name(
    name: str, value: float, quant: str, folder: Path, tmp_path: Path
):
    def spoil(tensors: dict[str, Tensor]) -> None:
        tensors[name].view(-1)[-1] = value

    with pytest.raises(CheckpointError, match=f"'{name}'.*infinite or not a number") as met:
        load_in(changed(folder, tmp_path / "spoilt", spoil), quant)
    assert met.value.hint


@pytest.mark.parametrize("share", [0.3, 0.999])
def test_a_truncated_file_is_refused_in_one_sentence(share: float, folder: Path, tmp_path: Path):
    copy = changed(folder, tmp_path / "cut", lambda _: None)
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(CheckpointError, match="cut short") as met:
        load(str(copy), quant="nf4", draft="off")
    assert met.value.hint
    assert "\n" not in str(met.value)


def changed(folder: Path, copy: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, copy / "model.safetensors")
    return copy


@pytest.mark.parametrize("keep_head", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_is_within_a_tenth_of_what_is_held(kind: str, keep_head: bool, tmp_path: Path):
    """Of the weights: cache and workspace are counted as in every format."""
    folder = save_snapshot(tmp_path / "wide", gpt2_like(), **{**sizes(), "hidden_size": 256, "intermediate_size": 768})
    snapshot = open_snapshot(folder)
    needs = footprint(snapshot, find_format(kind), 64, keep_head=keep_head)
    planned = needs.tables + needs.layers * needs.layer
    held = load_in(folder, kind, keep_head=keep_head).weights.num_bytes
    assert held <= 1.02 * planned
    assert planned <= 1.1 * held


# --- repositories that are in four bits already


@pytest.fixture(scope="module", params=["nf4", "fp4", "nf4 flat"])
def theirs(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `save_pretrained` writes it after loading with BitsAndBytesConfig."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    kind, _, flat = request.param.partition(" ")
    wanted = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=kind,
        bnb_4bit_use_double_quant=not flat,
        bnb_4bit_compute_dtype=torch.float32,
    )
    model = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=wanted, dtype=torch.bfloat16, device_map="cpu", local_files_only=True
    )
    made_there = tmp_path_factory.mktemp("theirs") / "tiny-bnb-4bit"
    model.save_pretrained(made_there)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (made_there / name).write_bytes((folder / name).read_bytes())
    return made_there


def own_kind(folder: Path) -> str:
    return str(stored_format(open_snapshot(folder).config))


def test_a_repository_in_four_bits_says_what_transformers_says(theirs: Path):
    """With float32 between the linears, which they need to be told, and our head kept as theirs is: what fused products
    round is in both."""
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(
        theirs, dtype=torch.float32, device_map="cpu", local_files_only=True
    ).eval()
    for module in reference.modules():
        if "Linear4bit" not in type(module).__name__ and next(module.children(), None) is None:
            module.float()
    ids = torch.arange(24) * 37 % open_snapshot(theirs).config["vocab_size"]
    expected = reference_logits(reference, ids).float()
    got = load_in(theirs, own_kind(theirs), keep_head=True).forward(ids)
    assert off(got, expected) <= 1e-2
    assert (got.argmax(-1) == expected.argmax(-1)).float().mean() >= 0.9


def test_its_weights_are_theirs_to_the_bit(theirs: Path, bnb: Any, monkeypatch: pytest.MonkeyPatch):
    unfused(monkeypatch)
    tensors = load_file(theirs / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    parts = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
    state = bnb.functional.QuantState.from_dict(parts, device=torch.device("cpu"))
    found = load_in(theirs, own_kind(theirs)).weights.layers[1].down
    assert isinstance(found, FourBit)
    state.dtype = torch.float32
    whole = bnb.functional.dequantize_4bit(tensors[name], state)
    assert torch.equal(four_bit.dequantised(found.codes, found.state), whole)


def test_it_is_loaded_in_its_own_format_and_in_no_other(theirs: Path):
    kind, snapshot = own_kind(theirs), open_snapshot(theirs)
    assert make_plan(snapshot, PlanRequest()).weight_format.name == kind
    assert stored(snapshot) == kind
    with pytest.raises(UsageError, match=f"stored in {kind}") as met:
        make_plan(snapshot, PlanRequest(WeightOptions("int8")))
    assert met.value.hint
    with load(str(theirs), draft="early-exit:2", threads=1) as llm:
        assert llm.ready.model.quant == kind
        assert llm.generate("a", max_tokens=4).text is not None


def test_a_weight_left_in_floats_among_them_stays_so(theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As repositories have it that skip some modules: the whole layer, or one of those that are fused."""
    unfused(monkeypatch)
    plain_weights = {name: normal(64, 128).bfloat16() for name in ("model.layers.2.mlp.down_proj.weight",)}
    plain_weights["model.layers.2.self_attn.k_proj.weight"] = normal(32, 64).bfloat16()

    def change(tensors: dict[str, Tensor]) -> None:
        for name, weight in plain_weights.items():
            for key in [key for key in tensors if key.startswith(name)]:
                del tensors[key]
            tensors[name] = weight

    copy = changed(theirs, tmp_path / "mixed", change)
    layer = load_in(copy, own_kind(theirs)).weights.layers[2]
    assert isinstance(layer.down, Dense)
    assert isinstance(layer.qkv, Dense)
    assert isinstance(layer.gate_up, FourBit)
    assert torch.equal(layer.down.weight, plain_weights["model.layers.2.mlp.down_proj.weight"])
    assert torch.equal(layer.qkv.weight[64:96], plain_weights["model.layers.2.self_attn.k_proj.weight"])


SPOILT: dict[str, Callable[[dict[str, Tensor], str], object]] = {
    "too few codes": lambda tensors, name: tensors.update({name: tensors[name][:-1].clone()}),
    "other levels": lambda tensors, name: tensors.update({f"{name}.quant_map": torch.zeros(16)}),
    "too few levels": lambda tensors, name: tensors.update({f"{name}.quant_map": torch.zeros(4)}),
    "too few scales": lambda tensors, name: tensors.update({f"{name}.absmax": tensors[f"{name}.absmax"][:-1].clone()}),
    "no scales": lambda tensors, name: tensors.pop(f"{name}.absmax"),
    "another shape": lambda tensors, name: said(tensors, name, shape=[1 << 40, 64]),
    "no blocks": lambda tensors, name: said(tensors, name, blocksize=0),
    "blocks that are no number": lambda tensors, name: said(tensors, name, blocksize=[64]),
    "another kind": lambda tensors, name: said(tensors, name, quant_type="int4"),
    "no JSON": lambda tensors, name: state(tensors, name, b"{"),
    "endless JSON": lambda tensors, name: state(tensors, name, b'{"a": "' + b"x" * 10_000 + b'"}'),
    "a tensor nobody knows": lambda tensors, name: tensors.update({f"{name}.surprise": torch.zeros(2)}),
}
NESTED: dict[str, Callable[[dict[str, Tensor], str], object]] = {
    "scales that are no numbers": lambda tensors, name: tensors[f"{name}.nested_absmax"].fill_(float("nan")),
    "no offset": lambda tensors, name: said(tensors, name, nested_offset=None),
    "other outer blocks": lambda tensors, name: said(tensors, name, nested_blocksize=64),
}


def state(tensors: dict[str, Tensor], name: str, raw: bytes) -> None:
    key = next(key for key in tensors if key.startswith(f"{name}.quant_state."))
    tensors[key] = torch.tensor(list(raw), dtype=torch.uint8)


def said(tensors: dict[str, Tensor], name: str, **fields: Any) -> None:
    key = next(key for key in tensors if key.startswith(f"{name}.quant_state."))
    state(tensors, name, json.dumps({**json.loads(bytes(tensors[key].tolist())), **fields}).encode())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fault", [*SPOILT, *NESTED])
def test_codes_that_are_not_as_bitsandbytes_writes_them_are_refused(fault: str, theirs: Path, tmp_path: Path):
    name = "model.layers.1.mlp.down_proj.weight"
    if fault in NESTED and f"{name}.nested_absmax" not in load_file(theirs / "model.safetensors"):
        pytest.skip("its scales are flat")
    copy = changed(theirs, tmp_path / "spoilt", lambda tensors: {**SPOILT, **NESTED}[fault](tensors, name))
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.down_proj") as met:
        load_in(copy, own_kind(theirs))
    assert "\n" not in str(met.value)


@pytest.mark.parametrize(
    "quantised",
    [
        {"quant_method": "aqlm", "in_group_size": 8},
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf3"},
        {"quant_method": ["awq"]},
        [1],
        "awq",
    ],
)
def test_what_was_quantised_in_another_way_is_refused_in_one_sentence(quantised: Any, folder: Path, tmp_path: Path):
    copy = changed(folder, tmp_path / "other", lambda _: None)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "quantization_config": quantised}))
    with pytest.raises(CheckpointError, match="quantised already") as met:
        load(str(copy), draft="off")
    assert met.value.hint


# --- choosing, the self-check, and a machine that lacks something


def test_a_named_format_is_loaded_and_shown(folder: Path):
    with load(str(folder), quant="nf4", draft="early-exit:2", threads=1) as llm:
        assert llm.ready.model.quant == "nf4"
        assert llm.ready.spec.kind == "early-exit"
        plain_text = llm.generate("a", max_tokens=8, temperature=0).text
        assert llm.generate("a", max_tokens=8, temperature=0).text == plain_text


def test_which_format_runs_where(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [pick_device("auto", quant) for quant in ("int8", "nf4", "fp4", "bf16", "int4")] == [*["cuda"] * 4, "cpu"]
    assert Plan(find_format("int8"), 64).packed == "int8"
    assert Plan(find_format("int8", "cuda"), 64).packed is None
    assert isinstance(linear.linear_maker(find_format("int8", "cuda")), EightBitLinears)
    assert [
        Plan(find_format("nf4"), 64).label,
        Plan(find_format("int8", "cuda"), 64, WeightOptions(keep_head=True, int8_threshold=0.0)).label,
    ] == ["nf4", "int8+head+0"]
    assert linear.linear_maker(find_format("nf4", "cuda")).stream == torch.bfloat16
    assert smaller(find_format("int8", "cuda")) == "--quant nf4"
    assert choices(open_snapshot(folder), PlanRequest(WeightOptions("fp4"))) == (find_format("fp4"),)


def test_what_cannot_be_is_a_usage_error(folder: Path):
    snapshot = open_snapshot(folder)
    for said_wrong, word in (({"keep_head": True}, "head"), ({"int8_threshold": float("nan")}, "int8-threshold")):
        with pytest.raises(UsageError, match=word) as met:
            make_plan(snapshot, PlanRequest(WeightOptions("int8", **said_wrong)))
        assert met.value.hint


def test_a_wrong_product_is_not_admitted_and_a_verdict_is_remembered(monkeypatch: pytest.MonkeyPatch):
    maker = FourBitLinears("nf4", torch.float32)
    asked = []
    real = formats.difference
    monkeypatch.setattr(formats, "difference", lambda *args: asked.append(1) or real(*args))
    formats.verify_format(CONFIG, maker)
    formats.verify_format(CONFIG, maker)
    assert len(asked) == 1
    paths.self_checks_file().unlink()
    whole = FourBit.__call__
    monkeypatch.setattr(FourBit, "__call__", lambda self, rows: whole(self, rows) * (1 + 0.3 * (rows.shape[0] == 5)))
    with pytest.raises(EngineError, match="computes nf4 wrongly") as met:
        formats.verify_format(CONFIG, maker)
    assert met.value.hint


@pytest.mark.parametrize("fault", ["absent", "old", "no library"])
def test_without_a_working_bitsandbytes_one_sentence_says_what_to_do(
    fault: str, folder: Path, bnb: Any, monkeypatch: pytest.MonkeyPatch
):
    class Mock:
        pass

    with monkeypatch.context() as patch:
        if fault == "absent":
            patch.setitem(sys.modules, "bitsandbytes", None)
        elif fault == "old":
            patch.setattr(torch.ops, "bitsandbytes", object())
        else:
            patch.setattr(bnb.cextension, "lib", Mock())
        four_bit.library.cache_clear()
        try:
            with pytest.raises(EngineError, match="bitsandbytes") as met:
                load(str(folder), quant="nf4", draft="off")
        finally:
            four_bit.library.cache_clear()
    assert met.value.hint.startswith("Run: p")
    assert "\n" not in str(met.value)


PLANTED = "import pathlib\npathlib.Path({file!r}).write_text('imported')\ndef get_kernel(*_, **__): raise SystemExit\n"
USES = {
    "a model is loaded": """
import sys, localspec
localspec.load(sys.argv[1], quant="nf4", draft="off", threads=1).close()
""",
    "a shape is measured": """
from benchmarks.shapes.forwards import Plan
from benchmarks.shapes.measure import ShapeRequest, measure_shape
plan = Plan(widths=(1,), depths=(16,), prefill=0)
measure_shape(ShapeRequest("tiny", ("nf4",), against=("transformers",), repeats=1, threads=1, plan=plan))
""",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("use", USES)
def test_a_planted_kernels_package_is_never_imported(use: str, folder: Path, tmp_path: Path):
    """bitsandbytes and transformers would have it fetch compiled code, and run that: of any version, and of those that
    this transformers takes."""
    version = getattr(import_utils, "KERNELS_MIN_VERSION", "0.12.0")
    planted_at, canary = tmp_path / "site", tmp_path / "canary"
    (planted_at / "kernels").mkdir(parents=True)
    (planted_at / "kernels" / "__init__.py").write_text(PLANTED.format(file=str(canary)))
    described = planted_at / f"kernels-{version}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Name: kernels\nVersion: {version}\n")
    here = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{planted_at}"}
    done = subprocess.run(
        [sys.executable, "-c", USES[use], folder], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert not canary.exists()
