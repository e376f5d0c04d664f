"""The commands `localspec config …`: they parse, call localspec.config and print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any  # Any: a setting of whatever type

import click
from click.shell_completion import CompletionItem

from localspec.cli.options import json_option
from localspec.core.errors import UsageError


def completions(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    from localspec.config.tables import KEYS

    return [CompletionItem(key) for key in KEYS if key.startswith(typed)]


KEY = click.argument("key", shell_complete=completions)


@click.group(invoke_without_command=True)
@click.pass_context
def config(context: click.Context) -> None:
    """Read and change the settings in config.toml.

    Flags come first, then the environment (LOCALSPEC_TEMPERATURE), then the preset, then the model's entry in
    models.toml, then config.toml.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@config.command()
def path() -> None:
    """Print the path of config.toml; LOCALSPEC_CONFIG_DIR moves it."""
    from localspec.cli import io
    from localspec.core import paths

    io.print_unchanged(f"{paths.config_file()}\n")


@config.command()
@click.option("--origin", is_flag=True, help="Also print where each value comes from.")
@json_option
def show(origin: bool, as_json: bool) -> None:
    """Print every setting."""
    from localspec.cli import io
    from localspec.config.origins import settings
    from localspec.core import paths
    from localspec.core.sanitize import one_line
    from localspec.history.text.columns import columns

    found = settings(paths.config_file())
    if as_json:
        io.print_text(io.as_json({each.key: {"value": each.value, "origin": each.origin} for each in found}))
        return
    rows = [(one_line(each.key), one_line(shown(each.value)), one_line(each.origin)) for each in found]
    io.print_text(columns([row if origin else row[:2] for row in rows]))


@config.command("set", context_settings={"ignore_unknown_options": True})
@KEY
@click.argument("value")
def set_value(key: str, value: str) -> None:
    """Change a setting, e.g. config set sampling.temperature 0.7.

    The rest of the file is kept, comments included.
    """
    from localspec.config.writing import literal, store_typed
    from localspec.core import paths

    if key == "ui.theme":
        from localspec.tui.themes import check_theme, theme_names, user_themes

        check_theme(str(literal(value)), theme_names(user_themes(paths.themes_dir())[0]))
    if key == "default_model":
        value = known_model(str(literal(value)))
    store_typed(key, value)


def known_model(name: str) -> str:
    """The name of a model that is here, as it is valid in any folder, or that can be pulled; UsageError for others."""
    from localspec.cli.io import print_note
    from localspec.core.errors import NotDownloaded
    from localspec.models.catalog import LISTED, Catalog

    catalog = Catalog.load()
    name = catalog.plain_name(name)
    try:
        return catalog.lasting_name(name)
    except NotDownloaded as fault:
        if not catalog.repository(name):
            raise UsageError(fault.message, hint=f"{LISTED}. Nothing is written.") from fault
        print_note(str(fault))
    return name


@contextmanager
def laid_to_config() -> Iterator[None]:
    """A model that is missing is config.toml's default_model: the error says so."""
    from localspec.core import paths
    from localspec.core.errors import NotDownloaded

    try:
        yield
    except NotDownloaded as fault:
        message = f"{fault.message} It is the default_model of {paths.config_file()}."
        raise NotDownloaded(
            message, hint=f"{fault.hint.rstrip('.')}. Or: localspec config set default_model guide"
        ) from fault


@config.command()
@KEY
def unset(key: str) -> None:
    """Remove a setting from the file, so that its default applies."""
    from localspec.config.writing import unset as remove

    remove(key)


@config.command()
def edit() -> None:
    """Open config.toml in $VISUAL or $EDITOR, and check it afterwards."""
    from localspec.config.reading import read
    from localspec.config.writing import parsed, write
    from localspec.core import paths

    file = paths.config_file()
    if not file.exists():
        write(parsed(file), file)
    try:
        click.edit(filename=str(file))
    except click.ClickException as fault:
        raise UsageError(
            f"The editor failed ({fault.format_message()}).", hint="Set EDITOR to another editor."
        ) from fault
    read()


@config.command()
@click.option("--models", is_flag=True, help="Print the schema of models.toml.")
def schema(models: bool) -> None:
    """Print the JSON schema of config.toml, for editors."""
    import msgspec

    from localspec.cli.io import as_json
    from localspec.config.tables import Config
    from localspec.models.catalog_file import CatalogFile

    print(as_json(msgspec.json.schema(CatalogFile if models else Config)))


def shown(value: Any) -> str:
    """A value as config.toml writes it; – where the model decides."""
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)
