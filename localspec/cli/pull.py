"""The command `localspec pull`. Imports nothing heavy until it runs."""

from __future__ import annotations

import click

from localspec.cli.completion import pullable
from localspec.cli.names import MODEL_NAME
from localspec.core.errors import UsageError
from localspec.core.requests import LEAST_CONTEXT
from localspec.core.weight_formats import AUTO, LISTED, either

DRAFT_HELP = "auto (the catalogue's drafter, else the best on the hub), none, or a repository.  [default: auto]"
QUANT_HELP = f"Weight format to plan for: {either(AUTO, *LISTED)}."
DRY_RUN_HELP = (
    "Only show the plan; writes nothing to the cache. Exits with 1 if localspec could not load the model, with 5 if "
    "the disk is too full."
)
WAIT_HELP = "Wait until access is granted (checked every 10 minutes), then download."


def named(model: str | None) -> str:
    if model is None:
        raise UsageError("--stop needs the model's name.", hint="See what is being downloaded: localspec pull")
    return model


@click.command()
@click.argument("model", type=MODEL_NAME, metavar="[MODEL]", required=False, shell_complete=pullable)
@click.option("--draft", default="auto", metavar="DRAFT", help=DRAFT_HELP)
@click.option("--as", "key", default="", metavar="KEY", help="Write the model into your models.toml under this name.")
@click.option("--quant", default=AUTO, metavar="FORMAT", help=QUANT_HELP)
@click.option("--ctx", type=click.IntRange(LEAST_CONTEXT), metavar="N", help="Context length to plan for, in tokens.")
@click.option("-y", "--yes", is_flag=True, help="Download without asking; accepts a non-commercial licence.")
@click.option("--dry-run", is_flag=True, help=DRY_RUN_HELP)
@click.option("--wait", is_flag=True, help=WAIT_HELP)
@click.option("--background", is_flag=True, help="Download in a separate process; `pull` again shows how far it is.")
@click.option("--stop", is_flag=True, help="Stop a download that runs in the background; progress is kept.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as a line of JSON; needs --yes or --dry-run.")
@click.option("--xet", is_flag=True, help="Download with Xet: faster on some networks; starts over when interrupted.")
def pull(model: str | None, as_json: bool, background: bool, stop: bool, **given: str | int | bool | None) -> int:
    """Download a model and its drafter from Hugging Face.

    MODEL is a repository, ORG/NAME or its address, optionally with @REVISION, or with :Q4_K_M for one file of a GGUF
    repository; or a key of the catalogue: qwen3-8b. Size, licence, fit on this machine and drafter are shown before
    you are asked.

    If a download stops, what was downloaded is kept, and the same command continues it. Without MODEL, all unfinished
    downloads are continued.
    """
    from localspec.cli.download import background as in_background
    from localspec.cli.download.command import pull as run
    from localspec.cli.download.request import asked_for
    from localspec.cli.download.unfinished_pulls import go_on
    from localspec.cli.questions import interactive

    if stop:
        return in_background.stop(named(model))
    if as_json and not (given["yes"] or given["dry_run"]):
        raise UsageError("--json asks no questions.", hint="Add --yes to download, or --dry-run to only see the plan.")
    if given["wait"] and not (given["yes"] or given["dry_run"] or interactive()):
        raise UsageError("Not a terminal: the download could not be asked about after the wait.", hint="Add --yes.")
    if model is None:
        return go_on(yes=bool(given["yes"]), dry_run=bool(given["dry_run"]), as_json=as_json)
    return run(asked_for(model, given, as_json=as_json), background=background)
