"""Options that several commands have: how a model is loaded and how it samples, and which of them were given.

Parses and loads nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar  # Any: click's parsed options

import click

from localspec.cli.completion import completions
from localspec.core.requests import LOAD_OPTIONS, MOST_PARALLEL, SAMPLING_FIELDS, SamplingOptions, draft_length
from localspec.core.weight_formats import AUTO, BY_BITSANDBYTES, INT8_THRESHOLD, LISTED, either
from localspec.engine.drafters.table import usages


class Parallel(click.ParamType[int | str]):
    """A count of answers at once, or auto."""

    name = "parallel"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == AUTO:
            return AUTO
        if not str(value).isdecimal() or not 1 <= int(value) <= MOST_PARALLEL:
            self.fail(f"'{value}' is neither {AUTO} nor a number from 1 to {MOST_PARALLEL}.", param, ctx)
        return int(value)


F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
QUANT_HELP = f"Weight format: {either(AUTO, *LISTED)}."
DEVICE_HELP = "auto, cpu, cuda, cuda:N, or offload (most layers in main memory; on disk without a GPU)."
THRESHOLD_HELP = "GPU int8: multiply inputs larger than T in 16 bits; 0 turns it off.  [default: 6]"
SAVE_HELP = f"Cache quantised weights on disk ({BY_BITSANDBYTES}), so the next start loads them directly."
DRAFT_QUANT_HELP = "Weight format of the draft model.  [default: same as the target, if supported]"
FOLDING_HELP = "Do not correct what you type to guide (capitals, typos, sums) or leave out earlier turns."
PARALLEL_HELP = (
    "Answers written at once, each with a context of its own in memory: auto (up to 4, if they fit), or a number."
)
BEAMS_HELP = "Search N texts at once for the likeliest, without drafts or sampling."
DRAFT_HELP = f"Drafter: auto, off, {', '.join(usages())}, or a smaller model (named like MODEL)."


def options(*added: Callable[[F], F]) -> Callable[[F], F]:
    """Combines click options into one decorator, in reading order."""

    def decorate(command: F) -> F:
        for option in reversed(added):
            command = option(command)
        return command

    return decorate


def setting(flag: str, **attributes: Any) -> Callable[[F], F]:
    """An option that the environment may set, too: --top-k as LOCALSPEC_TOP_K."""
    name = flag.removeprefix("--").replace("-", "_").upper()
    return click.option(flag, envvar=f"LOCALSPEC_{name}", **attributes)


load_options = options(
    setting("--draft", default="auto", metavar="DRAFT", help=DRAFT_HELP, shell_complete=completions),
    click.option("--draft-quant", default="auto", metavar="FORMAT", help=DRAFT_QUANT_HELP),
    setting("--k", default="auto", metavar="N|auto", help="Tokens per draft: auto, heuristic, or 0 to 16."),
    setting("--quant", default="auto", metavar="FORMAT", help=QUANT_HELP),
    click.option("--keep-head", is_flag=True, help=f"Keep the output head in 16 bits ({BY_BITSANDBYTES})."),
    click.option(
        "--int8-threshold", type=click.FloatRange(0), default=INT8_THRESHOLD, metavar="T", help=THRESHOLD_HELP
    ),
    setting("--save-quantized", is_flag=True, help=SAVE_HELP),
    setting("--device", default="auto", metavar="DEVICE", help=DEVICE_HELP),
    click.option("--max-memory", metavar="SIZE", help="Memory budget, e.g. 8GB; layers that do not fit are offloaded."),
    click.option("--no-folding", "folding", flag_value=False, default=True, help=FOLDING_HELP),
    setting("--ctx", type=int, metavar="N", help="Context length in tokens.  [default: the model's, up to 8192]"),
    setting("--threads", type=click.IntRange(1, 1024), metavar="N", help="Number of CPU threads.  [default: measured]"),
)
sampling_options = options(
    setting("--preset", metavar="NAME", help="Sampling preset: precise, balanced, creative, or one of yours."),
    *(
        setting(f"--{name.replace('_', '-')}", type=field.kind, metavar=field.metavar, help=field.about)
        for name, field in SAMPLING_FIELDS.items()
    ),
)


def given_load_options(given: dict[str, Any]) -> dict[str, Any]:
    """The load options that were given by a flag or the environment."""
    context = click.get_current_context()
    sources = (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)
    names = [name for name in LOAD_OPTIONS if name in given]
    found = {name: given[name] for name in names if context.get_parameter_source(name) in sources}
    k = found.pop("k", "")
    return {**found, "k": draft_length(k)} if k else found


def given_sampling(given: dict[str, Any]) -> SamplingOptions:
    """The sampling options; None for one that was not given, since they have no defaults of their own."""
    return SamplingOptions(**{name: given[name] for name in SAMPLING_FIELDS})
