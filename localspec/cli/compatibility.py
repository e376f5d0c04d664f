"""The commands `localspec fit` and `localspec pair`: before a download as after it. They parse, call hub/ and print."""

from __future__ import annotations

import click

from localspec.cli.completion import completions
from localspec.cli.names import MODEL_NAME
from localspec.cli.options import QUANT_HELP, json_option
from localspec.core.requests import LEAST_CONTEXT, WeightOptions
from localspec.core.weight_formats import AUTO
from localspec.runtime.other_programs import PROGRAMS


@click.command()
@click.argument("model", type=MODEL_NAME, shell_complete=completions)
@click.option(
    "--draft",
    type=MODEL_NAME,
    default="",
    metavar="DRAFT",
    help="Draft model to load with it.",
    shell_complete=completions,
)
@click.option(
    "--ctx", type=click.IntRange(LEAST_CONTEXT), metavar="N", help="Context length in tokens.  [default: up to 8192]"
)
@click.option("--quant", default=AUTO, metavar="FORMAT", help=QUANT_HELP)
@json_option
def fit(model: str, draft: str, ctx: int | None, quant: str, as_json: bool) -> int:
    """Show whether a model fits on this machine.

    The memory that each weight format takes is shown, and whether it fits. MODEL is named as in `localspec run`, or is
    a repository that need not be downloaded: its headers are enough.

    The exit code is 5 if no format fits.
    """
    from localspec.cli import compatibility_text, io
    from localspec.cli.output import print_records
    from localspec.core.errors import DoesNotFit
    from localspec.hub.compatibility import fit_found

    found = fit_found(model, draft, WeightOptions(weight_format=quant, ctx=ctx))
    print_records(found.report) if as_json else io.print_text(compatibility_text.fit_text(found))
    return 0 if found.report.chosen else DoesNotFit.exit_code


@click.command()
@click.argument("target", type=MODEL_NAME, shell_complete=completions)
@click.argument("drafter", type=MODEL_NAME, required=False, default="", shell_complete=completions)
@click.option("--hub", "on_hub", is_flag=True, help="Without DRAFTER: look for candidates on the hub.")
@click.option("--write", is_flag=True, help="Write the pair into your models.toml.")
@click.option("--print", "program", type=click.Choice(PROGRAMS), help="Print the other program's command for the pair.")
@json_option
def pair(target: str, drafter: str, on_hub: bool, write: bool, program: str | None, as_json: bool) -> int:
    """Check whether DRAFTER can draft for TARGET.

    Without DRAFTER, the models that might are listed. Neither need be downloaded: their tokenizers are enough. With
    --print, DRAFTER may be lookup, too.

    The exit code is 6 if DRAFTER cannot draft for TARGET, or no model can.
    """
    from localspec.cli.pairs import judge, print_command

    if program is not None:
        return print_command(target, drafter, program)
    return judge(target, drafter, on_hub=on_hub, write=write, as_json=as_json)
