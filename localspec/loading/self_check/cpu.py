"""Numerical self-check of the CPU engine: a random small model of a configuration must agree with the torch decoder.

The reference has the tensors that were packed and rounds as the engine does, so that a small fault shows, also one of
the packer. The verdict is remembered. That rows come out equal bit for bit at every width is checked at each load.
Knows no real weights.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any  # Any: a model's config.json

import torch
from torch import Tensor

from localspec.core.errors import EngineError
from localspec.core.requests import MAX_DRAFT
from localspec.core.self_check_results import difference_of
from localspec.core.weight_formats import FLOATS
from localspec.engine.arch import Arch, read_arch
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.decoder import Decoder
from localspec.engine.protocols import ExitStates
from localspec.loading.cpu import one_thread, pack_source
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.self_check import config as config_check
from localspec.loading.self_check.cpu_reference import reference
from localspec.loading.sources import StateDictSource, WeightReader

if TYPE_CHECKING:
    from localspec.engine.cpu.decoder import PackedDecoder
    from localspec.engine.cpu.program import Program

# Of the root mean square of a row's logits. Where a number falls to the other side of a rounding border, as in every
# tenth row or so, what follows is set apart by some hundredths; where none does, the two differ by 4e-7 at most, and by
# 2e-2 at least where an epsilon, a frequency, a norm or a window is wrong (measured over 27 configurations). So the
# best text is held to be equal, and every text to be near.
TOLERANCE, NEAR = 1e-4, 0.1
TEXTS, ROWS = 16, 12
HIDDEN = 128
SPLIT = [5, 1, 6]
IN_TORCH = f"Use --quant {FLOATS[-1]}."
WIDEST = MAX_DRAFT + 1  # a draft and the token before it


def verify_packed(config: dict[str, Any], weight_format: PackedFormat, program: Program) -> None:
    """EngineError where the engine computes something else than it should for this configuration."""
    from localspec.engine.cpu.decoder import PackedDecoder
    from localspec.engine.cpu.model import PackedModel

    blueprint = Blueprint(shrunk(config), weight_format)
    invented = RandomWeights(blueprint.arch)
    decoder = PackedDecoder(PackedModel(blueprint.arch, pack_source(blueprint, invented, program), WIDEST, program))
    try:
        with one_thread():
            check_agreement(config, blueprint, decoder, invented.tensors)
            check_widths(decoder)
            check_exit(decoder)
    finally:
        decoder.close()


def shrunk(config: dict[str, Any]) -> Arch:
    """Every flag stays; the fewer numbers are rounded, the more texts stay clear of a border."""
    arch = read_arch(config_check.shrink(config))
    heads = arch.num_kv_heads * min(arch.query_group, 2)
    return replace(arch, hidden_size=HIDDEN, num_heads=heads)


def check_agreement(
    config: dict[str, Any], blueprint: Blueprint, decoder: PackedDecoder, tensors: dict[str, Tensor]
) -> None:
    def measure() -> float:
        return difference(decoder, reference(blueprint, StateDictSource(tensors), context=decoder.context))

    off = difference_of(fingerprint(config, blueprint, decoder.model.program), measure)
    if not off <= TOLERANCE:
        message = f"The CPU engine does not agree with torch on this configuration (off by {off:.1e})."
        raise EngineError(message, hint=IN_TORCH)


def check_widths(decoder: PackedDecoder) -> None:
    """Checks that rows by two, by three, …, by WIDEST (on two threads) equal single rows."""
    ids = texts(decoder.arch)[0].repeat(2)[:WIDEST]
    alone = read_in(decoder, ids, 1)
    for width in range(2, WIDEST + 1):
        if width == WIDEST and os.cpu_count() != 1:
            decoder.set_threads(2)
        if not torch.equal(alone, read_in(decoder, ids, width)):
            raise EngineError(
                f"The CPU engine is not batch-invariant: {width} rows differ from {width} single rows.", hint=IN_TORCH
            )


def check_exit(decoder: PackedDecoder) -> None:
    """Checks that rows drafted at the first layer, and verified with the states from there, equal single rows."""
    ids = texts(decoder.arch)[0]
    alone = read_in(decoder, ids, 1)
    decoder.crop(0)
    states, _ = decoder.early(ids[:-1], 1, 0)
    if not torch.equal(alone, decoder.forward(ids, ExitStates(1, states))):
        raise EngineError("The CPU engine verifies drafts differently than it decodes.", hint=IN_TORCH)


def fingerprint(config: dict[str, Any], blueprint: Blueprint, program: Program) -> str:
    from localspec.engine.cpu.program import fingerprint as made_of

    formats = " ".join(f"{piece.name} {piece.weight_format}" for piece in blueprint.pieces.values())
    whole = f"{config_check.fingerprint(config)} {formats} {made_of(program.isa)}"
    return hashlib.sha256(whole.encode()).hexdigest()


def difference(decoder: PackedDecoder, reference: Decoder) -> float:
    """Relative error in the best text; infinite where any text is far off."""
    found = [relative(read_in(decoder, ids, SPLIT), read_in(reference, ids, ROWS)) for ids in texts(decoder.arch)]
    return min(found) if max(found) <= NEAR else math.inf


def texts(arch: Arch) -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    return list(torch.randint(arch.vocab_size, (TEXTS, ROWS), generator=draw))


def read_in(decoder: Decoder | PackedDecoder, ids: Tensor, widths: int | list[int]) -> Tensor:
    """Logits of ids [rows], read so many rows at a time."""
    decoder.crop(0)
    return torch.cat([decoder.forward(part) for part in torch.split(ids, widths)])


def relative(got: Tensor, expected: Tensor) -> float:
    """Relative error of the worst row."""
    off = (got - expected).square().mean(-1).sqrt() / expected.square().mean(-1).sqrt()
    return float(off.max()) if off.isfinite().all() else math.inf


class RandomWeights(WeightReader):
    """Random weights for any tensor. The stream of residuals stays as small as the norms' epsilon, and so do
    queries and keys that are normed: else a wrong epsilon would not show."""

    def __init__(self, arch: Arch) -> None:
        super().__init__(StateDictSource({}))
        self.arch, self.tensors = arch, dict[str, Tensor]()
        self.small = 2 * math.sqrt(max(arch.norm_eps, 1e-10))
        self.draw = torch.Generator().manual_seed(0)

    def rows(self, name: str, first: int, last: int, shape: tuple[int, ...]) -> Tensor:
        if name not in self.tensors:
            self.tensors[name] = self.invent(name, shape)
        found = self.tensors[name][first:last]
        self.bytes_read += found.nbytes
        return found

    def refuse_unused(self, *, tied_head: bool) -> None:
        """Does nothing: random weights have no unused tensors."""

    def invent(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.rand(shape, generator=self.draw) + 0.5
        weight = torch.randn(shape, generator=self.draw) * (1.5 / math.sqrt(shape[-1]) if len(shape) == 2 else 0.5)
        if "embed_tokens" in name:
            return weight * math.sqrt(shape[1]) * self.small
        normed = ("q_proj", "k_proj") if self.arch.qk_norm else ()
        return weight * (self.small if any(part in name for part in ("o_proj", "down_proj", *normed)) else 1.0)
