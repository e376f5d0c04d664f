"""Changes the user's models.toml: one model at a time, the rest as the user wrote it; whole, or not at all.

Imports tomlkit late: whoever only reads does not need it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any  # Any: TOML values

from localspec.core import paths
from localspec.core.errors import CatalogError, UsageError
from localspec.core.sanitize import one_line
from localspec.core.whole_file import write_whole
from localspec.models import hub_cache
from localspec.models.catalog_file import NAME, NAME_WORDS, SCHEMA_VERSION, ModelTable, checked, over, read

NEW = f"schema_version = {SCHEMA_VERSION}\n"


def store_model(key: str, fields: Mapping[str, Any], draft: Mapping[str, Any] | None = None) -> Path:
    """Sets these fields of [models.KEY], and [models.KEY.draft] whole if one is given; returns the file. UsageError
    where the result could not be read again."""
    file = paths.models_file()
    save(file, changed(file, key, fields, draft))
    return file


def store_remote(name: str, fields: Mapping[str, Any]) -> Path:
    """Writes [remotes.NAME] whole; returns the file. UsageError where the result could not be read again."""
    import tomlkit

    file = paths.models_file()
    document: Any = tomlkit.parse(written(file))
    table = child(child(document, "remotes", is_super=True), name)
    table.clear()
    table.update(fields)
    check(document.unwrap(), file, name)
    save(file, tomlkit.dumps(document))
    return file


def remove_remote(name: str) -> Path:
    """Removes [remotes.NAME] from the user's file; returns it. UsageError where there is none."""
    import tomlkit

    file = paths.models_file()
    document: Any = tomlkit.parse(written(file))
    remotes = document.get("remotes")
    if not isinstance(remotes, MutableMapping) or name not in remotes:
        raise UsageError(f"There is no server '{name[:100]}' in {file}.", hint="List them: localspec remote ls")
    remotes.pop(name)
    if not remotes:
        document.pop("remotes")
    save(file, tomlkit.dumps(document))
    return file


def check_key(key: str, repo: str) -> None:
    """UsageError for a name that models.toml could not give to this repository, that is the built-in model's, or a
    file that cannot be written."""
    if not re.fullmatch(NAME, key):
        shown = one_line(key)[:100]
        raise UsageError(f"'{shown}' is no key: it must be {NAME_WORDS}.", hint="Choose another: --as KEY")
    if any(key in (name, *table.aliases) for name, table in shipped().items() if table.path is not None):
        raise UsageError(f"'{key}' is the built-in model's name.", hint="Choose another: --as KEY")
    changed(paths.models_file(), key, {"repo": repo}, None)
    check_writable(paths.models_file())


def check_writable(file: Path) -> None:
    """UsageError where the file could not be written; writes nothing itself."""
    folder = file.resolve().parent
    nearest = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(
            f"{file} cannot be written: you may not create files in {nearest}.",
            hint="Set LOCALSPEC_CONFIG_DIR to another folder.",
        )


def other_model(key: str, repo: str) -> tuple[str, str]:
    """What this key means now, if that is another repository, or a folder, and which file says so; else ""."""
    table, catalogued = own_tables().get(key, {}), shipped().get(key)
    before, where = repository_of(table) or str(table.get("path") or ""), "your models.toml"
    if not before and catalogued is not None:
        before, where = catalogued.repo or "", "the catalogue"
    return (before, where) if before not in ("", repo) else ("", "")


def shipped() -> Mapping[str, ModelTable]:
    """The models of the catalogue that comes with localspec."""
    file = paths.packaged("models.toml")
    return checked(read(file), file).models


def keys_of(repos: Collection[str]) -> tuple[str, ...]:
    """The keys that the user's models.toml gives to these repositories."""
    return tuple(key for key, table in own_tables().items() if repository_of(table) in repos)


def keys_of_file(repo: str, files: Collection[str]) -> tuple[str, ...]:
    """The keys that the user's models.toml gives to one of these files of a repository."""
    return tuple(key for key, table in own_tables().items() if repository_of(table) == repo and file_of(table) in files)


def own_tables() -> dict[str, dict[str, Any]]:
    """The models of the user's file, as written."""
    found = read(paths.models_file()).get("models") if paths.models_file().exists() else {}
    return {key: table for key, table in found.items() if isinstance(table, dict)} if isinstance(found, dict) else {}


def repository_of(table: Mapping[str, Any]) -> str:
    """The repository of an entry, also where it names a path in the cache; "" for none."""
    inside = hub_cache.fetched_from(paths.expanded(str(table.get("path") or "")))[0]
    return str(table.get("repo") or inside)


def file_of(table: Mapping[str, Any]) -> str:
    """The file of an entry, in its repository; "" for all of it."""
    return str(table.get("file") or "") or hub_cache.path_inside(paths.expanded(str(table.get("path") or "")))


def remove_models(keys: Collection[str]) -> None:
    """Removes these models from the user's file; what stands before the next one stays, comments too."""
    import tomlkit

    file = paths.models_file()
    document = tomlkit.parse(written(file))
    for name, tables in document.body:
        if name is not None and name.key == "models" and isinstance(tables, tomlkit.items.Table):
            for index, (key, table) in enumerate(tables.value.body):
                if key is not None and key.key in keys:
                    tables.value.body[index] = None, tomlkit.items.Whitespace(end_of(table))
    text = tomlkit.dumps(document)
    left = tomlkit.parse(text).unwrap()
    if stuck := [key for key in keys if key in left.get("models", {})]:
        raise UsageError(
            f"localspec cannot remove '{stuck[0]}' from {file}: it is not written as [models.{stuck[0]}].",
            hint="Delete it with an editor.",
        )
    check(left, file, ", ".join(keys))
    save(file, text)


def end_of(item: Any) -> str:
    """The comments and empty lines at the end of a table's text, which are about what follows."""
    import tomlkit

    found = ""
    for _, last in reversed(item.value.body if isinstance(item, tomlkit.items.Table) else ()):
        if not isinstance(last, tomlkit.items.Comment | tomlkit.items.Whitespace):
            return end_of(last) + found
        found = last.as_string() + found
    return found


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
