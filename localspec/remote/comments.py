"""What a localspec says in comments before it writes: its position in the queue, loading, how far the prompt is read.

Knows no sockets. Comments of other servers say nothing.
"""

from __future__ import annotations

import re

from localspec.core.events import Prefill, Waiting
from localspec.remote.readiness import LOADS

COMMENT = re.compile(
    r"queued (?P<before>\d{1,6})|loading(?: (?P<share>\d{1,3}) %)?|reading (?P<done>\d{1,9}) of (?P<total>\d{1,9})"
)


def read(comment: str) -> Waiting | Prefill | None:
    """The event of a comment; None for one that says nothing."""
    found = COMMENT.fullmatch(comment)
    if found is None:
        return None
    if found["before"]:
        return Waiting(f"{int(found['before']):,} before you")
    if found["total"]:
        return Prefill(int(found["done"]), int(found["total"]), cached=0)
    share = f", {found['share']} %" if found["share"] else ""
    return Waiting(f"{LOADS}{share}")
