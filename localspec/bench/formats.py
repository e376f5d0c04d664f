"""The weight formats that are measured, by their names on a command line. Knows no tensors."""

from __future__ import annotations

from typing import Literal, get_args

from localspec.core.errors import UsageError

WeightFormat = Literal["int8", "int4", "fp32", "bf16", "nf4", "fp4"]
FORMATS: tuple[WeightFormat, ...] = get_args(WeightFormat)


def read_formats(words: str | None) -> tuple[WeightFormat, ...]:
    """Names with commas between, in the order of FORMATS; () for none."""
    found = words.split(",") if words else []
    if unknown := set(found) - set(FORMATS):
        raise UsageError(f"--format has '{min(unknown)}'.", hint=f"Use some of {','.join(FORMATS)}.")
    return tuple(kind for kind in FORMATS if kind in found)
