"""May a configuration run in nf4, fp4 or LLM.int8 here? A random small model must say what its weights stand for.

The reference has the same weights as floats. The verdict is remembered for this device and bitsandbytes. That the
decoder computes the configuration rightly is another admission's business; knows no real weights.
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
from localspec.core.verdicts import difference_of
from localspec.engine.arch import Arch, read_arch
from localspec.engine.four_bit import dequantised, library, quantise
from localspec.engine.linear import Dense, EightBits, Form, FourBits
from localspec.loading.self_check import config as admission
from localspec.loading.self_check.cpu import Invented, read_in, relative
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
class StoodFor:
    """Makes floats of what another format would make."""

    form: FourBits | EightBits
    stream: torch.dtype = torch.float32

    @property
    def device(self) -> str:
        return self.form.device

    @property
    def table(self) -> torch.dtype:
        return self.form.table

    def linear(self, slabs: Iterable[Tensor], shape: tuple[int, int], bias: Tensor | None) -> Dense:
        if isinstance(self.form, FourBits):
            return Dense(dequantised(*quantise(slabs, shape, self.form.kind, self.device)), bias)
        made = self.form.linear(slabs, shape, None)
        return Dense(made.codes * (made.scales / 127)[:, None], bias)


def admit_format(config: dict[str, Any], form: Form) -> None:
    """Nothing, or EngineError: bitsandbytes is not there, or computes something else than it should."""
    if not isinstance(form, FourBits | EightBits):
        return
    off = difference_of(fingerprint(config, form), lambda: difference(shrunk(config), form))
    if not off <= TOLERANCE:
        name = form.kind if isinstance(form, FourBits) else "int8"
        raise EngineError(
            f"bitsandbytes computes {name} wrongly on this machine (off by {off:.1e}).",
            hint="Use --quant bf16, or another version of bitsandbytes.",
        )


def fingerprint(config: dict[str, Any], form: Form) -> str:
    device = torch.cuda.get_device_name() if form.device == "cuda" else platform.processor() or platform.machine()
    whole = f"{admission.fingerprint(config)} {form} {library().__version__} {device}"
    return hashlib.sha256(whole.encode()).hexdigest()


def shrunk(config: dict[str, Any]) -> Arch:
    return replace(read_arch(admission.shrink(config)), intermediate_size=WIDE)


def difference(arch: Arch, form: FourBits | EightBits) -> float:
    """Of the row that is furthest off."""
    weights = Invented(arch)
    pair: tuple[Form, Form] = form, StoodFor(form)
    got, expected = (assemble_in(one, arch, weights, context=ROWS) for one in pair)
    ids = torch.arange(ROWS) * 37 % arch.vocab_size
    return relative(read_in(got, ids, WIDTHS).float(), read_in(expected, ids, ROWS))
