"""Server-sent events: the data of each and the comments between them, from lines. Knows no JSON and no sockets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

END = "[DONE]"
FIELDS = (b"data", b"error")  # an older llama-server sends its errors in a field of their own


@dataclass(frozen=True, slots=True)
class Comment:
    """A line that is not an event: most servers keep the connection open with it, localspec says what it waits for."""

    words: str


def events(lines: Iterable[bytes]) -> Iterator[str | Comment]:
    """The data of every event, several lines joined, and the comments. Other fields are skipped; an event that its
    empty line does not end never came."""
    held: list[str] = []
    for line in lines:
        if not line:
            if held:
                yield "\n".join(held)
            held = []
            continue
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", errors="replace")
        if not field:
            yield Comment(text)
        elif field in FIELDS:
            held.append(text)
