"""A message with its attachments, as the model reads it: each attachment in a code fence of its own, then the text.

No attachment can close its own fence. Knows records only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from localspec.history.records import Attachment


def with_attachments(text: str, attachments: Sequence[Attachment]) -> str:
    return "\n\n".join([*map(fenced, attachments), *[text] * bool(text or not attachments)])


def fenced(attachment: Attachment) -> str:
    text = (attachment.text or "").strip("\n")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    name = " ".join((attachment.path or "Pasted text").split())
    return f"{name}:\n{fence}\n{text}\n{fence}"
