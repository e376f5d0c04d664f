"""Changes the user's models.toml: one model at a time, the rest as the user wrote it; whole, or not at all.

Imports tomlkit late: whoever only reads does not need it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any  # Any: TOML values

from localspec.core import paths
from localspec.core.errors import CatalogError, UsageError
from localspec.core.whole_file import write_whole
from localspec.models.catalog_file import SCHEMA_VERSION, checked, over, read

NEW = f"schema_version = {SCHEMA_VERSION}\n"


def store_model(key: str, fields: Mapping[str, Any], draft: Mapping[str, Any] | None = None) -> Path:
    """Sets these fields of [models.KEY], and [models.KEY.draft] whole if one is given; returns the file. UsageError
    where the result could not be read again."""
    file = paths.models_file()
    save(file, changed(file, key, fields, draft))
    return file


def check_key(key: str, repo: str) -> None:
    """UsageError for a name that models.toml could not give to this repository, or a file that cannot be written."""
    changed(paths.models_file(), key, {"repo": repo}, None)
    check_writable(paths.models_file())


def check_writable(file: Path) -> None:
    """UsageError where the file could not be written; writes nothing itself."""
    folder = file.resolve().parent
    nearest = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(
            f"{file} cannot be written: {nearest} takes no new files.",
            hint="Set LOCALSPEC_CONFIG_DIR to another folder.",
        )


def changed(file: Path, key: str, fields: Mapping[str, Any], draft: Mapping[str, Any] | None) -> str:
    """The file's text with the change, checked."""
    import tomlkit

    document: Any = tomlkit.parse(written(file))
    table = child(child(document, "models", is_super=True), key)
    for name in ("path", *(name for name, value in fields.items() if value is None)):
        table.pop(name, None)
    table.update({name: value for name, value in fields.items() if value is not None})
    if draft is not None:
        table.pop("draft", None)
        child(table, "draft").update(draft)
    check(document.unwrap(), file, key)
    return tomlkit.dumps(document)


def written(file: Path) -> str:
    """The file's text, checked; a new one's where there is none."""
    if not file.exists():
        return NEW
    read(file)
    return file.read_text(encoding="utf-8")


def child(table: Any, name: str, *, is_super: bool = False) -> Any:
    import tomlkit

    if name not in table:
        table[name] = tomlkit.table(is_super_table=is_super)
    if not isinstance(table[name], MutableMapping):
        raise UsageError(f"{paths.models_file()} has no table '{name}'.", hint="Edit the file and try again.")
    return table[name]


def check(document: dict[str, Any], file: Path, key: str) -> None:
    try:
        checked(over(document, read(paths.packaged("models.toml")), file.parent), file)
    except CatalogError as fault:
        raise UsageError(f"'{key}' cannot be written: {fault.message}", hint="Nothing is written.") from fault


def save(file: Path, text: str) -> None:
    try:
        write_whole(file.resolve(), text.encode())
    except OSError as fault:
        raise UsageError(
            f"{file} cannot be written ({fault.strerror or fault}).", hint="Set LOCALSPEC_CONFIG_DIR to another folder."
        ) from fault
