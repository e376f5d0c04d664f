"""A message with what was attached to it, as the model reads it: each text in a fence of its own, then the words.

No text can end its own fence. Knows records only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from localspec.history.records import Attachment


def told(words: str, attachments: Sequence[Attachment]) -> str:
    return "\n\n".join([*map(fenced, attachments), *[words] * bool(words or not attachments)])


def fenced(attachment: Attachment) -> str:
    text = (attachment.text or "").strip("\n")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    name = " ".join((attachment.path or "Pasted text").split())
    return f"{name}:\n{fence}\n{text}\n{fence}"
