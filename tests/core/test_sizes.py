"""Sizes as people write them."""

from __future__ import annotations

import pytest

from localspec.core.sizes import of_words, read_size, size_words


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("8GB", 8_000_000_000),
        ("8 gb", 8_000_000_000),
        (" 1.5GiB ", 3 << 29),
        ("500MB", 500_000_000),
        ("2TB", 2_000_000_000_000),
        ("64KiB", 65536),
    ],
)
def test_a_size_is_read(written: str, expected: int):
    assert read_size(written) == expected


@pytest.mark.parametrize(
    "written",
    ["", "8", "GB", "-8GB", "0GB", "8 cows", "8GB/s", "1e9GB", "٨GB", "8GBGB", "nanGB", "8G", "9" * 99 + "GB"],
)
def test_what_is_no_size_is_none(written: str):
    assert read_size(written) is None


def test_sizes_are_shown_in_four_units():
    assert [size_words(n) for n in (1_260_000_000, 350_400_000, 12_300, 0)] == ["1.3 GB", "350 MB", "12 kB", "0 kB"]
    assert [size_words(n) for n in (1, 62, 999, 1000)] == ["1 byte", "62 bytes", "999 bytes", "1 kB"]
    assert (of_words(62, 499), of_words(62, 12_300)) == ("62 of 499 bytes", "62 bytes of 12 kB")
