"""What the command line asked of the bench, as a measurement: of a model, of a shape, or of a task.

Tells what does not go together. Knows nothing about how anything is measured.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any  # Any: click's parsed options

from localspec.bench import plots, telling
from localspec.bench.agreement import PROMPT_TOKENS
from localspec.bench.forwards import Plan
from localspec.bench.measure import measure
from localspec.bench.offload import read_rate
from localspec.bench.prompts import PROMPTS
from localspec.bench.report import Report
from localspec.bench.shape_measure import ShapeRequest, measure_shape, watch
from localspec.bench.shape_report import ShapeReport
from localspec.bench.shapes import FORMATS, USUAL, WeightFormat
from localspec.bench.sweep import SweepReport, axis, sweep
from localspec.bench.task import FORMATS as TASK_FORMATS
from localspec.bench.task import exam_prompts, measure_task
from localspec.bench.task_report import TaskReport
from localspec.bench.telling import Tell
from localspec.bench.ui_report import UiReport
from localspec.core.errors import EngineError, UsageError
from localspec.core.requests import MAX_DRAFT, LoadRequest, draft_length, read_draft_length
from localspec.loading.devices import pick_device
from localspec.loading.footprint import PACKED
from localspec.runtime.draft_choice import check_threads

OF_SHAPES = {"agree": "--agree", "exit_layer": "--exit-layer", "offload": "--offload"}
OF_SCREENS = {"against": "--against", **OF_SHAPES}
OF_TASKS = {"list_wrong": "--wrong"}
OF_SWEEPS = {"plot": "--plot"}
OF_SPEED = {"repeats": "--repeats", "against": "--against", "prompts": "--prompts", "sweep": "--sweep", **OF_SHAPES}
NOT_SWEPT = {"against": "--against", "formats": "--format", **OF_SHAPES, **OF_TASKS}
OF_MODELS = {
    "model": "MODEL",
    "draft": "--draft",
    "draft_quant": "--draft-quant",
    "k": "--k",
    "quant": "--quant",
    "keep_head": "--keep-head",
    "int8_threshold": "--int8-threshold",
    "max_memory": "--max-memory",
    "save_quantized": "--save-quantized",
    "ctx": "--ctx",
    "folding": "--no-folding",
    "prompts": "--prompts",
    "task": "--task",
    "sweep": "--sweep",
}
OF_PEERS = {"against": "--against"}
OFFLOAD_K, OFFLOAD_AGREE = "8,16", "0.8,0.9"
UI_SHAPE, UI_TOKENS, UI_REPEATS = "llama-1b", 512, 5
Told = Report | ShapeReport | TaskReport | SweepReport | UiReport


def measured(asked: set[str], given: Mapping[str, Any], tell: Tell) -> Told:
    """`asked`: the options that stand on the command line; `given`: all, defaults too."""
    check_threads(given["threads"])
    if not given["sweep"]:
        refuse(asked, OF_SWEEPS, "needs --sweep.", "Try: localspec bench guide --sweep exit-layer --plot sweep.svg")
    if given["ui"]:
        return looked_at(asked, given, tell)
    if given["shape"]:
        return shaped(asked, given, tell)
    if given["task"]:
        return examined(asked, given, tell)
    return swept(asked, given, tell) if given["sweep"] else plain(asked, given, tell)


def conclude(report: Told, given: Mapping[str, Any]) -> None:
    """What comes after the table: a picture, or an error where speculation has changed what it must not change."""
    if isinstance(report, SweepReport) and given["plot"]:
        report.draw(given["plot"])
    if isinstance(report, TaskReport) and report.losses:
        raise EngineError(" ".join(report.losses))


def plain(asked: set[str], given: Mapping[str, Any], tell: Tell) -> Report:
    refuse(asked, OF_SHAPES, "needs --shape.", "Try: localspec bench --shape tiny")
    refuse(asked, OF_TASKS, "needs --task.", "Try: localspec bench guide --task guide --wrong")
    against = given["against"]
    if "llama-cpp" in against:
        raise UsageError("llama.cpp is measured on a shape.", hint="Add --shape tiny and leave MODEL out.")
    return measure(
        load_request(given),
        formats=model_formats(asked, given),
        prompts=prompts(given),
        max_tokens=given["max_tokens"],
        repeats=given["repeats"],
        against=against[0] if against else None,
        tell=tell,
    )


def swept(asked: set[str], given: Mapping[str, Any], tell: Tell) -> SweepReport:
    refuse(asked, NOT_SWEPT, "does not go with --sweep.", "Leave it out.")
    axes = [axis(words) for words in given["sweep"]]
    if given["plot"]:
        plots.check(given["plot"])
    return sweep(
        load_request(given),
        axes,
        prompts=prompts(given),
        max_tokens=given["max_tokens"],
        repeats=given["repeats"],
        tell=tell,
    )


def prompts(given: Mapping[str, Any]) -> tuple[str, ...]:
    return exam_prompts() if given["prompts"] == "exam" else PROMPTS


def examined(asked: set[str], given: Mapping[str, Any], tell: Tell) -> TaskReport:
    refuse(asked, OF_SPEED, "does not go with --task.", "Leave it out.")
    formats = model_formats(asked, given) or (TASK_FORMATS if given["quant"] == "auto" else (given["quant"],))
    return measure_task(
        given["task"],
        load_request(given),
        formats=formats,
        max_tokens=given["max_tokens"] if "max_tokens" in asked else None,
        list_wrong=given["list_wrong"],
        tell=tell,
    )


def load_request(given: Mapping[str, Any]) -> LoadRequest:
    found = {name: given[name] for name in LoadRequest.__struct_fields__ if name in given}
    return LoadRequest(**{**found, "k": draft_length(given["k"])})


def model_formats(asked: set[str], given: Mapping[str, Any]) -> tuple[WeightFormat, ...]:
    if {"formats", "quant"} <= asked:
        raise UsageError("--format and --quant exclude each other.", hint="Give one of them.")
    return formats(given["formats"])


def shaped(asked: set[str], given: Mapping[str, Any], tell: Tell) -> ShapeReport:
    if given["offload"]:
        return brought(asked, given, tell)
    refuse(asked, OF_MODELS | OF_TASKS, "does not go with --shape.", "Leave it out.")
    return measure_shape(shape_request(given), watch(given["shape"], tell))


def brought(asked: set[str], given: Mapping[str, Any], tell: Tell) -> ShapeReport:
    """Layers that come and go, plain and with early exit, in one format unless several are named."""
    refuse(asked - {"k"}, OF_MODELS | OF_TASKS | OF_PEERS, "does not go with --offload.", "Leave it out.")
    ks = lengths(given["k"] if "k" in asked else OFFLOAD_K)
    plan = Plan(widths=(1, *sorted(int(k) + 1 for k in ks if k.isdecimal())), depths=(PROMPT_TOKENS,), prefill=0)
    asked_for = shape_request(given)
    request = replace(
        asked_for,
        formats=asked_for.formats or (("int8",) if asked_for.device == "cpu" else ("bf16",)),
        agree=shares(given["agree"] or OFFLOAD_AGREE),
        lengths=ks,
        plan=plan,
        offload=read_rate(given["offload"]),
    )
    return measure_shape(request, watch(given["shape"], tell))


def shape_request(given: Mapping[str, Any]) -> ShapeRequest:
    return ShapeRequest(
        given["shape"],
        formats=formats(given["formats"]),
        against=given["against"],
        agree=shares(given["agree"]),
        exit_layer=given["exit_layer"],
        max_tokens=given["max_tokens"],
        repeats=given["repeats"],
        threads=given["threads"],
        device=shape_device(given["device"]),
    )


def shape_device(asked: str) -> str:
    """A GPU if there is one, unless another is named."""
    device = pick_device(asked)
    if device not in USUAL:
        raise UsageError(f"--device {device[:20]} does not go with --shape.", hint="Use --device cpu or cuda.")
    return device


def lengths(words: str) -> tuple[str, ...]:
    """Draft lengths with commas between."""
    found = tuple(words.split(","))
    if not all(k and read_draft_length(k) is not None for k in found):
        raise UsageError(f"--k is '{words}'; it takes lengths up to {MAX_DRAFT}.", hint="Try: --k 8,16")
    return found


def looked_at(asked: set[str], given: Mapping[str, Any], tell: Tell) -> UiReport:
    refuse(asked, OF_MODELS | OF_TASKS | OF_SCREENS, "does not go with --ui.", "Leave it out.")
    kinds = formats(given["formats"]) or ("int8",)
    if len(kinds) > 1 or kinds[0] not in PACKED:
        raise UsageError("--ui takes one --format: int8 or int4.", hint="Try: localspec bench --ui --format int8")
    if sys.platform == "win32":
        raise UsageError("--ui needs a terminal of Unix.", hint="Run it on Linux or macOS, or under WSL.")
    from localspec.bench.ui import measure_ui

    tokens = given["max_tokens"] if "max_tokens" in asked else UI_TOKENS
    repeats = given["repeats"] if "repeats" in asked else UI_REPEATS
    return measure_ui(given["shape"] or UI_SHAPE, kinds[0], tokens, repeats, telling.shares(tell, "the chat"))


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
