"""Parses and formats sizes such as 8GB, 500 MB, 1.5GiB."""

from __future__ import annotations

import re

WRITTEN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([KMGT])(I?)B", re.IGNORECASE | re.ASCII)
POWERS = "KMGT"


def read_size(written: str) -> int | None:
    """The size in bytes; None for zero and anything else. The unit is required."""
    found = WRITTEN.fullmatch(written.strip())
    if not found:
        return None
    number, unit, binary = found.groups()
    base = 1024 if binary else 1000
    return round(float(number) * base ** (POWERS.index(unit.upper()) + 1)) or None


def size_words(num_bytes: float) -> str:
    """A size in its unit: GB to a tenth, MB, kB, or bytes."""
    if num_bytes >= 1e9:
        return f"{num_bytes / 1e9:.1f} GB"
    if 1 <= num_bytes < 1e3:
        return f"{num_bytes:.0f} byte{'s' * (num_bytes != 1)}"
    return f"{num_bytes / 1e6:.0f} MB" if num_bytes >= 5e5 else f"{num_bytes / 1e3:.0f} kB"


def rate_words(bytes_per_second: float, *, slow: bool = False) -> str:
    """A rate: below 10 MB/s to a tenth, since a slow line is what one watches. `slow`: with that word."""
    if 0 < bytes_per_second < 1e3:
        words = "under 1 kB/s"
    elif 5e5 <= bytes_per_second < 1e7:
        words = f"{bytes_per_second / 1e6:.1f} MB/s"
    else:
        words = f"{size_words(bytes_per_second)}/s"
    return f"slow: {words}" if slow else words


def of_words(part: float, whole: float) -> str:
    """How much of how much, with one unit if both have the same; the part alone where the whole is not known."""
    if not whole:
        return size_words(part)
    total = size_words(whole)
    return f"{size_words(part).removesuffix(total[total.index(' ') :])} of {total}"


def count_words(number: int) -> str:
    """A number of parameters: 8.19 B, 135 M."""
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.0f} M"
