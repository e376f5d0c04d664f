"""A small JSON file of the state folder."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from localspec.core.errors import UsageError
from localspec.core.json_store import JsonStore
from localspec.core.self_check_results import STORE, difference_of


def store(file: Path) -> JsonStore[int]:
    return JsonStore(lambda: file, int)


def test_values_stay_beside_each_other(tmp_path: Path):
    file = tmp_path / "below" / "counts.json"
    assert store(file).read() == {}
    assert store(file).put("a", 1)
    assert store(file).put("b", 2)
    assert store(file).put("a", 3)
    assert store(file).read() == {"a": 3, "b": 2}
    assert [one.name for one in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"a": "x"}', b"\xff", b"[" * 99_999, b'{"a": 1' + b" " * (2 << 20)]
)
def test_a_damaged_file_is_an_empty_one_until_it_is_written(content: bytes, tmp_path: Path):
    file = tmp_path / "counts.json"
    file.write_bytes(content)
    assert store(file).read() == {}
    assert store(file).put("b", 2)
    assert store(file).read() == {"b": 2}


def no_folder() -> Path:
    raise UsageError("There is no folder.")


@pytest.mark.parametrize("file", [no_folder, lambda: Path(__file__) / "below"])
def test_a_file_that_cannot_be_there_is_empty_and_says_that_it_was_not_written(file: Callable[[], Path]):
    unwritable = JsonStore(file, int)
    assert (unwritable.read(), unwritable.put("a", 1)) == ({}, False)


def test_a_difference_is_measured_once_and_one_that_is_no_number_every_time():
    found = iter([0.5, 0.25, float("nan"), 1.0])
    assert [difference_of("a", lambda: next(found)) for _ in range(2)] == [0.5, 0.5]
    assert difference_of("b", lambda: next(found)) == 0.25
    assert [str(difference_of("c", lambda: next(found))) for _ in range(2)] == ["nan", "1.0"]
    assert STORE.read() == {"a": 0.5, "b": 0.25, "c": 1.0}


def test_an_infinite_difference_is_measured_once_too():
    """It is that of a decoder that is refused, and the refusal is remembered."""
    found = iter([inf, 0.0])
    assert [difference_of("a", lambda: next(found)) for _ in range(3)] == [inf] * 3
    assert difference_of("b", lambda: next(found)) == 0.0
