"""What a model's own card says of its licence, read from README.md in its folder. Knows no network."""

from __future__ import annotations

import re
from pathlib import Path

from localspec.core import paths, strict_json
from localspec.core.errors import LocalspecError
from localspec.hub.licences import read_licence, remembered
from localspec.hub.records import Licence
from localspec.models import hub_cache

OURS = Licence("apache-2.0")  # the built-in model's, which comes with the program
MAX_CARD_BYTES = 1 << 20
FRONT = re.compile(r"\A---\s*\n(.*?)\n---", re.DOTALL)
FIELD = re.compile(r"^(license|license_name|license_link):[ \t]*['\"]?([^'\"\n]{1,300})", re.MULTILINE)
TEXTS = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "USE_POLICY.md")


def licence_at(path: Path) -> Licence:
    """The licence of a model on this machine: as its card names it, else as the hub did when it was pulled."""
    if path.is_relative_to(paths.packaged("assets")):
        return OURS
    repo, commit = hub_cache.fetched_from(path)
    folder = hub_cache.snapshot(repo, commit) if repo else path if path.is_dir() else path.parent
    found = licence_of(folder) if folder else Licence()
    return found if found.tag else remembered(repo)


def licence_of(folder: Path) -> Licence:
    """The licence in the card's front matter; without a name where there is none."""
    front = FRONT.match(text_of(folder / "README.md"))
    return read_licence(dict(FIELD.findall(front[1])) if front else {}, ())


def licence_text(folder: Path) -> str:
    """The licence's own text, where the folder has it; else ""."""
    return next((text for name in TEXTS if (text := text_of(folder / name))), "")


def text_of(file: Path) -> str:
    try:
        return strict_json.read_text(file, MAX_CARD_BYTES) if file.is_file() else ""
    except (LocalspecError, OSError):
        return ""
