"""Reads untrusted JSON: bounded in size, depth and numbers, no key twice. Faults name the file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any  # Any: JSON from a stranger; its readers check what they use

from localspec.core.errors import REPEAT, CheckpointError
from localspec.core.plain_file import plain

MAX_DEPTH = 24  # the deepest config we know of has 6 levels
MOST_VALUES = 4_000_000  # as lists, objects and commas; in Python each takes far more than on disk. Gemma's have 1.8
MOST_DIGITS = 400  # Python has a limit of its own, whose message says how to lift it


def read_bytes(file: Path, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes."""
    try:
        size = plain(file).stat().st_size
        if size > limit:
            raise CheckpointError(f"{file} is too large ({size:,} bytes, at most {limit:,} are read).", hint=REPEAT)
        with file.open("rb") as stream:
            return stream.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror or error}).", hint=REPEAT) from error


def read_text(file: Path, limit: int) -> str:
    """The content of a file as UTF-8 text."""
    try:
        return read_bytes(file, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file} is not UTF-8 text.", hint=REPEAT) from error


def read_object(file: Path, limit: int, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """Reads a file that holds one JSON object."""
    return parse_object(read_bytes(file, limit), str(file), most_values)


def parse_object(raw: bytes, where: str, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """Parses one JSON object; `where` names it in errors."""
    if not raw.strip():
        raise CheckpointError(f"{where} is empty.", hint=REPEAT)
    if sum(map(raw.count, (b",", b"[", b"{"))) > most_values:
        raise CheckpointError(f"{where} has too many values (at most {most_values:,} are read).", hint=REPEAT)
    try:
        value = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_no_key_twice,
            parse_constant=_finite,
            parse_float=_finite,
            parse_int=_whole,
        )
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where} is not UTF-8 text.", hint=REPEAT) from error
    except RecursionError as error:
        raise CheckpointError(f"{where} is nested too deep.", hint=REPEAT) from error
    except ValueError as error:
        raise CheckpointError(f"{where} is not valid JSON ({str(error)[:200]}).", hint=REPEAT) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} is not a JSON object.", hint=REPEAT)
    return value


def walk(value: object, where: str, depth: int = 0) -> Iterator[tuple[int, str, object]]:
    """Yields every (depth, key, value) inside an object."""
    if depth > MAX_DEPTH:
        raise CheckpointError(f"{where} is nested too deep.", hint=REPEAT)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield depth, key, inner
            yield from walk(inner, where, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, where, depth + 1)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:80]!r} appears twice")
    return found


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is not finite")
    return number
