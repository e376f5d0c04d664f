"""Weights as GPTQ, AWQ, compressed-tensors and FP8 repositories store them, written bit by bit from their descriptions.

Nothing of localspec is used, nor any torch operation on bits: numbers go into words as Python's integers. What a weight
then stands for is computed in float64. Rounding is the simplest there is: the layout is what matters.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Numbers = list[list[int]]
Made = tuple[dict[str, Tensor], Tensor]  # a module's tensors, and the floats that they stand for
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which output is the lowest, second, … of a word


def words(numbers: list[int], bits: int) -> list[int]:
    """Numbers one after the other from the lowest bit on, cut into signed words of 32 bits."""
    whole = sum(number << bits * at for at, number in enumerate(numbers))
    count = -(-len(numbers) * bits // 32)
    return [signed(whole >> 32 * at & 0xFFFFFFFF) for at in range(count)]


def signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def along_rows(numbers: Numbers, bits: int) -> Tensor:
    return torch.tensor([words(row, bits) for row in numbers], dtype=torch.int32)


def along_columns(numbers: Numbers, bits: int) -> Tensor:
    return upright(along_rows(turned(numbers), bits))


def upright(tensor: Tensor) -> Tensor:
    return tensor.t().contiguous()


def turned(numbers: Numbers) -> Numbers:
    return [list(column) for column in zip(*numbers, strict=True)]


@dataclass
class Rounded:
    """Codes [outputs][inputs], and a scale and a zero of each output and group."""

    codes: Numbers
    scales: Tensor
    zeros: Numbers
    group_of: list[int]

    @property
    def meant(self) -> Tensor:
        zeros = torch.tensor(self.zeros, dtype=torch.float64)[:, self.group_of]
        scales = self.scales.double()[:, self.group_of]
        return ((torch.tensor(self.codes, dtype=torch.float64) - zeros) * scales).float()


def rounded(
    weight: Tensor, bits: int, group_of: list[int], *, sym: bool, low: int = 0, dtype: torch.dtype = torch.float16
) -> Rounded:
    """Codes from `low` on. `sym`: zero is in the middle of them."""
    most, groups = 2**bits - 1, max(group_of) + 1
    belongs = torch.tensor(group_of)
    parts = [weight[:, belongs == group].double() for group in range(groups)]
    if sym:
        scales = torch.stack([part.abs().amax(1) / max(most // 2, 1) for part in parts], 1)
        zeros = torch.full((len(weight), groups), low + 2 ** (bits - 1), dtype=torch.float64)
    else:
        least = torch.stack([part.amin(1).clamp(max=0) for part in parts], 1)
        scales = (torch.stack([part.amax(1).clamp(min=0) for part in parts], 1) - least) / most
        zeros = low + (-least / scales).round().clamp(0, most)
    scales = scales.to(dtype)
    codes = (weight.double() / scales.double()[:, belongs]).round() + zeros[:, belongs]
    codes = codes.clamp(low, low + most)
    return Rounded(codes.int().tolist(), scales, zeros.int().tolist(), group_of)


def neighbours(inputs: int, size: int) -> list[int]:
    return [0 if size == -1 else at // size for at in range(inputs)]


def shuffled(inputs: int, size: int, seed: int = 1) -> list[int]:
    """The groups of inputs that were quantised in an order of their own."""
    order = torch.randperm(inputs, generator=torch.Generator().manual_seed(seed)).tolist()
    found = [0] * inputs
    for place, at in enumerate(order):
        found[at] = 0 if size == -1 else place // size
    return found


def gptq(
    weight: Tensor, *, bits: int = 4, size: int = 32, sym: bool = True, desc_act: bool = False, first: bool = True
) -> Made:
    """AutoGPTQ's: codes along the inputs, zeros along the outputs. `first`: the zeros are stored one too low; where
    numbers fill a word, as a 1 taken off every one of it at once."""
    inputs = weight.shape[1]
    found = rounded(weight, bits, (shuffled if desc_act else neighbours)(inputs, size), sym=sym)
    zeros = turned(found.zeros)
    stored = along_rows([[(zero - 1) % 8 for zero in row] for row in zeros] if first and bits == 3 else zeros, bits)
    if first and bits != 3:
        ones = words([1] * (32 // bits), bits)[0]
        stored = torch.tensor([[signed((word - ones) & 0xFFFFFFFF) for word in row] for row in stored.tolist()]).int()
    parts = {
        "qweight": upright(along_rows(found.codes, bits)),
        "qzeros": stored,
        "scales": upright(found.scales),
        "g_idx": torch.tensor(found.group_of, dtype=torch.int32),
    }
    return parts, found.meant


def awq(weight: Tensor, *, size: int = 32) -> Made:
    """AutoAWQ's gemm: codes and zeros along the outputs, the eight of a word in an order of its own."""
    found = rounded(weight, 4, neighbours(weight.shape[1], size), sym=False)

    def mixed(row: list[int]) -> list[int]:
        return [row[at + output] for at in range(0, len(row), 8) for output in AWQ_ORDER]

    parts = {
        "qweight": along_rows([mixed(row) for row in turned(found.codes)], 4),
        "qzeros": along_rows([mixed(row) for row in turned(found.zeros)], 4),
        "scales": upright(found.scales),
    }
    return parts, found.meant


