"""Refuses fields of a model's JSON that make transformers run or download code, or drops them.

None of them is ever used. Fields that honest models have, too, are dropped when a file is read, the rest is refused.
Knows nothing about the other fields.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any  # Any: JSON from a stranger

from localspec.core.errors import CheckpointError

AUTO_MAP, ORIGIN = "auto_map", "_name_or_path"
KERNELS = ("attn_implementation", "experts_implementation")
# By a part of the field's name (CVE-2026-4372 and CVE-2026-5241 were of these kinds).
REASONS = {
    AUTO_MAP: "names foreign code in the folder, to be run instead of transformers' own",
    "trust_remote_code": "lets foreign code run unasked",
    "custom_generate": "names foreign code, to be fetched and run for every answer",
    "attn_implementation": "names foreign code, a kernel to be fetched and run",
    "experts_implementation": "names foreign code, a kernel to be fetched and run",
    ORIGIN: "names another model to be fetched, and its foreign code with it",
}
# Attention implementations inside transformers: these download nothing, and we choose our own.
BUILT_IN = (True, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")


def refuse_foreign_code(file: Path, key: str, depth: int, value: object) -> None:
    """CheckpointError for a field that is not harmless; `depth` is 0 at the top of the file."""
    for part, reason in REASONS.items():
        if part in key and not is_harmless(part, key, depth, value):
            raise CheckpointError(
                f"{file} has the field {key[:80]!r}, which {reason}.",
                hint="localspec runs no code from models. Choose another copy, or remove the field if you trust it.",
            )


def is_harmless(part: str, key: str, depth: int, value: object) -> bool:
    """True for a field that has no effect here. auto_map is for Auto classes, which are not used: only transformers'
    own models are built."""
    if not value:
        return True
    if part in KERNELS:
        return value in BUILT_IN
    return part in (AUTO_MAP, ORIGIN) and key == part and depth == 0


def without_foreign_code(found: dict[str, Any]) -> dict[str, Any]:
    """A file's fields without those about foreign code."""
    return {name: value for name, value in found.items() if not any(part in name for part in REASONS)}
