"""The commands about models on this machine: ls, show, rm, verify-files. They parse, call hub/ and print."""

from __future__ import annotations

import click

from localspec.cli.completion import completions, deletable
from localspec.cli.names import MODEL_NAME
from localspec.cli.options import json_option
from localspec.core.errors import NotDownloaded, UsageError

OLDER_HELP = (
    "Delete only older versions, which a newer pull has replaced; without MODELS those of all models. A version that "
    "was pulled by its commit, or that models.toml names, stays."
)
MODEL = click.argument("model", type=MODEL_NAME, shell_complete=completions)


@click.command()
@click.option("--unfinished", "only_unfinished", is_flag=True, help="List only unfinished downloads.")
@json_option
def ls(only_unfinished: bool, as_json: bool) -> None:
    """List the models on this machine.

    Size, fit, drafter, licence and last use are shown.
    """
    from localspec.cli import io, models_text
    from localspec.cli.output import print_records
    from localspec.hub.inventory import list_models
    from localspec.hub.older import older
    from localspec.hub.pulls import unfinished
    from localspec.hub.unlisted import unlisted, unlisted_words

    started, found = unfinished(), () if only_unfinished else list_models()
    if as_json:
        print_records(started if only_unfinished else found)
        return
    if found:
        io.print_text(models_text.models_table(found, io.columns_of_stdout()))
    if started:
        io.print_text(models_text.unfinished_lines(started))
    if not only_unfinished and (superseded := [one for one in older() if one.num_bytes]):
        io.print_text(models_text.older_line(superseded))
    if not only_unfinished and (others := unlisted({(one.repo, one.commit) for one in found})):
        io.print_fitted(unlisted_words(others))
    if only_unfinished and not started:
        io.print_note("Nothing is unfinished.")


@click.command()
@MODEL
@click.option("--license", "licence", is_flag=True, help="Print the licence's text.")
@click.option("--template", is_flag=True, help="Print the chat template.")
@json_option
def show(model: str, licence: bool, template: bool, as_json: bool) -> int:
    """Print what is known about a model.

    Licence, commit, architecture, template, drafters, files and measured speeds are shown; of a repository that is not
    on this machine, the plan of its download. Writes nothing.
    """
    from localspec.cli import io, models_text
    from localspec.cli.download.preview import show_absent
    from localspec.cli.output import print_records
    from localspec.hub.inventory import details

    try:
        found = details(model)
    except NotDownloaded as absence:
        if template:
            raise
        return show_absent(model, absence, licence=licence, as_json=as_json)
    if as_json:
        print_records(found)
    elif licence:
        io.print_unchanged(found.licence_text or models_text.licence_line(found.model.licence))
    elif template:
        io.print_unchanged(found.template or "There is none: this is a base model.\n")
    else:
        io.print_text(models_text.details_text(found, io.columns_of_stdout()))
    return 0


@click.command()
@click.argument("models", type=MODEL_NAME, nargs=-1, shell_complete=deletable)
@click.option("--older", "only_older", is_flag=True, help=OLDER_HELP)
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
def rm(models: tuple[str, ...], only_older: bool, yes: bool) -> int:
    """Delete downloaded models from the Hugging Face cache.

    ORG/NAME:Q4_K_M deletes one file of a GGUF repository alone. What that frees is shown before you are asked. Files
    that other models share are kept. A model that a running localspec has loaded is refused.
    """
    from localspec.cli.deletion import delete, delete_older

    if only_older:
        return delete_older(models, yes=yes)
    if not models:
        raise UsageError("Name what to delete.", hint="See what is here: localspec ls")
    return delete(models, yes=yes)


@click.command("verify-files")
@MODEL
@click.option("--fetch", is_flag=True, help="Download only wrong and missing files again, without asking.")
@json_option
def verify_files(model: str, fetch: bool, as_json: bool) -> int:
    """Check a model's files against their hashes.

    Needs no network. The exit code is 7 if a file is wrong or missing.
    """
    from localspec.cli.integrity import verify

    return verify(model, fetch=fetch, as_json=as_json)
