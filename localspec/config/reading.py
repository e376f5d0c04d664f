"""Reads config.toml. A mistake in it is one sentence that names the file, the setting and what was probably meant."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar  # Any: TOML before it is checked

import msgspec

from localspec.config.tables import KEYS, PATTERNS, SCHEMA_VERSION, SECTIONS, Config, PresetTable
from localspec.core import paths
from localspec.core.errors import UPDATE, UsageError
from localspec.core.plain_file import read_small
from localspec.core.strict_toml import shallow

Checked = TypeVar("Checked")
EDIT = "Edit it: localspec config edit"
ELSEWHERE = "Move it away, or set LOCALSPEC_CONFIG_DIR to another folder."
TYPES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
}


def read(file: Path | None = None) -> Config:
    """The user's settings; the built-in ones where there is no file."""
    source = file or paths.config_file()
    return checked(tables(text(source), source), source)


def text(file: Path) -> str:
    """The file as it is; nothing where there is none."""
    try:
        return read_small(file).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnicodeDecodeError as fault:
        line = fault.object[: fault.start].count(b"\n") + 1
        raise UsageError(f"{file} is not UTF-8 text (line {line}).", hint=EDIT) from fault
    except OSError as fault:
        raise UsageError(f"{file} cannot be read ({fault.strerror or fault}).", hint=ELSEWHERE) from fault


def tables(written: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(shallow(written))
    except RecursionError as fault:
        raise UsageError(f"{file} is nested too deep.", hint=EDIT) from fault
    except tomllib.TOMLDecodeError as fault:
        raise UsageError(f"{file} is not TOML: {fault}.", hint=EDIT) from fault


def checked(found: dict[str, Any], file: Path) -> Config:
    """The settings; UsageError says what is wrong with the first that is."""
    version = found.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UsageError(
            f"{file} has schema_version {version}; this localspec knows {SCHEMA_VERSION}.",
            hint=UPDATE,
        )
    try:
        for name, preset in members(found, "presets"):
            convert(preset, PresetTable, f"presets.{name}", PresetTable.__struct_fields__)
        for name, keys in members(found, "keymap"):
            convert(keys, str, f"keymap.{name}", ())
        return convert(found, Config, "", (*KEYS, *SECTIONS, "keymap", "presets"))
    except ValueError as fault:
        end = "" if str(fault).endswith("?") else "."
        raise UsageError(f"{file}: {fault}{end}", hint=EDIT) from fault


def members(found: dict[str, Any], section: str) -> list[tuple[str, Any]]:
    """One by one, because an error inside a table of any names does not say which."""
    table = found.get(section)
    return list(table.items()) if isinstance(table, dict) else []


def convert(value: Any, kind: type[Checked], at: str, known: Sequence[str]) -> Checked:
    """Converts a setting's value to its `kind`; `at` is its dotted name. ValueError names the nearest known name."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as fault:
        raise ValueError(explain(str(fault), at, known)) from fault


def explain(message: str, at: str, known: Sequence[str]) -> str:
    """Rewrites msgspec's message, with the setting's name first."""
    sentence, _, path = message.partition(" - at `$")
    where = ".".join(part for part in (at, path.rstrip("`").removeprefix(".")) if part)
    if unknown := re.search(r"unknown field `([^`]*)`", sentence):
        name = ".".join(part for part in (where, unknown[1]) if part)
        near = difflib.get_close_matches(name, [f"{at}.{field}" if at else field for field in known], n=1)
        return f"there is no setting '{name}'" + (f"; did you mean '{near[0]}'?" if near else "")
    for pattern, words in PATTERNS.items():
        sentence = sentence.replace(f"`str` matching regex {pattern!r}", words)
    sentence = re.sub(
        r"`([^`]*)`", lambda kinds: in_words(kinds[1]), sentence.replace("Invalid enum value", "there is no")
    )
    return f"{where}: {sentence[0].lower()}{sentence[1:]}" if where else sentence


def in_words(kinds: str) -> str:
    """`int | null` as a whole number: nothing cannot be written in TOML."""
    return " or ".join(TYPES.get(kind, kind) for kind in kinds.split(" | ") if kind != "null")