def packed(
    weight: Tensor, *, bits: int = 4, size: int = 32, sym: bool = True, actorder: bool = False, loose: bool = False
) -> Made:
    """compressed-tensors' pack-quantized: signed codes, put up by 2^(bits - 1) and packed along the inputs; zeros along
    the outputs. `loose`: zeros are not packed, as older files have them."""
    low, inputs = -(2 ** (bits - 1)), weight.shape[1]
    groups = (shuffled if actorder else neighbours)(inputs, size)
    found = rounded(weight, bits, groups, sym=sym, low=low, dtype=torch.bfloat16)

    def up(numbers: Numbers) -> Numbers:
        return [[number - low for number in row] for row in numbers]

    parts = {
        "weight_packed": along_rows(up(found.codes), bits),
        "weight_scale": found.scales,
        "weight_shape": torch.tensor(weight.shape),
    }
    if not sym:
        loosely = torch.tensor(found.zeros, dtype=torch.int8)
        parts["weight_zero_point"] = loosely if loose else along_columns(up(found.zeros), bits)
    if actorder:
        parts["weight_g_idx"] = torch.tensor(groups, dtype=torch.int32)
    return parts, found.meant


def whole(weight: Tensor, *, size: int = -1, sym: bool = True) -> Made:
    """compressed-tensors' int-quantized and naive-quantized: a code is an int8 of its own."""
    found = rounded(weight, 8, neighbours(weight.shape[1], size), sym=sym, low=-128, dtype=torch.bfloat16)
    parts = {"weight": torch.tensor(found.codes, dtype=torch.int8), "weight_scale": found.scales}
    return parts | ({} if sym else {"weight_zero_point": torch.tensor(found.zeros, dtype=torch.int8)}), found.meant


def e4m3(octet: int) -> float:
    """OCP's 8-bit float of four exponent bits and three of fraction (arXiv 2209.05433): no infinity."""
    sign, exponent, fraction = octet >> 7, octet >> 3 & 15, octet & 7
    size = fraction / 8 * 2.0**-6 if exponent == 0 else (1 + fraction / 8) * 2.0 ** (exponent - 7)
    return float("nan") if octet & 127 == 127 else -size if sign else size


