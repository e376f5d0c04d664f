"""What the command line asked of the bench, as a measurement: of a model, or of a shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # Any: click's parsed options

from localspec.bench.measure import measure
from localspec.bench.report import Report
from localspec.bench.shape_measure import ShapeRequest, measure_shape
from localspec.bench.shape_report import ShapeReport
from localspec.bench.shapes import FORMATS, WeightFormat
from localspec.errors import UsageError

OF_SHAPES = {"formats": "--format", "agree": "--agree", "exit_layer": "--exit-layer"}
OF_MODELS = {"model": "MODEL", "draft": "--draft", "k": "--k", "quant": "--quant", "device": "--device", "ctx": "--ctx"}


def plain(model: str, asked: set[str], given: Mapping[str, Any], progress: bool) -> Report:
    refuse(asked, OF_SHAPES, "needs --shape.", "Try: localspec bench --shape tiny")
    against = given["against"]
    if "llama-cpp" in against:
        raise UsageError("llama.cpp is measured on a shape.", hint="Add --shape tiny and leave MODEL out.")
    rest = {name: value for name, value in given.items() if name not in OF_SHAPES and name != "against"}
    return measure(model, against=against[0] if against else None, progress=progress, **rest)


def shaped(shape: str, asked: set[str], given: Mapping[str, Any], progress: bool) -> ShapeReport:
    refuse(asked, OF_MODELS, "does not go with --shape.", "Leave it out.")
    request = ShapeRequest(
        shape,
        formats=formats(given["formats"]),
        against=given["against"],
        agree=shares(given["agree"]),
        exit_layer=given["exit_layer"],
        max_tokens=given["max_tokens"],
        repeats=given["repeats"],
        threads=given["threads"],
    )
    return measure_shape(request, progress=progress)


def refuse(asked: set[str], names: Mapping[str, str], why: str, hint: str) -> None:
    for name, spelling in names.items():
        if name in asked:
            raise UsageError(f"{spelling} {why}", hint=hint)


def formats(words: str | None) -> tuple[WeightFormat, ...]:
    """Names with commas between; () for none."""
    found = words.split(",") if words else []
    if unknown := set(found) - set(FORMATS):
        raise UsageError(f"--format has '{min(unknown)}'.", hint=f"Use some of {','.join(FORMATS)}.")
    return tuple(kind for kind in FORMATS if kind in found)


def shares(words: str | None) -> tuple[float, ...]:
    """Numbers from 0 to 1 with commas between; () for none."""
    try:
        found = tuple(float(word) for word in words.split(",")) if words else ()
    except ValueError:
        found = (-1.0,)
    if any(not 0 <= share <= 1 for share in found):
        raise UsageError(f"--agree is '{words}'; it takes shares from 0 to 1.", hint="Try: --agree 0.8,0.9")
    return found
