"""models.toml as written: its tables, how it is read and checked, and the user's own merged over the packaged one.

Knows nothing about what is on disk.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any, Literal  # Any: TOML before it is checked

import msgspec

from localspec.core import paths
from localspec.core.errors import UPDATE, CatalogError
from localspec.core.plain_file import plain
from localspec.core.requests import LEAST_CONTEXT, SamplingOptions, WrittenLength
from localspec.core.strict_toml import shallow
from localspec.core.weight_formats import ListedFormat

SCHEMA_VERSION = 1
MOST_BYTES = 1 << 20
LONGEST_FAULT = 300  # characters of a file's fault in a message
NAME = r"^\w[\w.:+-]{0,99}$"
NAME_WORDS = "a name of letters, digits and any of _ . : + -"
EDIT = "Edit the file and try again."
OF_A_REPOSITORY = {"repo", "path", "file", "folding", "revision", "licence", "gated"}

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Context = Annotated[int, msgspec.Meta(ge=LEAST_CONTEXT)]
Commit = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}$")]
GgufPath = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!.*(^|/)\.\.?(/|$))[^\\\x00-\x1f]{1,300}\.[gG][gG][uU][fF]$")]

ServerUrl = Annotated[str, msgspec.Meta(pattern=r"^https?://[!-~]{1,292}$")]
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"  # of the environment
Variable = Annotated[str, msgspec.Meta(pattern=VARIABLE)]
ServerKind = Literal["localspec", "llama-server", "vllm", "sglang", "lmstudio", "ollama", "openai"]


class DraftTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[models.KEY.draft] and [models.KEY.drafts.NAME] as written. Which kinds there are, the engine's table says.
    `source`: where the exit layer or the pair was read."""

    kind: str
    model: str | None = None
    exit_layer: Count | None = None
    k: WrittenLength = "auto"
    source: str = ""


class FoldingTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[models.KEY.folding]: corrects what the user types, by the `words` of a file in the model's folder; `sums`
    replaces a bare sum, and with `alone` a question that is no follow-up is read without the turns before it."""

    words: Annotated[str, msgspec.Meta(pattern=r"^[^\x00]+$")]
    sums: str = ""
    alone: bool = False


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[models.KEY] as written, with exactly one of repo and path. `quant`, `ctx`, `system`, `preset` and `template` are
    defaults for `chat` and `run`, `fallback_template` that of a model which has no chat template of its own; `revision`
    is the commit that was pulled, `file` the GGUF file's path inside the repository, `licence` and `gated` are as the
    hub names them."""

    repo: str | None = None
    path: str | None = None
    revision: Commit | None = None
    file: GgufPath | None = None
    name: str | None = None
    aliases: tuple[Name, ...] = ()
    licence: str = ""
    gated: Literal["", "auto", "manual"] = ""
    quant: ListedFormat | None = None
    ctx: Context | None = None
    system: str | None = None
    preset: str | None = None
    template: str | None = None
    fallback_template: str | None = None
    sampling: SamplingOptions = SamplingOptions()
    folding: FoldingTable | None = None
    draft: DraftTable | None = None
    drafts: dict[Name, DraftTable] = {}


class RemoteTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[remotes.NAME] as written: a server that another program runs. `model` is its name there, `key_env` the
    environment variable that holds its key, `kind` what the server is, where that is not to be found out."""

    url: ServerUrl
    model: str | None = None
    key_env: Variable | None = None
    kind: ServerKind | None = None


class CatalogFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """models.toml as written."""

    schema_version: int
    models: dict[Name, ModelTable] = {}
    remotes: dict[Name, RemoteTable] = {}


TABLES = (CatalogFile, ModelTable, FoldingTable, DraftTable, RemoteTable, SamplingOptions)
FIELDS = sorted({name for table in TABLES for name in table.__struct_fields__})


def read(source: Path) -> dict[str, Any]:
    """Reads a models.toml, unchecked."""
    try:
        if plain(source).stat().st_size > MOST_BYTES:
            raise CatalogError(f"{source} is too large: at most {MOST_BYTES:,} bytes are read.", hint=EDIT)
        found: dict[str, Any] = msgspec.toml.decode(shallow(source.read_text(encoding="utf-8")))
        return found
    except OSError as error:
        raise CatalogError(f"{source} cannot be read ({error.strerror or error}).", hint=EDIT) from error
    except RecursionError as error:
        raise CatalogError(f"{source} is nested too deep.", hint=EDIT) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{source}: {explain(str(error))}.", hint=EDIT) from error


def checked(found: Mapping[str, Any], source: Path) -> CatalogFile:
    refuse_misplaced(found, source)
    try:
        written = msgspec.convert(found, CatalogFile, builtin_types=(datetime, date, time))
    except (msgspec.ValidationError, RecursionError) as error:
        sentence = explain(str(error))
        raise CatalogError(f"{source}: {sentence}{'' if sentence.endswith('?') else '.'}", hint=EDIT) from error
    check(source, written)
    return written


def refuse_misplaced(found: Mapping[str, Any], source: Path) -> None:
    """Refuses [KEY] where [models.KEY] is meant."""
    tables = [name for name, value in found.items() if isinstance(value, dict) and name not in FIELDS]
    for name in tables:
        if not difflib.get_close_matches(name, ("models",), n=1):
            raise CatalogError(f"{source}: [{name}] is not a known table.", hint=f"Write [models.{name}].")


def over(own: dict[str, Any], shipped: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Merges the user's file over the packaged one, field by field. A model with another repo or path also loses what
    the packaged file says of that repository."""
    models = own.get("models", {})
    if not isinstance(models, dict):
        return own
    merged = dict(shipped["models"])
    for key, table in models.items():
        if isinstance(table, dict):
            before = merged.get(key, {})
            moved = any(table.get(name, before.get(name)) != before.get(name) for name in ("repo", "path"))
            known = {name: value for name, value in before.items() if not moved or name not in OF_A_REPOSITORY}
            merged[key] = {**known, **with_full_paths(table, folder)}
        else:
            merged[key] = table
    return {**own, "models": merged}


def with_full_paths(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolves the user's paths against the folder of the user's file."""
    for draft in drafts(table):
        if isinstance(model := draft.get("model"), str) and os.path.exists(path := folder / paths.expanded(model)):
            draft["model"] = str(path)
    for name in ("template", "fallback_template"):
        template = table.get(name)
        if isinstance(template, str) and os.path.isfile(file := folder / paths.expanded(template)):
            table = {**table, name: str(file)}
    own = table.get("path")
    return {**table, "path": str(folder / paths.expanded(own))} if isinstance(own, str) else table


def drafts(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    named = table.get("drafts")
    for draft in (table.get("draft"), *(named.values() if isinstance(named, dict) else ())):
        if isinstance(draft, dict):
            yield draft


def check(source: Path, written: CatalogFile) -> None:
    """Checks what the types cannot express."""
    if written.schema_version != SCHEMA_VERSION:
        newer = written.schema_version > SCHEMA_VERSION
        hint = UPDATE if newer else f"Write {SCHEMA_VERSION}."
        raise CatalogError(f"{source} has schema_version {written.schema_version}, not {SCHEMA_VERSION}.", hint=hint)
    seen: dict[str, str] = {}
    for key, table in written.models.items():
        if (table.repo is None) == (table.path is None):
            raise CatalogError(f"{source}: '{key}' must have exactly one of repo and path.", hint=EDIT)
        if table.file is not None and table.repo is None:
            raise CatalogError(f"{source}: '{key}' has a file and no repo to find it in.", hint=EDIT)
        for word in (key, *table.aliases):
            if seen.setdefault(word, key) != key:
                raise CatalogError(f"{source}: '{word}' names both '{seen[word]}' and '{key}'.", hint=EDIT)
    for name in written.remotes:
        if name in seen:
            raise CatalogError(f"{source}: '{name}' names both a model and a server.", hint=EDIT)


def explain(message: str) -> str:
    """msgspec's message, with the nearest known name for an unknown one."""
    named = message.replace(f"`str` matching regex {NAME!r}", NAME_WORDS)
    message = " ".join(named.split())[:LONGEST_FAULT].rstrip(".")
    unknown = re.search(r"unknown field `([^`]*)`(.*)", message)
    if not unknown:
        return message
    near = difflib.get_close_matches(unknown[1], FIELDS, n=1)
    return f"unknown key '{unknown[1]}'{unknown[2]}" + (f"; did you mean '{near[0]}'?" if near else "")
