"""Some lines of a file, as they are named after it: `heapq.py:10-20`, `heapq.py:10`, or in GitHub's form,
`heapq.py#L10-L20`. Knows no widgets."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import IO, Self

from localspec.core.errors import UsageError

LINES = r":\d{1,9}(?:-\d{1,9})?|#L\d{1,9}(?:-L?\d{1,9})?"
NAMED = re.compile(rf"(.+?)({LINES})")


@dataclass(frozen=True, slots=True)
class FileLines:
    """The lines `first` to `last` of a file, numbered from 1."""

    file: str
    first: int
    last: int

    @classmethod
    def named(cls, name: str) -> Self | None:
        """The lines that this names; None where it names a file alone. Knows no disk."""
        found = NAMED.fullmatch(name)
        if found is None:
            return None
        first, *last = map(int, re.findall(r"\d+", found[2]))
        return cls(found[1], first, last[0] if last else first)

    @property
    def name(self) -> str:
        """The name that the attachment has."""
        return f"{self.file}:{self.first}" + (f"-{self.last}" if self.last != self.first else "")

    def read(self, file: IO[bytes], most: int) -> bytes:
        """The lines; of more than `most` bytes only so much that this is seen. A UsageError where there are none."""
        if not 1 <= self.first <= self.last:
            hint = f"Name the first line, then the last: @{os.path.basename(self.file)}:10-20"
            raise UsageError(f"{self.name} names no lines.", hint=hint)
        number, size, kept = 1, 0, list[bytes]()
        while number <= self.last and size <= most:
            if not (part := file.readline(most + 1)):
                raise self.beyond(number - 1)
            if number >= self.first:
                kept.append(part)
                size += len(part)
            number += part.endswith(b"\n") or len(part) <= most
        return b"".join(kept)

    def beyond(self, count: int) -> UsageError:
        """The file ends before."""
        lines = "1 line" if count == 1 else f"{count:,} lines"
        hint = "Name lines that it has." if count else "Name another file."
        return UsageError(f"{self.name} is beyond the end: {self.file} has {lines}.", hint=hint)


def whole_name(path: str) -> str:
    """The attachment's path with that of the file resolved. Waits for the disk."""
    lines = None if os.path.exists(path) else FileLines.named(path)
    return os.path.realpath(path) if lines is None else replace(lines, file=os.path.realpath(lines.file)).name


def first_number(path: str | None, text: str) -> int:
    """The number of an attachment's first line."""
    lines = FileLines.named(path) if path else None
    count = text.removesuffix("\n").count("\n") + 1
    return lines.first if lines is not None and lines.last - lines.first + 1 == count else 1
