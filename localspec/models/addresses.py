"""A model's address as it is pasted from a browser or from another program, as the name that every command takes.

Compares hosts as text. Asks no network: what the address leads to is never fetched.
"""

from __future__ import annotations

import os
import re

from localspec.core.errors import UsageError
from localspec.models.gguf.header import SPLIT

HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
SCHEME = re.compile(r"https?://", re.IGNORECASE)
OF_THE_HUB = re.compile(r"hf:([\w.-]+/[\w.-]+(@[^:]+)?(:.+)?)")
ESCAPED = re.compile(r"(%[0-9a-fA-F]{2})+")
NO_MODELS = ("datasets", "spaces", "collections", "papers", "docs", "blog")
GIVE = "Give ORG/NAME, as on huggingface.co."


def without_address(typed: str) -> str:
    """ORG/NAME, with @REVISION and :FILE.gguf where the address has them; what is not an address of the hub stays
    as it is. UsageError for another host's, and for a page that is not a model's."""
    if named := OF_THE_HUB.fullmatch(typed):
        return named[1]
    scheme = SCHEME.match(typed)
    host, _, path = typed[scheme.end() if scheme else 0 :].partition("/")
    if host.lower() not in HOSTS:
        if scheme:
            raise UsageError(f"'{typed[:200]}' is not an address of huggingface.co.", hint=GIVE)
        return typed
    if not scheme and os.path.exists(typed):  # a folder with this name
        return typed
    parts = [unescaped(part) for part in re.split(r"[?#]", path)[0].split("/") if part]
    if len(parts) < 2 or parts[0] in NO_MODELS:
        raise UsageError(f"'{typed[:200]}' is not the address of a model.", hint=GIVE)
    return named_by(*parts)


def unescaped(part: str) -> str:
    """A part of an address with the characters that are spelled as bytes in it."""
    return ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode(errors="replace"), part)


def named_by(org: str, model: str, kind: str = "", revision: str = "", *file: str) -> str:
    """The name for the parts of an address: ORG/NAME, then tree/REV, or blob/REV/FILE."""
    name, _, variant = model.partition(":")
    at = f"@{revision}" if kind in ("tree", "blob", "resolve") and revision not in ("", "main") else ""
    if file and file[-1].lower().endswith(".gguf") and kind != "tree":
        variant = "/".join((*file[:-1], whole_file(file[-1])))
    return f"{org}/{name}{at}{f':{variant}' if variant else ''}"


def whole_file(name: str) -> str:
    """The model's file, of the name of one of its parts."""
    part = SPLIT.fullmatch(name)
    return f"{part[1]}.gguf" if part else name
