"""The user's choice for speculation, by key or by command. Knows no widgets and no engine."""

from __future__ import annotations

from typing import get_args

import msgspec

from localspec.core.events import Mode, SpecCard
from localspec.core.requests import MAX_DRAFT, SpecOptions, read_draft_length
from localspec.core.server_speculation import SERVER

NEXT: dict[Mode, Mode] = {"on": "auto", "auto": "off", "off": "on"}
MODES = f"Write /spec {', '.join(get_args(Mode)[:-1])} or {get_args(Mode)[-1]}."
LENGTHS = f"Write /k auto, /k heuristic or /k N, with N from 0 to {MAX_DRAFT}."


def options_at_start(spec: SpecCard) -> SpecOptions:
    """The engine's own choice, before the user makes one."""
    return SpecOptions.of(spec.k, spec.mode) if spec.kind != "off" else SpecOptions("off")


def turned(options: SpecOptions) -> SpecOptions:
    """The next mode of the key. The draft length stays, for when it is on again."""
    return msgspec.structs.replace(options, mode=NEXT[options.mode])


def spelled(options: SpecOptions, typed: str) -> SpecOptions | None:
    """The mode that was typed; None for any other word."""
    found = next((mode for mode in get_args(Mode) if mode == typed.lower()), None)
    return msgspec.structs.replace(options, mode=found) if found else None


def of_length(typed: str) -> SpecOptions | None:
    """Parses a draft length as --k takes it; None if it is invalid."""
    length = read_draft_length(typed.lower())
    return None if length is None else SpecOptions.of(length)


def chosen(options: SpecOptions) -> str:
    """The choice in words: `Speculation: on, 5 at a time`."""
    length = f"{options.k} at a time" if isinstance(options.k, int) else options.k
    has_one = options.mode == "on" and options.k != "auto"
    return f"Speculation: {options.mode}, {length}" if has_one else f"Speculation: {options.mode}"


def lack(spec: SpecCard | None) -> str:
    """The reason why speculation cannot be switched; "" if it can."""
    if spec is None:
        return "The model is not loaded yet."
    if spec.kind == SERVER:
        return f"{spec.reason}." if spec.reason else ""
    if spec.kind != "off":
        return ""
    why = f": {spec.reason}" if spec.reason else ""
    return f"Nothing drafts for this model{why}. /why shows what could."
