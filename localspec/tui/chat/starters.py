"""A first message to try, by what a model is for. Knows its name and whether it chats."""

from __future__ import annotations

import re

from localspec.core import paths

BUILT_IN = "guide"
OF_GUIDE = "How does speculative decoding work?"
OF_CODE = "Write a Python function that checks whether a number is prime."
OF_TEXT = "Once upon a time, there was a"  # a base model continues it
OF_CHAT = "Explain in three sentences why the sky is blue."
CODE = re.compile(r"code", re.IGNORECASE)


def starter(name: str, *, chats: bool = True) -> str:
    """A first message for the model that is called so."""
    if name == BUILT_IN:
        return OF_GUIDE
    if not chats:
        return OF_TEXT
    return OF_CODE if CODE.search(paths.expanded(name).name) else OF_CHAT
