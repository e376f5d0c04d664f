"""Weight formats as they are named on a command line that measures several. Knows no tensors."""

from __future__ import annotations

from localspec.core.errors import UsageError
from localspec.core.weight_formats import LISTED, ListedFormat


def read_formats(words: str | None) -> tuple[ListedFormat, ...]:
    """Names with commas between, in the order of the table of formats; () for none."""
    found = words.split(",") if words else []
    if unknown := set(found) - set(LISTED):
        raise UsageError(f"There is no weight format '{min(unknown)}'.", hint=f"Use some of {','.join(LISTED)}.")
    return tuple(name for name in LISTED if name in found)
