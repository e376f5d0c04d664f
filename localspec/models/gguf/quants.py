"""The quantisation that a GGUF file's name ends in: Q4_K_M. Opens no file."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

PART = re.compile(r"-([0-9]{5})-of-[0-9]{5}$")
QUANT = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|BF16|FP?16|FP?32|MXFP4\w*|TQ\d\w*))$", re.IGNORECASE)
ENDING = ".gguf"


def quant_of(path: str) -> str:
    """The quantisation in capitals; "" where the name ends in none."""
    found = QUANT.search(PurePosixPath(whole(path)).stem)
    return found[1].upper() if found else ""


def whole(path: str) -> str:
    """The path of a model without the numbers of its first part."""
    stem = path[: -len(ENDING)] if path.lower().endswith(ENDING) else path
    return f"{PART.sub('', stem)}{path[len(stem) :]}"
