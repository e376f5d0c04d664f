"""Precedence: a flag, the environment, models.toml, config.toml, the built-in value. Reads no file itself."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any  # Any: what was given on the command line, by name

from localspec.config.tables import Config, PresetTable
from localspec.core.errors import NotDownloaded, UsageError
from localspec.core.events import DraftLength
from localspec.core.requests import SAMPLING_FIELDS, LoadRequest, SamplingOptions
from localspec.models.catalog import Catalog, Entry

NO_PRESET = PresetTable()


def load_request(config: Config, catalog: Catalog, model: str, given: Mapping[str, Any]) -> LoadRequest:
    """The request that loads a model. `given`: by a flag or the environment. Drafts of models.toml are left to the
    engine."""
    engine = config.engine
    built = {name: getattr(engine, name) for name in ("device", "quant", "save_quantized", "ctx", "threads")}
    spec = {"probe_every": config.spec.probe_every, "mode": "auto" if "k" in given else config.spec.mode}
    entry = entry_of(catalog, model)
    own = {name: value for name in ("quant", "ctx") if (value := getattr(entry, name, None)) is not None}
    draft = given.get("draft") or ("auto" if entry is not None and entry.draft else config.spec.draft)
    k = given.get("k", usual_length(config, entry, draft))
    return LoadRequest.of(model, **{**built, **spec, **own, **given, "draft": draft, "k": k})


def preset_name(config: Config, entry: Entry | None, given: str | None) -> str | None:
    """The preset that was asked for, else the model's own; UsageError where there is none of that name."""
    name = given or (entry.preset if entry is not None else None)
    if name:
        config.preset(name)
    return name or None


def instructions(entry: Entry | None, given: str | None, preset: PresetTable) -> str:
    """The system prompt where a chat has none of its own."""
    return given or preset.system or (entry.system if entry is not None else None) or ""


def usual_length(config: Config, entry: Entry | None, draft: str) -> DraftLength:
    """config.toml's, unless models.toml has one for this draft."""
    if entry is None:
        return config.spec.k
    catalogued = entry.draft if draft == "auto" else entry.named_draft(draft)
    return "auto" if catalogued is not None and catalogued.k != "auto" else config.spec.k


def sampling(
    config: Config, entry: Entry | None, given: SamplingOptions, preset: PresetTable = NO_PRESET
) -> SamplingOptions:
    """The sampling options that were given anywhere; the model's own defaults come later."""
    catalogued = entry.sampling if entry is not None else SamplingOptions()
    return given.over(preset).over(catalogued).over(config.sampling)


def entry_of(catalog: Catalog, model: str) -> Entry | None:
    """The model's entry; None if it is not there, which loading it reports."""
    with suppress(NotDownloaded):
        return catalog.resolve(model)
    return None


def option(name: str, typed: str) -> float | int:
    """A sampling option as it was typed; UsageError says what it may be."""
    field = SAMPLING_FIELDS.get(name)
    if field is None:
        near = difflib.get_close_matches(name, SAMPLING_FIELDS, n=1)
        raise UsageError(
            f"There is no option '{name[:40]}'" + (f"; did you mean '{near[0]}'?" if near else "."),
            hint="" if near else f"Available: {', '.join(SAMPLING_FIELDS)}.",
        )
    try:
        value = field.kind(typed)
    except ValueError:
        value = float("nan")
    check_option(name, value, typed)
    return value


def check_option(name: str, value: float, typed: str) -> None:
    field = SAMPLING_FIELDS[name]
    if not field.takes(value):
        raise UsageError(f"{name} is {field.range}, not '{typed[:40]}'.")
