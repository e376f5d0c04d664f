"""Reads the quantization_config of compressed-tensors: groups of modules, each with a scheme.

Facts from vllm-project/compressed-tensors at ac8e2ba: quantization/quant_config.py, quant_scheme.py and quant_args.py
(fields and defaults), compressors/pack_quantized and naive_quantized (which tensors there are), utils/match.py.
Schemes of inputs and outputs only give the files a name: activations stay in floats here.
Knows nothing about tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any  # Any: a stranger's config.json

from localspec.models.prequantised.pattern import UnreadPattern, matcher
from localspec.models.prequantised.rules import PATTERN, Group, QuantisationRules
from localspec.models.prequantised.scheme import (
    CHANNEL,
    OWN_CACHE,
    TENSOR,
    Grain,
    Scheme,
    group_grain,
    is_group_size,
    shown,
    unreadable,
)

METHOD = "compressed-tensors"
FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "mixed-precision",
    "dense",
    None,
)
BITS = (2, 4, 8)  # widths that fill whole words: others are packed differently in older and newer files
MOST_TARGETS, LONGEST_PATTERNS = 4096, 2000


def read_compressed(fields: Mapping[str, Any]) -> QuantisationRules:
    if fields.get("kv_cache_scheme"):
        raise unreadable(METHOD, OWN_CACHE)
    if fields.get("transform_config"):
        raise unreadable(METHOD, "transforms between its layers (transform_config)")
    sparsity = fields.get("sparsity_config")
    if sparsity and not (isinstance(sparsity, dict) and sparsity.get("format", "dense") == "dense"):
        raise unreadable(METHOD, "weights left out (sparsity_config)")
    check_format(fields)
    groups = tuple(read_groups(fields.get("config_groups")))
    schemes = dict.fromkeys(group.scheme for group in groups)
    usual = next(iter(schemes)) if len(schemes) == 1 else None
    return QuantisationRules(label(fields["config_groups"].values()), ("packed", "whole"), usual, groups)


def label(groups: Iterable[dict[str, Any]]) -> str:
    """The makers' name for the format: FP8, or W4A16 for weights of four bits and inputs of sixteen."""
    kinds = [kind(group["weights"], group.get("input_activations")) for group in groups if group.get("weights")]
    return " and ".join(sorted(dict.fromkeys(kinds)))


def kind(weights: dict[str, Any], inputs: Any) -> str:
    if weights.get("type") == "float":
        return "FP8"
    bits = inputs.get("num_bits") if isinstance(inputs, dict) else None
    return f"W{weights.get('num_bits', 8)}A{bits if bits in (4, 8) else 16}"


def check_format(fields: Mapping[str, Any]) -> None:
    name = fields.get("format")
    if not (isinstance(name, str | None) and name in FORMATS):
        raise unreadable(METHOD, shown("format", name))


def read_groups(fields: Any) -> Iterator[Group]:
    if not isinstance(fields, dict) or not fields:
        raise unreadable(METHOD, shown("config_groups", fields))
    for group in fields.values():
        if not isinstance(group, dict):
            raise unreadable(METHOD, shown("config_groups", fields))
        check_format(group)
        if group.get("weights"):
            yield Group(read_targets(group.get("targets")), read_scheme(group["weights"]))


def read_targets(fields: Any) -> tuple[str, ...]:
    are_names = isinstance(fields, list) and all(isinstance(target, str) for target in fields)
    if not are_names or len(fields) > MOST_TARGETS:
        raise unreadable(METHOD, shown("targets", fields))
    patterns = [target.removeprefix(PATTERN) for target in fields if target.startswith(PATTERN)]
    for pattern in patterns:
        try:
            matcher(pattern)
        except UnreadPattern:
            raise unreadable(METHOD, shown("targets", pattern)) from None
    if len("".join(patterns)) > LONGEST_PATTERNS:
        raise unreadable(METHOD, shown("targets", fields))
    return tuple(fields)


def read_scheme(fields: Any) -> Scheme:
    if not isinstance(fields, dict):
        raise unreadable(METHOD, shown("weights", fields))
    bits, kind = fields.get("num_bits", 8), fields.get("type", "int")
    for name, value, is_known in (
        ("type", kind, kind in ("int", "float")),
        ("num_bits", bits, type(bits) is int and (bits in BITS if kind == "int" else bits == 8)),
        ("dynamic", fields.get("dynamic"), not fields.get("dynamic")),
        ("symmetric", fields.get("symmetric", True), isinstance(fields.get("symmetric", True), bool)),
    ):
        if not is_known:
            raise unreadable(
                METHOD, f"{shown(name, value)} of type {kind[:40]}" if name == "num_bits" else shown(name, value)
            )
    return Scheme(
        bits,
        (grain_of(fields),),
        is_float=kind == "float",
        has_zeros=not fields.get("symmetric", True),
        has_order=fields.get("actorder") in (True, "group", "dynamic"),
    )


def grain_of(fields: dict[str, Any]) -> Grain:
    """The grain of the scales: by the strategy, or by the group size where there is no strategy."""
    size: Any = fields.get("group_size")
    strategy = fields.get("strategy")
    if strategy is None:
        strategy = "tensor" if size is None else "channel" if size == -1 else "group"
    if strategy == "group" and is_group_size(size):
        return group_grain(size)
    if strategy == "block":
        return block_grain(fields.get("block_structure"))
    if strategy not in ("tensor", "channel"):
        raise unreadable(METHOD, f"{shown('strategy', strategy)} and {shown('group_size', size)}")
    return TENSOR if strategy == "tensor" else CHANNEL


def block_grain(fields: Any) -> Grain:
    """The grain of blocks: two sizes, in old files as text such as "128x128"."""
    sizes: Any = fields.split("x") if isinstance(fields, str) else fields
    if isinstance(fields, str) and all(size.isdecimal() and len(size) < 8 for size in sizes):
        sizes = [int(size) for size in sizes]
    if not (isinstance(sizes, list) and len(sizes) == 2 and all(type(size) is int and size > 0 for size in sizes)):
        raise unreadable(METHOD, shown("block_structure", fields))
    return sizes[0], sizes[1]
