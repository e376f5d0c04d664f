"""The addresses of repositories' pages on the hub. Asks nothing of it."""

from __future__ import annotations

import os

HUB = "https://huggingface.co"


def page_of(repo: str) -> str:
    return f"{os.environ.get('HF_ENDPOINT', HUB).rstrip('/')}/{repo}"
