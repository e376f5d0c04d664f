"""Real models have a few channels a hundred times the others: rounding by row and group of 64 lets them do no harm."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import GROUP
from localspec.engine.cpu.isa import Isa
from tests.engine.cpu.packed_models import ISAS, config_of, packed_weights, tensors_of, unpacked

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
    decoder = PackedDecoder(arch, packed, 32, program.load(isa))
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
    _, plain = PackedDecoder(arch, calm, 32, program.load(isa)).early(ids, 0, 0)
    assert error(plain, functional.rms_norm(states, (arch.hidden_size,), eps=arch.norm_eps) @ weight.t()) <= BOUND
