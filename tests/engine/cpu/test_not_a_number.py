"""Numbers that are none: refused when weights are packed, never lost on the way to the logits, and never made on it of
numbers that are only small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from localspec.core.errors import CheckpointError
from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import SCALE_BYTES, PackedFormat
from localspec.engine.cpu.isa import Isa
from localspec.engine.cpu.model import PackedModel, PackedWeights
from localspec.engine.cpu.pack import Packed, pack
from localspec.loading.self_check.cpu_reference import round_rows
from tests.support.packed_models import (
    ISAS,
    KINDS,
    Rounded,
    Tensors,
    config_of,
    packed_weights,
    pieces,
    random_ids,
    tensors_of,
)

pytestmark = pytest.mark.heavy

SAID: dict[str, Any] = {"model_type": "qwen3", "head_dim": 16, "attention_bias": True, "tie_word_embeddings": False}
AT = 12  # the position of the only token whose embedding is spoilt
NAN, INF = float("nan"), float("inf")
every_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_no_numbers_are_refused(kind: PackedFormat, value: float) -> None:
    """Wherever they stand, also far into a tensor of many blocks."""
    for place in (0, 63, 64 * 40 + 1, 64 * 2080 - 1):
        weight = torch.ones(2080, 64)
        weight.view(-1)[place] = value
        with pytest.raises(CheckpointError) as refused:
            pack(weight, kind)
        assert refused.value.message.count(".") == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_they_are_refused_in_every_dtype(dtype: torch.dtype) -> None:
    weight = torch.ones(32, 64, dtype=dtype)
    weight[3, 3] = NAN
    with pytest.raises(CheckpointError):
        pack(weight, "int8")


# --- on the way


def read(weights: PackedWeights, isa: Isa) -> Tensor:
    """Logits of 30 rows, one by one, of which only row AT has the token 0. In a wide pass nothing that is spoilt may
    come out sound; a row may be spoilt by a later one of the same pass, as 0 times NaN is NaN."""
    ids = random_ids(30, vocab=39) + 1
    ids[AT] = 0
    arch, code = read_arch(config_of(SAID)), program.load(isa)
    wide = PackedDecoder(PackedModel(arch, weights, 64, code)).forward(ids)
    alone = PackedDecoder(PackedModel(arch, weights, 64, code))
    narrow = torch.cat([alone.forward(ids[i : i + 1]) for i in range(len(ids))])
    assert torch.equal(wide.isfinite() & narrow.isfinite(), wide.isfinite())
    return narrow


def sound(kind: PackedFormat = "int8") -> PackedWeights:
    return packed_weights(read_arch(config_of(SAID)), tensors_of(SAID, 0), kind)


def with_scale(packed: Packed, output: int, value: float) -> Packed:
    """One scale of the first group written over, as a broken file would have it."""
    data = packed.data.clone()
    block, place = divmod(output, 32)
    scales = data[block, 0, :SCALE_BYTES].view(torch.bfloat16)
    scales[place] = value
    return replace(packed, data=data)


def in_layer(weights: PackedWeights, index: int, **changed: Any) -> PackedWeights:
    layers = list(weights.layers)
    layers[index] = replace(layers[index], **changed)
    return replace(weights, layers=tuple(layers))


def spoilt(tensor: Tensor, value: float) -> Tensor:
    changed = tensor.clone()
    changed[3] = value
    return changed


NORMS = ("attention_norm", "q_norm", "k_norm", "mlp_norm")
LINEARS = ("qk", "v", "output", "gate_up", "down")


@every_isa
def test_sound_weights_give_numbers(isa: Isa) -> None:
    assert read(sound(), isa).isfinite().all()


@pytest.mark.parametrize("value", [NAN, INF])
@every_isa
def test_a_spoilt_embedding_spoils_its_row_and_all_that_see_it(isa: Isa, value: float) -> None:
    weights, right = sound(), read(sound(), isa)
    got = read(replace(weights, embedding=with_scale(weights.embedding, 0, value)), isa)
    assert torch.equal(got[:AT], right[:AT])
    assert got[AT:].isnan().all()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("layer", [0, 3])
@pytest.mark.parametrize("part", NORMS + LINEARS)
@pytest.mark.parametrize("value", [NAN, INF])
def test_a_spoilt_layer_spoils_every_row(value: float, part: str, layer: int) -> None:
    weights = sound()
    found = getattr(weights.layers[layer], part)
    broken = with_scale(found, 1, value) if isinstance(found, Packed) else spoilt(found, value)
    got = read(in_layer(weights, layer, **{part: broken}), ISAS[0])
    assert not got.isfinite().all(dim=1).any()


@pytest.mark.parametrize("part", NORMS + LINEARS)
@pytest.mark.parametrize("isa", ISAS[1:], ids=lambda isa: isa.name)
def test_a_spoilt_layer_spoils_every_row_on_every_kind_of_processor(isa: Isa, part: str) -> None:
    weights = sound()
    found = getattr(weights.layers[1], part)
    broken = with_scale(found, 1, NAN) if isinstance(found, Packed) else spoilt(found, NAN)
    assert not read(in_layer(weights, 1, **{part: broken}), isa).isfinite().all(dim=1).any()


@pytest.mark.parametrize("value", [NAN, INF])
@every_isa
def test_a_spoilt_final_norm_or_head_is_seen(isa: Isa, value: float) -> None:
    weights = sound()
    normed = read(replace(weights, norm=spoilt(weights.norm, value)), isa)
    assert not normed.isfinite().all(dim=1).any()
    headed = read(replace(weights, head=with_scale(weights.head, 7, value)), isa)
    assert not headed[:, 7].isfinite().any()
    assert headed[:, 8:].isfinite().all()


FIRST = {"queries": ("qk", 0), "keys": ("qk", 64), "values": ("v", 0)}  # outputs of 4, 2 and 2 heads of 16


@pytest.mark.parametrize("word", [0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000])
@pytest.mark.parametrize("of", FIRST)
def test_nothing_of_the_kind_is_lost_in_the_cache(of: str, word: int) -> None:
    """Rounding to sixteen bits must not carry a NaN, or what is infinite, over into a number."""
    weights = sound()
    name, first = FIRST[of]
    linear = getattr(weights.layers[0], name)
    bias = linear.bias.clone()
    bias.view(torch.uint32)[first] = word
    got = read(in_layer(weights, 0, **{name: replace(linear, bias=bias)}), ISAS[0])
    assert not got.isfinite().all(dim=1).any()


# --- too small to have an inverse

SIZES = torch.tensor([1.0, 1e-32, 3e-37, 1e-38, 1e-40, 1e-45]).repeat_interleave(64)  # of six groups of channels
SMALL: dict[str, Any] = {
    "hidden_size": len(SIZES),
    "intermediate_size": len(SIZES),
    "num_hidden_layers": 1,
    "mlp_bias": True,
    "tie_word_embeddings": False,
}
Change = Callable[[Tensors, Tensor], None]


def by_norm(name: str) -> Change:
    return lambda tensors, sizes: tensors[name].mul_(sizes)


def by_bias(tensors: Tensors, sizes: Tensor) -> None:
    """Of the projection up: no weight is as small."""
    tensors["model.layers.0.mlp.up_proj.weight"][sizes != 1] = 0
    tensors["model.layers.0.mlp.up_proj.bias"] = sizes


INPUTS: dict[str, Change] = {
    "qkv": by_norm("model.layers.0.input_layernorm.weight"),
    "gate_up": by_norm("model.layers.0.post_attention_layernorm.weight"),
    "down": by_bias,
    "head": by_norm("model.norm.weight"),
}


def sized(change: Change, sizes: Tensor, isa: Isa) -> Tensor:
    """Logits of a model with inputs of these sizes: the same one by one, three rows at a time and all at once."""
    arch, tensors, ids = read_arch(config_of(SMALL)), tensors_of(SMALL, 0), random_ids(20)
    change(tensors, sizes)
    decoder = PackedDecoder(PackedModel(arch, packed_weights(arch, tensors, "int8"), 64, program.load(isa)))
    read_alone, *read_wide = (read_by(decoder, ids, width) for width in (1, 3, 20))
    assert all(torch.equal(rows, read_alone) for rows in read_wide)
    return read_alone


def read_by(decoder: PackedDecoder, ids: Tensor, width: int) -> Tensor:
    decoder.crop(0)
    return torch.cat([decoder.forward(part) for part in pieces(ids, width)])


@pytest.mark.parametrize("linear", INPUTS)
@every_isa
def test_a_group_of_inputs_too_small_to_have_an_inverse_is_zero(isa: Isa, linear: str) -> None:
    """127 over 3e-37 is infinite in float32; what is below 1e-38 is denormal."""
    got = sized(INPUTS[linear], SIZES, isa)
    assert got.isfinite().all()
    assert torch.equal(got, sized(INPUTS[linear], torch.where(SIZES == 1, 1.0, 0.0), isa))
    assert not torch.equal(got, sized(INPUTS[linear], torch.ones_like(SIZES), isa))


@pytest.mark.parametrize("size", SIZES.unique().tolist()[:-1])
@every_isa
def test_a_row_of_them_gives_next_to_nothing(isa: Isa, size: float) -> None:
    got = sized(INPUTS["head"], torch.full_like(SIZES, size), isa)
    assert got.isfinite().all()
    assert float(got.abs().max()) <= 100 * size


def test_the_references_round_them_alike() -> None:
    rows = SIZES * torch.linspace(-1, 1, len(SIZES))
    for got in (round_rows(rows[None]), Rounded(Same(), len(SIZES))(rows[None])):
        assert torch.equal(got[0, SIZES != 1], torch.zeros(len(SIZES) - 64))
        torch.testing.assert_close(got[0, :64], rows[:64], rtol=0, atol=1 / 253)


class Same:
    """A linear that changes nothing."""

    num_bytes = 0

    def __call__(self, rows: Tensor) -> Tensor:
        return rows
