"""Reads the quantization_config of weights that localspec unpacks. Knows nothing about tensors.

Read for the families that our decoder computes, from these descriptions (facts only):
- GPTQ: AutoGPTQ's qlinear_cuda_old.py and GPTQModel's quantization/config.py (fields, `dynamic` rules, two formats).
- AWQ: AutoAWQ's models/_config.py and modules/linear/gemm.py.
- FP8: transformers' FineGrainedFP8Config and FbgemmFp8Config, and AutoFP8's repositories, which vLLM reads with fp8.py.
  How inputs would be rounded (`activation_scheme` and its scales) is not read: they stay in floats here.
Which modules are quantised is what the files show, so lists of those that are not (`modules_to_not_convert`, `lm_head`)
are not read either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # Any: a stranger's config.json

from localspec.models.prequantised.compressed_tensors import read_compressed
from localspec.models.prequantised.rules import QuantisationRules
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
from localspec.models.prequantised.stored_format import GPTQ_BITS, GPTQ_LAYOUTS, is_unpacked

Fields = Mapping[str, Any]
FP8_BLOCK = (128, 128)  # transformers' default


def read_rules(config: Mapping[str, Any]) -> QuantisationRules | None:
    """The rules for unpacking; None where nothing is to be unpacked, CheckpointError for unknown formats."""
    if not is_unpacked(config):
        return None
    fields = config["quantization_config"]
    return READERS[fields["quant_method"]](fields)


def read_gptq(fields: Fields) -> QuantisationRules:
    """The rules of GPTQ. Zeros are stored one too low, except in `gptq_v2`."""
    bits: Any = fields.get("bits")
    size: Any = fields.get("group_size", 128)
    layout = fields.get("checkpoint_format") or fields.get("format") or GPTQ_LAYOUTS[0]
    for name, value, is_known in (
        ("bits", bits, type(bits) is int and bits in GPTQ_BITS),
        ("group_size", size, is_group_size(size)),
        ("checkpoint_format", layout, layout in GPTQ_LAYOUTS),
        ("is_marlin_format", fields.get("is_marlin_format"), not fields.get("is_marlin_format")),
        ("pack_dtype", fields.get("pack_dtype"), fields.get("pack_dtype") in (None, "int32")),
        ("rotation", fields.get("rotation"), not fields.get("rotation")),
        ("dynamic", fields.get("dynamic"), changes_nothing(fields.get("dynamic"), {"bits": bits, "group_size": size})),
    ):
        if not is_known:
            raise unreadable("gptq", shown(name, value))
    scheme = Scheme(
        bits,
        (group_grain(size),),
        has_zeros=True,
        has_order=fields.get("desc_act") is True and size != -1,
        less_one=layout == GPTQ_LAYOUTS[0],
    )
    return QuantisationRules(f"GPTQ {bits}-bit", ("gptq",), scheme)


def changes_nothing(dynamic: object, usual: Mapping[str, object]) -> bool:
    """True for rules for single modules that leave them unquantised, or repeat the usual values."""
    if not isinstance(dynamic, dict):
        return not dynamic
    overrides = [rule for pattern, rule in dynamic.items() if not pattern.startswith("-:")]
    return all(
        isinstance(rule, dict)
        and all(rule.get(name, value) == value for name, value in usual.items())
        and not {"format", "checkpoint_format", "pack_dtype"} & rule.keys()
        for rule in overrides
    )


def read_awq(fields: Fields) -> QuantisationRules:
    bits, size = fields.get("bits", 4), fields.get("group_size", 128)
    version = fields.get("version") or fields.get("format") or "gemm"
    for name, value, is_known in (
        ("bits", bits, type(bits) is int and bits == 4),
        ("group_size", size, is_group_size(size)),
        ("version", version, isinstance(version, str) and version.lower() == "gemm"),
        ("backend", fields.get("backend"), fields.get("backend") != "llm-awq"),
    ):
        if not is_known:
            raise unreadable("awq", shown(name, value))
    return QuantisationRules("AWQ 4-bit", ("awq",), Scheme(4, (group_grain(size),), has_zeros=True))


def read_fp8(fields: Fields) -> QuantisationRules:
    """The rules of FP8: a scale for each block, output or tensor, whichever the files have."""
    if fields.get("fmt") not in (None, "e4m3"):
        raise unreadable("fp8", shown("fmt", fields["fmt"]))
    if fields.get("kv_cache_scheme"):
        raise unreadable("fp8", OWN_CACHE)
    block: Any = fields.get("weight_block_size", FP8_BLOCK)
    blocks: tuple[Grain, ...] = ()
    if block is not None:
        if not (isinstance(block, list | tuple) and len(block) == 2 and all(is_group_size(n) and n > 0 for n in block)):
            raise unreadable("fp8", shown("weight_block_size", block))
        blocks = ((block[0], block[1]),)
    return QuantisationRules("FP8", ("whole",), Scheme(8, (TENSOR, CHANNEL, *blocks), is_float=True))


def read_fbgemm(_: Fields) -> QuantisationRules:
    return QuantisationRules("FP8", ("whole",), Scheme(8, (CHANNEL,), is_float=True))


READERS = {
    "gptq": read_gptq,
    "awq": read_awq,
    "compressed-tensors": read_compressed,
    "fp8": read_fp8,
    "fbgemm_fp8": read_fbgemm,
}