def fp8(
    weight: Tensor, *, block: tuple[int, int], scale: str = "weight_scale", shape: tuple[int, ...] | None = None
) -> Made:
    """A float32 for each block of so many outputs and inputs, (0, 0) being all. `shape`: of the scales in the file."""
    numbers = torch.tensor([e4m3(octet) for octet in range(256)], dtype=torch.float64).nan_to_num(1e9)
    outputs, inputs = (size or whole_size for size, whole_size in zip(block, weight.shape, strict=True))
    rows, columns = (torch.arange(n) // size for n, size in zip(weight.shape, (outputs, inputs), strict=True))
    scales = torch.zeros(int(rows[-1]) + 1, int(columns[-1]) + 1)
    for row in range(len(scales)):
        for column in range(scales.shape[1]):
            scales[row, column] = weight[rows == row][:, columns == column].abs().max() / 448
    spread = scales[rows][:, columns].double()
    octets = ((weight.double() / spread)[..., None] - numbers).abs().argmin(-1)
    meant = (numbers[octets] * spread).float()
    stored = scales if shape is None else scales.reshape(shape)
    return {"weight": octets.to(torch.uint8).view(torch.float8_e4m3fn), scale: stored}, meant


def group(weights: dict[str, Any], targets: tuple[str, ...] = ("Linear",)) -> dict[str, Any]:
    return {"targets": list(targets), "weights": weights, "input_activations": None, "output_activations": None}


def compressed(style: str, *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    named = {f"group_{at}": one for at, one in enumerate(groups)}
    config = {"quant_method": "compressed-tensors", "format": style, "config_groups": named, "ignore": ["lm_head"]}
    return {**config, "quantization_status": "compressed", "kv_cache_scheme": None, **more}


def ints(bits: int, size: int | None = None, **more: Any) -> dict[str, Any]:
    strategy = "group" if size and size > 0 else "channel"
    usual = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": strategy, "group_size": size}
    return {**usual, "actorder": None, "block_structure": None, "dynamic": False, "observer": "minmax", **more}


def floats(strategy: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, "dynamic": False, **more}


@dataclass(frozen=True)
class Style:
    """A kind of repository: what its config says, how each linear is stored; `beside`: tensors that change nothing."""

    config: dict[str, Any]
    make: Callable[[Tensor], Made]
    label: str
    beside: dict[str, Tensor] = field(default_factory=dict)
    head: bool = False


def gptq_fields(bits: int = 4, size: int = 32, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": size, "desc_act": False, "sym": True, **more}


AWQ_FIELDS = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
FP8_FIELDS = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [32, 48]}
OF_INPUTS = {"input_scale": torch.tensor(0.5)}


def style(config: dict[str, Any], make: Callable[..., Made], label: str, **how: Any) -> Style:
    beside, head = how.pop("beside", {}), how.pop("head", False)
    return Style(config, lambda weight: make(weight, **how), label, beside, head)


STYLES: dict[str, Style] = {
    "gptq": style(gptq_fields(), gptq, "GPTQ 4-bit"),
    "gptq 2": style(gptq_fields(2), gptq, "GPTQ 2-bit", bits=2),
    "gptq 3": style(gptq_fields(3, checkpoint_format="gptq"), gptq, "GPTQ 3-bit", bits=3),
    "gptq 8": style(gptq_fields(8, lm_head=True), gptq, "GPTQ 8-bit", bits=8, head=True),
    "gptq rows": style(gptq_fields(size=-1), gptq, "GPTQ 4-bit", size=-1),
    "gptq uneven": style(gptq_fields(sym=False), gptq, "GPTQ 4-bit", sym=False),
    "gptq uneven 3": style(gptq_fields(3, sym=False), gptq, "GPTQ 3-bit", bits=3, sym=False),
    "gptq ordered": style(gptq_fields(desc_act=True), gptq, "GPTQ 4-bit", desc_act=True),
    "gptq v2": style(
        gptq_fields(sym=False, checkpoint_format="gptq_v2", dynamic={"-:.*mlp.*": {}}),
        gptq, "GPTQ 4-bit", sym=False, first=False,
    ),
    "gptq v2 3 ordered": style(
        gptq_fields(3, format="gptq_v2", desc_act=True), gptq, "GPTQ 3-bit", bits=3, desc_act=True, first=False
    ),
    "awq": style(AWQ_FIELDS, awq, "AWQ 4-bit"),
    "awq rows": style({**AWQ_FIELDS, "group_size": -1, "version": "GEMM", "modules_to_not_convert": ["lm_head"]},
        awq, "AWQ 4-bit", size=-1, head=True),
    "w4a16": style(compressed("pack-quantized", group(ints(4, 32))), packed, "W4A16"),
    "w4a16 uneven": style(
        compressed("pack-quantized", group(ints(4, 32, symmetric=False))),
        packed, "W4A16", sym=False,
    ),
    "w4a16 loose": style(
        compressed("pack-quantized", group(ints(4, 32, symmetric=False))),
        packed, "W4A16", sym=False, loose=True,
    ),
    "w4a16 ordered": style(
        compressed("pack-quantized", group(ints(4, 32, actorder="group"))),
        packed, "W4A16", actorder=True,
    ),
    "w8a16": style(
        compressed("pack-quantized", group(ints(8, -1))), packed, "W8A16", bits=8, size=-1
    ),
    "w8a8": style(
        compressed("int-quantized", {**group(ints(8), ("re:.*_proj$",)), "input_activations": {"num_bits": 8}}),
        whole, "W8A8",
    ),
    "w8 uneven": style(
        compressed("naive-quantized", group(ints(8, 32, symmetric=False))),
        whole, "W8A16", sym=False, size=32,
    ),
    "ct fp8": style(
        compressed("float-quantized", group(floats("tensor"))),
        fp8, "FP8", block=(0, 0), shape=(1,), beside=OF_INPUTS,
    ),
    "ct fp8 dynamic": style(
        compressed("float-quantized", group(floats("channel"))), fp8, "FP8", block=(1, 0)
    ),
    "ct fp8 block": style(
        compressed("float-quantized", group(floats("block", block_structure=[32, 48]))),
        fp8, "FP8", block=(32, 48),
    ),
    "fp8": style(FP8_FIELDS, fp8, "FP8", block=(32, 48), scale="weight_scale_inv", head=True),
    "fp8 tensor": style(
        {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
        fp8, "FP8", block=(0, 0), shape=(), beside=OF_INPUTS,
    ),
    "fp8 mistral": style(
        {**FP8_FIELDS, "weight_block_size": None, "activation_scheme": "static"},
        fp8, "FP8", block=(0, 0), shape=(), scale="weight_scale_inv", beside={"activation_scale": torch.tensor(0.5)},
    ),
    "fbgemm": style(
        {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]},
        fp8, "FP8", block=(1, 0), beside={"input_scale_ub": torch.tensor([1200.0])},
    ),
}  # fmt: skip


def store(tensors: dict[str, Tensor], kind: Style) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A checkpoint of the Llama family with its linears in this style, and the floats that it stands for."""
    stored, meant = dict[str, Tensor](), dict[str, Tensor]()
    for name, tensor in tensors.items():
        if not (name.endswith("_proj.weight") or (kind.head and name == "lm_head.weight")):
            stored[name], meant[name] = tensor.half(), tensor.half().float()
            continue
        module = name.removesuffix(".weight")
        parts, meant[name] = kind.make(tensor.float())
        stored |= {f"{module}.{part}": found.clone() for part, found in (parts | kind.beside).items()}
    return stored, meant


def store_folder(folder: Path, kind: Style) -> dict[str, Tensor]:
    """A snapshot of floats becomes one in this style; returns the floats that it stands for."""
    file = folder / "config.json"
    stored, meant = store(load_file(folder / "model.safetensors"), kind)
    save_file(stored, folder / "model.safetensors")
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": kind.config}))
    return meant
