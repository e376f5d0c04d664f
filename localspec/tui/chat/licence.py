"""Reads a model's licence from its folder: its card, and files of that name. Reads the disk; judges nothing."""

from __future__ import annotations

import re
from pathlib import Path

from localspec.core import paths
from localspec.core.errors import LocalspecError
from localspec.core.sanitize import one_line
from localspec.models import hub_cache
from localspec.models.catalog import Catalog

OURS = "localspec and its built-in model guide are under Apache-2.0."
NAMED = re.compile(r"(licen[cs]e|copying|use_policy)", re.IGNORECASE)
CARD_CHARACTERS = 1 << 16
LONGEST = 80


def licences(model_key: str) -> str:
    """The licence of the program, and of this model as far as its folder names one."""
    try:
        path = Catalog.load().resolve(model_key).path
        return OURS if is_ours(path) else f"{OURS}\n{one_line(model_key)}: {licence_words(path)}"
    except (LocalspecError, OSError) as fault:
        return f"{OURS}\nThe model's folder cannot be read: {fault}"


def is_ours(folder: Path) -> bool:
    return folder.is_relative_to(paths.packaged("assets/guide"))


def licence_words(path: Path) -> str:
    """Says where the model's licence is named, or that it is not."""
    folder = path if path.is_dir() else path.parent
    found = [f"its card says {name}"] if (name := on_card(folder / "README.md")) else []
    found += [f"see {folder / file.name}" for file in sorted(folder.iterdir()) if NAMED.match(file.name)]
    if not found and (name := pulled_with(path)):
        found.append(f"its repository says {name}")
    return ("; ".join(found) or "its folder names no licence; see where you downloaded it") + "."


def pulled_with(path: Path) -> str:
    """The licence that the hub named when the model was pulled; "" for none."""
    from localspec.hub.licences import remembered

    found = remembered(hub_cache.fetched_from(path)[0])
    return found.words if found.tag or found.name else ""


def on_card(card: Path) -> str:
    """The `license:` line of a model card's head."""
    if not card.is_file():
        return ""
    with card.open(encoding="utf-8", errors="replace") as file:
        head = re.match(r"---\n(.*?)\n---", file.read(CARD_CHARACTERS), re.DOTALL)
    line = re.search(r"^license(?:_name)?:[ \t]*(\S.*)$", head[1], re.MULTILINE) if head else None
    return one_line(line[1])[:LONGEST] if line else ""
