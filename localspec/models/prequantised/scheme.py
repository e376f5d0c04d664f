"""The storage scheme of weights, from config.json. Knows nothing about tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from localspec.core.errors import CheckpointError

Layout = Literal["gptq", "awq", "packed", "whole"]
"""Codes packed along the inputs and transposed, along the outputs, along the inputs; or unpacked."""
Grain = tuple[int, int]  # outputs and inputs that share a scale; 0: all of them

TENSOR: Grain = (0, 0)
CHANNEL: Grain = (1, 0)
OWN_CACHE = "a format of its own for keys and values (kv_cache_scheme)"
HINT = "Choose its 16-bit copy, or another that GPTQ or AWQ quantised to four bits."


@dataclass(frozen=True, slots=True)
class Scheme:
    """A storage scheme. `grains`: the possible ones; the scales' shape decides. `has_zeros`, `has_order`: these tensors
    must exist. `less_one`: zeros are stored one too low."""

    bits: int
    grains: tuple[Grain, ...]
    is_float: bool = False
    has_zeros: bool = False
    has_order: bool = False
    less_one: bool = False


def group_grain(size: int) -> Grain:
    """The grain of groups along the inputs; -1 is a whole row."""
    return CHANNEL if size == -1 else (1, size)


def is_group_size(value: object) -> bool:
    return type(value) is int and (value == -1 or value > 0)


def unreadable(method: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"This model is quantised already, by {method} with {what}, which localspec cannot unpack.", hint=HINT
    )


def shown(name: str, value: object) -> str:
    """An untrusted field, shortened for a sentence."""
    return f"{name} = {repr(value)[:40]}"
