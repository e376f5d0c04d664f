"""Finds the weights that quantised tensors stand for: names, shapes and types, checked by headers alone.

The layouts, [outputs, inputs] being the weight (facts from AutoGPTQ's qlinear_cuda_old.py, AutoAWQ's gemm.py,
compressed-tensors' pack_quantized and naive_quantized, transformers' finegrained_fp8.py and fbgemm_fp8.py):
- gptq: qweight int32 [inputs * bits / 32, outputs], qzeros int32 [groups, outputs * bits / 32], scales [groups,
  outputs], g_idx int32 [inputs], the group of each input.
- awq: qweight int32 [inputs, outputs / 8], qzeros int32 [groups, outputs / 8], scales [groups, outputs].
- packed: weight_packed int32 [outputs, inputs * bits / 32], weight_shape, weight_scale [outputs, groups],
  weight_zero_point int32 [outputs * bits / 32, groups], weight_g_idx int32 [inputs].
- whole: weight int8 or float8 [outputs, inputs], weight_scale (also weight_scale_inv, which is no inverse) for a
  tensor, output, group or block, weight_zero_point int8 alike.

Knows no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any  # Any: a stranger's config.json

from localspec.core.errors import REPEAT, CheckpointError
from localspec.models.prequantised.config import read_rules
from localspec.models.prequantised.rules import QuantisationRules
from localspec.models.prequantised.scheme import Grain, Layout, Scheme
from localspec.models.safetensors_index import TensorInfo

Tensors = Mapping[str, TensorInfo]
Shape = tuple[int, ...]

CODES: dict[Layout, str] = {"gptq": "qweight", "awq": "qweight", "packed": "weight_packed", "whole": "weight"}
SCALES: dict[Layout, tuple[str, ...]] = {
    "gptq": ("scales",),
    "awq": ("scales",),
    "packed": ("weight_scale",),
    "whole": ("weight_scale", "weight_scale_inv"),
}
ZEROS: dict[Layout, str] = {
    "gptq": "qzeros",
    "awq": "qzeros",
    "packed": "weight_zero_point",
    "whole": "weight_zero_point",
}
ORDER: dict[Layout, str] = {"gptq": "g_idx", "awq": "g_idx", "packed": "weight_g_idx", "whole": "weight_g_idx"}
SIZE = "weight_shape"
OF_INPUTS = ("input_scale", "input_scale_ub", "input_zero_point", "activation_scale", "output_scale")  # not read
WORD = 32  # bits
FLOATS = ("F32", "F16", "BF16")
FLOAT_CODES, INT_CODES = "F8_E4M3", "I8"


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """A weight [outputs, inputs] and the names of its tensors; `module` is its own name without ".weight". `grain`:
    outputs and inputs that share a scale, never 0."""

    module: str
    layout: Layout
    scheme: Scheme
    shape: tuple[int, int]
    grain: Grain
    codes: str
    scales: str
    zeros: str | None
    order: str | None
    size: str | None

    @property
    def groups(self) -> int:
        """The number of scales along the inputs."""
        return ceil_div(self.shape[1], self.grain[1])

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(name for name in (self.codes, self.scales, self.zeros, self.order, self.size) if name)


def find_weights(config: Mapping[str, Any], tensors: Tensors) -> dict[str, StoredWeight]:
    """The stored weights by name; empty where none is to be unpacked."""
    rules = read_rules(config)
    if rules is None:
        return {}
    found = {f"{weight.module}.weight": weight for weight in each_weight(rules, tensors)}
    for name, weight in found.items():
        if name in tensors and name not in weight.parts:
            message = f"The checkpoint has '{name[:120]}' both as it is and as codes, in '{weight.codes[:120]}'."
            raise CheckpointError(message, hint=REPEAT)
    return found


def each_weight(rules: QuantisationRules, tensors: Tensors) -> Iterator[StoredWeight]:
    for layout in rules.layouts:
        ending = f".{CODES[layout]}"
        for name, info in tensors.items():
            if name.endswith(ending) and (layout != "whole" or info.dtype in (FLOAT_CODES, INT_CODES)):
                yield Module(rules, tensors, layout, name.removesuffix(ending)).weight()


def besides(weights: Mapping[str, StoredWeight], tensors: Collection[str]) -> set[str]:
    """The tensors that are parts of these weights, or only for quantised inputs."""
    found = {part for weight in weights.values() for part in weight.parts}
    idle = {f"{weight.module}.{part}" for weight in weights.values() for part in OF_INPUTS}
    return (found | idle) & set(tensors)


class Module:
    """Checks one module's tensors."""

    def __init__(self, rules: QuantisationRules, tensors: Tensors, layout: Layout, module: str) -> None:
        self.label, self.tensors, self.layout, self.module = rules.label, tensors, layout, module
        scheme = rules.scheme_of(module)
        if scheme is None:
            raise self.fault("no group of its config names it")
        self.scheme: Scheme = scheme

    def weight(self) -> StoredWeight:
        shape = self.shape()
        scales = self.name(*SCALES[self.layout])
        if scales is None:
            raise self.fault(f"it has no {SCALES[self.layout][0]}")
        grain = self.grain(scales, shape)
        return StoredWeight(
            self.module,
            self.layout,
            self.scheme,
            shape,
            grain,
            self.at(CODES[self.layout]),
            scales,
            self.zeros(shape, grain),
            self.order(shape),
            self.size(),
        )

    def shape(self) -> tuple[int, int]:
        """The shape of the weight, from its codes."""
        name = self.at(CODES[self.layout])
        dtype = "I32" if self.layout != "whole" else FLOAT_CODES if self.scheme.is_float else INT_CODES
        found = self.tensors[name].shape
        if self.tensors[name].dtype != dtype or len(found) != 2 or 0 in found:
            raise self.fault(f"its codes are {self.tensors[name].dtype} {str(found)[:40]}")
        first, second = found
        if self.layout == "gptq":
            return second, self.unpacked(first)
        if self.layout == "awq":
            return self.unpacked(second), first
        return first, self.unpacked(second) if self.layout == "packed" else second

    def unpacked(self, words: int) -> int:
        """The number of codes in so many words."""
        if words * WORD % self.scheme.bits:
            raise self.fault(f"{self.scheme.bits} bits do not fill its {words} words")
        return words * WORD // self.scheme.bits

    def grain(self, scales: str, shape: tuple[int, int]) -> Grain:
        """The first grain that matches the number of scales."""
        info = self.tensors[scales]
        if info.dtype not in FLOATS:
            raise self.fault(f"its scales are {info.dtype}")
        for outputs, inputs in self.scheme.grains:
            grain = outputs or shape[0], inputs or shape[1]
            if info.shape in self.grids(shape, grain):
                return grain
        raise self.fault(f"its scales are {str(info.shape)[:40]}, for {shape[0]} × {shape[1]} weights")

    def grids(self, shape: tuple[int, int], grain: Grain) -> tuple[Shape, ...]:
        """The possible shapes of a tensor with one number per grain."""
        rows, columns = ceil_div(shape[0], grain[0]), ceil_div(shape[1], grain[1])
        if self.layout in ("gptq", "awq"):
            return ((columns, rows),)
        flat: tuple[Shape, ...] = ((rows,),) if columns == 1 else ()
        single: tuple[Shape, ...] = ((),) if rows == columns == 1 else ()
        return ((rows, columns), *flat, *single)

    def zeros(self, shape: tuple[int, int], grain: Grain) -> str | None:
        name = self.name(ZEROS[self.layout])
        if name is None:
            if self.scheme.has_zeros:
                raise self.fault(f"it has no {ZEROS[self.layout]}")
            return None
        info, grids = self.tensors[name], self.grids(shape, grain)
        words: Shape = (ceil_div(shape[0] * self.scheme.bits, WORD), ceil_div(shape[1], grain[1]))
        if self.layout in ("gptq", "awq"):
            fits = info.dtype == "I32" and info.shape == words[::-1] and shape[0] * self.scheme.bits % WORD == 0
        else:
            fits = info.dtype == INT_CODES and info.shape in grids
            fits = fits or (self.layout == "packed" and info.dtype == "I32" and info.shape == words)
        if not fits:
            raise self.fault(f"its zeros are {info.dtype} {str(info.shape)[:40]}")
        return name

    def order(self, shape: tuple[int, int]) -> str | None:
        name = self.name(ORDER[self.layout])
        if name is None:
            if self.scheme.has_order:
                raise self.fault(f"it has no {ORDER[self.layout]}")
            return None
        info = self.tensors[name]
        if info.dtype not in ("I32", "I64") or info.shape != (shape[1],):
            raise self.fault(f"its {ORDER[self.layout]} is {info.dtype} {str(info.shape)[:40]}")
        return name

    def size(self) -> str | None:
        """The name of the shape tensor, where codes are padded to words."""
        name = self.name(SIZE) if self.layout == "packed" else None
        if name and (self.tensors[name].dtype not in ("I32", "I64") or self.tensors[name].shape != (2,)):
            raise self.fault(f"its {SIZE} is {self.tensors[name].dtype} {str(self.tensors[name].shape)[:40]}")
        return name

    def name(self, *parts: str) -> str | None:
        return next((name for part in parts if (name := self.at(part)) in self.tensors), None)

    def at(self, part: str) -> str:
        return f"{self.module}.{part}"

    def fault(self, what: str) -> CheckpointError:
        message = f"The checkpoint's '{self.module[:120]}' is not {self.label} as its config says: {what}."
        return CheckpointError(message, hint=REPEAT)


def ceil_div(number: int, by: int) -> int:
    return -(-number // by)
