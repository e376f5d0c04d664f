"""The packer takes every tensor of a checkpoint to the place where the engine looks for it.

What it packs must compute what torch computes with the same tensors, which are all different. Where torch rounds alike,
the order of additions is left between the two, and any mistake seeded here shows; where it does not, the rounding is.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from localspec.core.errors import CheckpointError, EngineError
from localspec.engine.arch import read_arch
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.cpu.isa import choose
from localspec.engine.cpu.model import PackedModel
from localspec.engine.cpu.program import Program, load
from localspec.engine.decoder import Decoder
from localspec.loading.cpu import Packer, pack_source
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.self_check.cpu import TOLERANCE, difference, verify_packed
from localspec.loading.self_check.cpu_reference import reference
from localspec.loading.sources import StateDictSource, WeightReader
from localspec.loading.torch import assemble
from tests.loading.test_families import FAMILIES, config_of
from tests.support.models import ODD, TINY, random_tensors, tensor_shapes

pytestmark = pytest.mark.heavy

Config = dict[str, Any]
KINDS: tuple[PackedFormat, ...] = ("int8", "int4")
ROUNDING: dict[PackedFormat, float] = {
    "int8": 0.08,
    "int4": 0.55,
}  # root mean square, as a share of the logits': models so
# small are rounded roughly. Logits that have nothing to do with each other are 1.4 apart.
CONTEXT = 32

TWO_LAYERS = {"num_hidden_layers": 2, "max_window_layers": 1}
MODELS: dict[str, Config] = {name: {**config_of(name), **TWO_LAYERS} for name in FAMILIES}
MODELS |= {
    f"odd sizes, {head}": {**TINY, **ODD, **TWO_LAYERS, "tie_word_embeddings": head == "tied"}
    for head in ("tied", "untied")
}


@pytest.fixture(scope="module")
def engine() -> Program:
    return load(choose())


def tensors_of(config: Config) -> dict[str, Tensor]:
    """Norms and biases too are random, and no two of them alike."""
    return random_tensors(config, seed=3, dtype=torch.float32)


def packed(config: Config, kind: PackedFormat, engine: Program) -> PackedDecoder:
    blueprint = Blueprint(read_arch(config), kind)
    weights = pack_source(blueprint, WeightReader(StateDictSource(tensors_of(config))), engine)
    return PackedDecoder(PackedModel(blueprint.arch, weights, CONTEXT, engine))


def off_rounded(decoder: PackedDecoder, config: Config, kind: PackedFormat) -> float:
    """From torch that rounds as the engine does."""
    blueprint = Blueprint(decoder.arch, kind)
    return difference(decoder, reference(blueprint, StateDictSource(tensors_of(config)), context=CONTEXT))


def off(decoder: PackedDecoder, config: Config) -> float:
    """From torch that does not round."""
    exact = assemble(decoder.arch, StateDictSource(tensors_of(config)), dtype=torch.float32, context=CONTEXT)
    got, expected = read(decoder), read(exact)
    return float((got - expected).norm() / expected.norm())


def read(decoder: PackedDecoder | Decoder) -> Tensor:
    decoder.crop(0)
    return decoder.forward(torch.arange(CONTEXT) * 37 % decoder.arch.vocab_size)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_packed_computes_what_torch_does_with_the_same_tensors(name: str, kind: PackedFormat, engine: Program):
    decoder = packed(MODELS[name], kind, engine)
    assert off_rounded(decoder, MODELS[name], kind) <= TOLERANCE
    assert off(decoder, MODELS[name]) <= ROUNDING[kind]


# --- mistakes

BIASED, NORMED, ODDLY = MODELS["llama biased and tied"], MODELS["qwen3 biased"], MODELS["odd sizes, untied"]
SWAPPED: dict[str, tuple[Config, str, str]] = {
    "norms of queries and keys": (NORMED, "q_norm", "k_norm"),
    "norms of a layer": (BIASED, "input_layernorm", "post_attention_layernorm"),
    "final norm and a layer's": (BIASED, "model.norm", "model.layers.0.input_layernorm"),
    "weights of keys and values": (BIASED, "k_proj.weight", "v_proj.weight"),
    "weights of gate and up": (BIASED, "gate_proj.weight", "up_proj.weight"),
    "biases of keys and values": (BIASED, "k_proj.bias", "v_proj.bias"),
    "biases of gate and up": (BIASED, "gate_proj.bias", "up_proj.bias"),
    "biases of the output and down": (BIASED, "self_attn.o_proj.bias", "mlp.down_proj.bias"),
    "head and embedding": (ODDLY, "lm_head", "model.embed_tokens"),
    "two layers": (BIASED, "layers.0.", "layers.1."),
}


@pytest.fixture(params=SWAPPED)
def swapped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The packer reads each of two tensors where it should read the other."""
    config, one, other = SWAPPED[request.param]
    right = Packer.rows

    def rows(self: Packer, name: str, *args: int) -> Tensor:
        for here, there in ((one, other), (other, one)):
            if here in name:
                return right(self, name.replace(here, there), *args)
        return right(self, name, *args)

    monkeypatch.setattr(Packer, "rows", rows)
    return config


def test_a_tensor_in_anothers_place_is_seen(swapped: Config, engine: Program):
    decoder = packed(swapped, "int8", engine)
    assert off_rounded(decoder, swapped, "int8") > 100 * TOLERANCE


def test_a_packer_that_mistakes_one_tensor_for_another_fails_the_self_check(swapped: Config, engine: Program):
    with pytest.raises(EngineError, match="does not agree with torch"):
        verify_packed(swapped, "int8", engine)


# --- numbers that are none

ONE_LAYER = {"num_hidden_layers": 1, "tie_word_embeddings": False}
SPOILT = [
    pytest.param(config, name, id=f"{config['model_type']} {name}")
    for config in ({**BIASED, **ONE_LAYER}, {**NORMED, **ONE_LAYER})
    for name in tensor_shapes(read_arch(config))
]


@pytest.mark.parametrize(("config", "name"), SPOILT)
def test_a_tensor_with_a_weight_that_is_no_number_is_refused_by_name(config: Config, name: str, engine: Program):
    tensors = tensors_of(config)
    tensors[name].view(-1)[-1] = float("nan")
    with pytest.raises(CheckpointError, match=f"'{name}'.*infinite or not a number"):
        pack_source(Blueprint(read_arch(config), "int8"), WeightReader(StateDictSource(tensors)), engine)
