"""Servers by name: those of [remotes.NAME] in models.toml, and addresses. Asks no network."""

from __future__ import annotations

from localspec.core.errors import UsageError
from localspec.models.catalog import Catalog
from localspec.models.catalog_file import RemoteTable
from localspec.remote.address import is_address, parse
from localspec.remote.server import Remote


def remote_of(name: str, catalog: Catalog, *, model: str = "", key_env: str = "") -> Remote:
    """The server of this name or address; UsageError for what is neither. What is given counts before the file."""
    table = catalog.remotes.get(name)
    if table is not None:
        return of_table(name, table, model=model, key_env=key_env)
    if not is_address(name) and ":" not in name and "." not in name:
        raise UsageError(f"There is no server '{name[:100]}'.", hint="List them: localspec remote ls. Or give its URL.")
    return Remote(parse(name).url, model=model, key_env=key_env)


def of_table(name: str, table: RemoteTable, *, model: str = "", key_env: str = "") -> Remote:
    return Remote(
        parse(table.url).url, name, model or table.model or "", key_env or table.key_env or "", table.kind or ""
    )
