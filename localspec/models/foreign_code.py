"""Fields of a model's JSON with which transformers would run or fetch something: what each does, and its fate here.

Nothing here acts on any of them. What stands in honest models too is dropped when a file is read, the rest is refused.
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
# How attention is computed, where that is transformers' own business: it would fetch nothing, and we say it ourselves.
BUILT_IN = (True, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")


def refuse_foreign_code(file: Path, key: str, depth: int, value: object) -> None:
    """`depth`: 0 for a field of the file itself."""
    for part, reason in REASONS.items():
        if part in key and not is_harmless(part, key, depth, value):
            raise CheckpointError(
                f"{file} has the field {key[:80]!r}, which {reason}.",
                hint="localspec runs no code from models. Choose another copy, or remove the field if you trust it.",
            )


def is_harmless(part: str, key: str, depth: int, value: object) -> bool:
    """An auto_map is for Auto classes, which are not used here: what is built is transformers' own model of this type,
    or none."""
    if not value:
        return True
    if part in KERNELS:
        return value in BUILT_IN
    return part in (AUTO_MAP, ORIGIN) and key == part and depth == 0


def without_foreign_code(found: dict[str, Any]) -> dict[str, Any]:
    """A file's fields without those that are harmless as long as nobody acts on them."""
    return {name: value for name, value in found.items() if not any(part in name for part in REASONS)}
