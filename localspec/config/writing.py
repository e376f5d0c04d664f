"""Changes config.toml: one value at a time, the rest as the user wrote it, comments too; whole, or not at all.

Imports tomlkit late: whoever only reads does not need it.
"""

from __future__ import annotations

import tomllib
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any  # Any: a TOML value of whatever type

from localspec.config.reading import checked, tables, text
from localspec.config.tables import SCHEMA_VERSION
from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.whole_file import write_whole

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

NEW = f"schema_version = {SCHEMA_VERSION}\n"


def store(key: str, value: Any, file: Path | None = None) -> None:
    """Set a value; nothing is written that could not be read again."""
    target = file or paths.config_file()
    document = parsed(target)
    before = document.unwrap()
    put(document, key, value)
    try:
        checked(document.unwrap(), target)
    except UsageError as fault:
        checked(before, target)  # if the file was wrong already, that is what to say
        sentence = fault.message.removeprefix(f"{target}: ").replace("there is no setting", "There is no setting")
        raise UsageError(sentence, hint="Nothing is written.") from fault
    write(document, target)


def store_typed(key: str, typed: str, file: Path | None = None) -> None:
    """Stores a typed value: as TOML if that suits the key, else as text."""
    try:
        store(key, literal(typed), file)
    except UsageError as fault:
        try:
            store(key, typed, file)
        except UsageError:
            raise fault from None


def unset(key: str, file: Path | None = None) -> None:
    """Take a value, or a whole table, out of the file; also one that should not be there."""
    target = file or paths.config_file()
    document = parsed(target)
    for *above, name in (parts(key), key.split(".", 1)):  # a preset's setting, or a whole preset
        table: Any = document
        for part in above:
            table = table.get(part) if isinstance(table, MutableMapping) else None
        if isinstance(table, MutableMapping) and name in table:
            del table[name]
            write(document, target)
            return
    raise UsageError(f"'{key}' is not set in {target}.", hint="List what is set: localspec config show --origin")


def parts(key: str) -> list[str]:
    """A dotted key, as tables are nested: names of keys and presets may have dots of their own."""
    section, _, rest = key.partition(".")
    if section == "presets" and rest:
        return [section, *filter(None, rest.rpartition(".")[::2])]
    return [section, rest] if section == "keymap" and rest else key.split(".")


def literal(typed: str) -> Any:
    try:
        found = tomllib.loads(f"value = {typed}")
    except tomllib.TOMLDecodeError:
        return typed
    return found["value"] if found.keys() == {"value"} else typed


def parsed(file: Path) -> TOMLDocument:
    import tomlkit

    written = text(file)
    tables(written, file)  # its sentence is better than tomlkit's
    return tomlkit.parse(written or NEW)


def put(document: TOMLDocument, key: str, value: Any) -> None:
    import tomlkit

    *above, name = parts(key)
    table: Any = document
    for part in above:
        table = table.setdefault(part, tomlkit.table(is_super_table=part == "presets"))
        if not isinstance(table, MutableMapping):
            raise UsageError(f"'{key}' cannot be set: {part} is not a table.", hint="Edit it: localspec config edit")
    table[name] = value


def write(document: TOMLDocument, file: Path) -> None:
    import tomlkit

    try:
        write_whole(file.resolve(), tomlkit.dumps(document).encode())
    except OSError as fault:
        raise UsageError(
            f"{file} cannot be written ({fault.strerror or fault}).", hint="Set LOCALSPEC_CONFIG_DIR to another folder."
        ) from fault
