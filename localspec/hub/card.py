"""What a model's own card says of its licence, read from README.md in its folder. Knows no network."""

from __future__ import annotations

import re
from pathlib import Path

from localspec.core import strict_json
from localspec.core.errors import LocalspecError
from localspec.hub.licences import read_licence
from localspec.hub.records import Licence

MAX_CARD_BYTES = 1 << 20
FRONT = re.compile(r"\A---\s*\n(.*?)\n---", re.DOTALL)
FIELD = re.compile(r"^(license|license_name|license_link):[ \t]*['\"]?([^'\"\n]{1,300})", re.MULTILINE)
TEXTS = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "USE_POLICY.md")


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
