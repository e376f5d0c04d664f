"""Server-sent events: the data of each, from lines. Knows no JSON and no sockets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

END = "[DONE]"
FIELDS = (b"data", b"error")  # an older llama-server sends its errors in a field of their own


def data(lines: Iterable[bytes]) -> Iterator[str]:
    """The data of every event, several lines joined. Comments, which keep a line open, and other fields are skipped; an
    event that its empty line does not end never came."""
    held: list[str] = []
    for line in lines:
        if not line:
            if held:
                yield "\n".join(held)
            held = []
            continue
        field, _, value = line.partition(b":")
        if field in FIELDS:
            held.append(value.removeprefix(b" ").decode("utf-8", errors="replace"))
