"""Real models have a few channels a hundred times the others: rounding by row and group of 64 lets them do no harm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import GROUP
from localspec.engine.cpu.isa import Isa
from localspec.engine.cpu.model import PackedModel, PackedWeights
from localspec.engine.decoder import Decoder
from localspec.engine.linear import Linear
from localspec.loading.sources import StateDictSource
from localspec.loading.torch import assemble
from tests.support.packed_models import (
    ISAS,
    RoundedCache,
    Tensors,
    config_of,
    dense_weights,
    packed_weights,
    tensors_of,
    unpacked,
    with_rounding,
)

pytestmark = pytest.mark.heavy

SAID = {"hidden_size": 2048, "vocab_size": 256, "num_hidden_layers": 1, "tie_word_embeddings": False}
OUTLIERS = [5, 700, 701, 1999]
BOUND = 0.02


def rounded_by(x: Tensor, size: int) -> Tensor:
    """x [rows, inputs] to eight bits, `size` inputs to a scale."""
    groups = x.view(len(x), -1, size)
    scales = groups.abs().amax(-1, keepdim=True) / 127
    return ((groups / scales).round() * scales).view_as(x)


def error(got: Tensor, expected: Tensor) -> float:
    """Root mean square, as a share of what it should be."""
    return float((got - expected).norm() / expected.norm())


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
def test_channels_of_a_hundred_times_the_others_cost_at_most_two_percent_in_int8(isa: Isa) -> None:
    """The final norm makes the outliers, as it does in real models, and the head multiplies them. Layers are left
    out: an early exit before the first."""
    arch, tensors = read_arch(config_of(SAID)), tensors_of(SAID, 0)
    for name in [name for name in tensors if ".layers." in name]:
        tensors[name] = torch.zeros_like(tensors[name])
    factor = torch.ones(arch.hidden_size)
    factor[OUTLIERS] = 100.0
    tensors["model.norm.weight"] = factor
    packed = packed_weights(arch, tensors, "int8")
    decoder = PackedDecoder(PackedModel(arch, packed, 32, program.load(isa)))
    ids = torch.arange(16)
    states, got = decoder.early(ids, 0, 0)
    assert torch.equal(states, unpacked(packed.embedding)[:16])
    x = functional.rms_norm(states, (arch.hidden_size,), factor, arch.norm_eps)
    weight = tensors["lm_head.weight"]
    expected = x @ weight.t()
    assert error(got, expected) <= BOUND
    assert error(rounded_by(x, GROUP) @ unpacked(packed.head).t(), got) <= 1e-3  # what is lost is lost by rounding
    assert error(rounded_by(x, arch.hidden_size) @ weight.t(), expected) > 2 * BOUND  # one scale a row would not do
    calm = replace(packed, norm=torch.ones(arch.hidden_size))
    _, plain = PackedDecoder(PackedModel(arch, calm, 32, program.load(isa))).early(ids, 0, 0)
    assert error(plain, functional.rms_norm(states, (arch.hidden_size,), eps=arch.norm_eps) @ weight.t()) <= BOUND


# --- inside a layer

AT = "model.layers.0"
WIDTH = 1024  # of the stream and of the feed-forward
INSIDE = {
    "hidden_size": WIDTH,
    "intermediate_size": WIDTH,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 256,
    "num_hidden_layers": 1,
    "mlp_bias": True,
}
ARCH = read_arch(config_of(INSIDE))
CHANNELS = [5, 300, 301, 1001]
IDS = torch.arange(64)
COPIES = torch.eye(WIDTH) * (127 / 128)  # exact in eight bits


@dataclass(frozen=True, slots=True)
class ByRow:
    """A linear whose rows are rounded with one scale each."""

    dense: Linear

    @property
    def num_bytes(self) -> int:
        return self.dense.num_bytes

    def __call__(self, rows: Tensor) -> Tensor:
        return self.dense(rounded_by(rows, rows.shape[1]))


def before_qkv(tensors: Tensors) -> None:
    tensors[f"{AT}.input_layernorm.weight"][CHANNELS] = 100.0


def before_output(tensors: Tensors) -> None:
    """In one head."""
    tensors[f"{AT}.self_attn.v_proj.weight"][[5, 40]] *= 100.0


def before_gate_up(tensors: Tensors) -> None:
    tensors[f"{AT}.post_attention_layernorm.weight"][CHANNELS] = 100.0


def before_down(tensors: Tensors) -> None:
    tensors[f"{AT}.mlp.up_proj.weight"][CHANNELS] *= 100.0


def nowhere(_: Tensors) -> None:
    pass


def model(linear: str) -> Tensors:
    """No norm has a preference, and biases are none. For `output`, all positions weigh alike and values are copies of
    channels; for `gate_up`, gates are held open and what comes through is copied to the stream: so one projection's
    error is seen, and not that of all before it."""
    tensors = tensors_of(INSIDE, 0)
    for name, tensor in tensors.items():
        if tensor.dim() == 1:
            tensor.fill_(float(not name.endswith("bias")))
    if linear == "gate_up":
        tensors[f"{AT}.mlp.gate_proj.weight"].zero_()
        tensors[f"{AT}.mlp.gate_proj.bias"].fill_(2.0)
        tensors[f"{AT}.mlp.down_proj.weight"] = COPIES.clone()
    if linear == "output":
        tensors[f"{AT}.self_attn.k_proj.weight"].zero_()
        tensors[f"{AT}.self_attn.v_proj.weight"] = COPIES.clone()
        tensors[f"{AT}.mlp.down_proj.weight"].zero_()
    elif linear != "qkv":
        tensors[f"{AT}.self_attn.o_proj.weight"].zero_()
    return tensors


def exact(tensors: Tensors, packed: PackedWeights) -> Decoder:
    """In float32, but for the embedding, which is what the engine reads."""
    embedding = unpacked(packed.embedding)[: ARCH.vocab_size, :WIDTH].contiguous()
    given = StateDictSource({**tensors, "model.embed_tokens.weight": embedding})
    return assemble(ARCH, given, dtype=torch.float32, context=len(IDS))


def by_row(decoder: Decoder, linear: str) -> Decoder:
    (layer,) = decoder.weights.layers
    coarse = replace(layer, **{linear: ByRow(getattr(layer, linear))})
    return Decoder(ARCH, replace(decoder.weights, layers=(coarse,)), decoder.cache)


def by_group(tensors: Tensors, packed: PackedWeights) -> Decoder:
    """Rounded as the engine does, in torch."""
    weights = with_rounding(ARCH, dense_weights(ARCH, tensors, packed))
    return Decoder(ARCH, weights, RoundedCache(ARCH, len(IDS), dtype=torch.float32))


def seen(decoder: PackedDecoder | Decoder, linear: str) -> Tensor:
    """What comes out of it: keys and values in the cache, or what is added to the stream."""
    (before, _), (after, _) = (decoder.early(IDS, layers, 0) for layers in (0, 1))
    if linear != "qkv":
        return (after - before)[:, :WIDTH]
    stored = decoder.cache.store.float()
    if isinstance(decoder, Decoder):
        return stored.view(len(IDS), 2, ARCH.num_kv_heads, ARCH.head_dim).permute(1, 2, 0, 3)
    keys, values = stored[0]
    keys = keys.view(ARCH.num_kv_heads, -1, ARCH.head_dim, 16).transpose(2, 3).reshape_as(values)
    return torch.stack((keys, values))[:, :, : len(IDS)]


PLANTED: dict[str, Callable[[Tensors], None]] = {
    "qkv": before_qkv,
    "output": before_output,
    "gate_up": before_gate_up,
    "down": before_down,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("linear", PLANTED)
@pytest.mark.parametrize(
    "isa", [ISAS[0], *(pytest.param(isa, marks=pytest.mark.slow) for isa in ISAS[1:])], ids=lambda isa: isa.name
)
def test_they_cost_every_linear_of_a_layer_at_most_two_percent_in_int8(isa: Isa, linear: str) -> None:
    """The norm before it makes them, or the projection of values, or up. All that is lost is lost by rounding: torch,
    rounding alike, agrees."""
    for plant in (nowhere, PLANTED[linear]):
        tensors = model(linear)
        plant(tensors)
        packed = packed_weights(ARCH, tensors, "int8")
        got = seen(PackedDecoder(PackedModel(ARCH, packed, len(IDS), program.load(isa))), linear)
        expected = seen(exact(tensors, packed), linear)
        assert error(got, expected) <= BOUND
        assert error(got, seen(by_group(tensors, packed), linear)) <= 1e-3
    coarse = seen(by_row(exact(tensors, packed), linear), linear)
    assert error(coarse, expected) > 1.5 * BOUND  # one scale a row would not do
