"""Precedence: a flag, the environment, models.toml, config.toml, the built-in value. Reads no file itself.

For sampling: what is set, the preset, models.toml, config.toml, the model's own generation_config.json, and at last the
preset `balanced`, for a model that names no temperature.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any  # Any: what was given on the command line, by name

from localspec.config.tables import USUAL, Config, PresetTable
from localspec.core.errors import NotDownloaded, UsageError
from localspec.core.events import DraftLength
from localspec.core.requests import (
    LONGEST_NUMBER,
    MOST_TOKENS,
    RANDOM_SEED,
    SAMPLING_FIELDS,
    LoadRequest,
    SamplingOptions,
)
from localspec.models.catalog import Catalog, Entry

NO_PRESET = PresetTable()
PRESET, MODELS_OWN = "preset", "the model's own"
RANDOM = ("random", "none")  # a seed that is another each time
SETTABLE = (*SAMPLING_FIELDS, "max_tokens", "stop")


@dataclass(frozen=True, slots=True)
class SamplingSource:
    """Sampling options that one source gives."""

    source: str
    options: SamplingOptions


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
    return over_all(given, layers(config, entry, preset))


def layers(config: Config, entry: Entry | None, preset: PresetTable) -> tuple[SamplingSource, ...]:
    """What was given elsewhere than in the chat or by a flag, the first with a value before the others."""
    catalogued = entry.sampling if entry is not None else SamplingOptions()
    return (
        SamplingSource(PRESET, preset),
        SamplingSource("models.toml", catalogued),
        SamplingSource("config.toml", config.sampling),
    )


def defaults(own: SamplingOptions, usual: SamplingOptions) -> tuple[SamplingSource, ...]:
    """The layers that come last: the model's own options, and those of `balanced` where it names no temperature."""
    beneath = usual if own.temperature is None else SamplingOptions()
    return SamplingSource(MODELS_OWN, own), SamplingSource(USUAL, beneath)


def usual(config: Config, preset: str | None) -> SamplingOptions:
    """The options of `balanced`, which a preset that was chosen sets aside as a whole."""
    return SamplingOptions() if preset else SamplingOptions().over(config.preset(USUAL))


def over_all(given: SamplingOptions, beneath: tuple[SamplingSource, ...]) -> SamplingOptions:
    for layer in beneath:
        given = given.over(layer.options)
    return given


def entry_of(catalog: Catalog, model: str) -> Entry | None:
    """The model's entry; None if it is not there, which loading it reports."""
    with suppress(NotDownloaded):
        return catalog.resolve(model)
    return None


def chosen(name: str, typed: str) -> float | int | None:
    """A sampling option as it is set in a chat; None: it is no longer set."""
    if name == "seed" and typed in RANDOM:
        return RANDOM_SEED
    if name in SAMPLING_FIELDS and typed in ("", "none"):
        return None
    return option(name, typed)


def option(name: str, typed: str) -> float | int:
    """A sampling option as it was typed; UsageError says what it may be."""
    field = SAMPLING_FIELDS.get(name)
    if field is None:
        near = difflib.get_close_matches(name, SETTABLE, n=1)
        raise UsageError(
            f"There is no option '{name[:40]}'" + (f"; did you mean '{near[0]}'?" if near else "."),
            hint="" if near else f"Available: {', '.join(SETTABLE)}.",
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


def token_limit(typed: str) -> int | None:
    """A limit of an answer's length as it was typed; None for `none`."""
    if typed == "none":
        return None
    if typed.isdecimal() and len(typed) <= LONGEST_NUMBER and 1 <= int(typed) <= MOST_TOKENS:
        return int(typed)
    raise UsageError(f"max_tokens is a whole number from 1 to {MOST_TOKENS}, or none, not '{typed[:40]}'.")
