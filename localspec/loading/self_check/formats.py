"""Numerical self-check of bitsandbytes: a random small model must compute what its quantised weights stand for.

The reference has the same weights as floats. The verdict is remembered for this device and bitsandbytes. That the
decoder computes the configuration rightly is another check's business; knows no real weights.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any  # Any: a model's config.json

import torch
from torch import Tensor

from localspec.core.errors import EngineError
from localspec.core.self_check_results import difference_of
from localspec.core.weight_formats import FLOATS
from localspec.engine.arch import Arch, read_arch
from localspec.engine.four_bit import dequantised, library, quantise
from localspec.engine.linear import Dense, EightBitLinears, FourBitLinears, LinearMaker
from localspec.loading.self_check import config as config_check
from localspec.loading.self_check.cpu import RandomWeights, read_in, relative
from localspec.loading.torch import assemble_in

# Of the root mean square of a row's logits. Rows rounded to 16 bits or, in LLM.int8, to 8 are set apart by a few
# hundredths at most; a product with the wrong weights by about one.
TOLERANCE = 0.1
ROWS = 24
STAND_IN = {  # for models that are not our decoder's: what is tried then is the format alone
    "model_type": "llama",
    "vocab_size": 320,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
WIDTHS = [1, 5, 18]  # kernels differ by width
WIDE = 128  # whole blocks, so that fused kernels are what runs


@dataclass(frozen=True, slots=True)
class DequantisedReference:
    """Makes the floats that another format's weights stand for."""

    maker: FourBitLinears | EightBitLinears
    stream: torch.dtype = torch.float32

    @property
    def device(self) -> str:
        return self.maker.device

    @property
    def table(self) -> torch.dtype:
        return self.maker.table

    def linear(self, slabs: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None) -> Dense:
        if isinstance(self.maker, FourBitLinears):
            return Dense(dequantised(*quantise(slabs, shape, self.maker.quant_type, self.device)), bias)
        made = self.maker.linear(slabs, shape, None)
        return Dense(made.codes * (made.scales / 127)[:, None], bias)


def verify_format(config: dict[str, Any], maker: LinearMaker) -> None:
    """EngineError where bitsandbytes is not installed, or computes something else than it should."""
    if not isinstance(maker, FourBitLinears | EightBitLinears):
        return
    off = difference_of(fingerprint(config, maker), lambda: difference(shrunk(config), maker))
    if not off <= TOLERANCE:
        raise EngineError(
            f"bitsandbytes computes {maker.name} wrongly on this machine (off by {off:.1e}).",
            hint=f"Use --quant {FLOATS[-1]}, or another version of bitsandbytes.",
        )


def fingerprint(config: dict[str, Any], maker: LinearMaker) -> str:
    device = torch.cuda.get_device_name() if maker.device == "cuda" else platform.processor() or platform.machine()
    whole = f"{config_check.fingerprint(config)} {maker} {library().__version__} {device}"
    return hashlib.sha256(whole.encode()).hexdigest()


def shrunk(config: dict[str, Any]) -> Arch:
    return replace(read_arch(config_check.shrink(config)), intermediate_size=WIDE)


def difference(arch: Arch, maker: FourBitLinears | EightBitLinears) -> float:
    """Relative error of the worst row."""
    weights = RandomWeights(arch)
    pair: tuple[LinearMaker, LinearMaker] = maker, DequantisedReference(maker)
    got, expected = (assemble_in(one, arch, weights, context=ROWS) for one in pair)
    ids = torch.arange(ROWS) * 37 % arch.vocab_size
    return relative(read_in(got, ids, WIDTHS).float(), read_in(expected, ids, ROWS))
