"""Numbers that are none: refused when weights are packed, and never lost on the way to the logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.decoder import PackedDecoder, PackedWeights
from localspec.engine.cpu.formats import SCALE_BYTES, Format
from localspec.engine.cpu.isa import Isa
from localspec.engine.cpu.pack import Packed, pack
from localspec.errors import CheckpointError
from tests.engine.cpu.packed_models import ISAS, KINDS, config_of, packed_weights, random_ids, tensors_of

pytestmark = pytest.mark.heavy

SAID: dict[str, Any] = {"model_type": "qwen3", "head_dim": 16, "attention_bias": True, "tie_word_embeddings": False}
AT = 12  # the position of the only token whose embedding is spoilt
NAN, INF = float("nan"), float("inf")
every_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_no_numbers_are_refused(kind: Format, value: float) -> None:
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
    wide = PackedDecoder(arch, weights, 64, code).forward(ids)
    alone = PackedDecoder(arch, weights, 64, code)
    narrow = torch.cat([alone.forward(ids[i : i + 1]) for i in range(len(ids))])
    assert torch.equal(wide.isfinite() & narrow.isfinite(), wide.isfinite())
    return narrow


def sound(kind: Format = "int8") -> PackedWeights:
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
LINEARS = ("qkv", "output", "gate_up", "down")


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


FIRST = {"queries": 0, "keys": 64, "values": 96}  # of the fused projection's outputs: 4, 2 and 2 heads of 16


@pytest.mark.parametrize("word", [0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000])
@pytest.mark.parametrize("of", FIRST)
def test_nothing_of_the_kind_is_lost_in_the_cache(of: str, word: int) -> None:
    """Rounding to sixteen bits must not carry a NaN, or what is infinite, over into a number."""
    weights = sound()
    qkv = weights.layers[0].qkv
    assert qkv.bias is not None
    bias = qkv.bias.clone()
    bias.view(torch.uint32)[FIRST[of]] = word
    got = read(in_layer(weights, 0, qkv=replace(qkv, bias=bias)), ISAS[0])
    assert not got.isfinite().all(dim=1).any()
