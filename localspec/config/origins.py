"""Every setting with its value and its origin: the environment, a file, or built in. Knows no precedence of models."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: a setting of whatever type

import msgspec

from localspec.config.reading import checked, tables, text
from localspec.config.tables import KEYS, Config, variable

BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True)
class Setting:
    """`value` None: it is left to the model, or measured."""

    key: str
    value: Any
    origin: str


def settings(file: Path) -> list[Setting]:
    """The settings that apply without a flag or models.toml."""
    written = tables(text(file), file)
    config = checked(written, file)
    found = [setting(key, config, written, str(file)) for key in KEYS]
    found += [Setting(f"keymap.{name}", keys, str(file)) for name, keys in config.keymap.items()]
    for name, preset in config.all_presets.items():
        origin = str(file) if name in config.presets else BUILT_IN
        values = msgspec.structs.asdict(preset).items()
        found += [Setting(f"presets.{name}.{field}", value, origin) for field, value in values if value is not None]
    return found


def setting(key: str, config: Config, written: dict[str, Any], file: str) -> Setting:
    name = variable(key)
    if name is not None and (exported := os.environ.get(name)):
        return Setting(key, exported, f"${name}")
    value: Any = config
    table: Any = written
    for part in key.split("."):
        value, table = getattr(value, part), table.get(part) if isinstance(table, dict) else None
    return Setting(key, value, BUILT_IN if table is None else file)
