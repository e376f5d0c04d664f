"""The hub's address, and whether the network is switched off, by its own variables. Knows nothing of its library."""

from __future__ import annotations

import os

VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
YES = {"1", "ON", "YES", "TRUE"}
ENDPOINT = "https://huggingface.co"


def is_offline() -> bool:
    """Whether a variable says so, as the hub's library reads it."""
    return any(os.environ.get(name, "").upper() in YES for name in VARIABLES)


def endpoint() -> str:
    """The hub's address, without a slash at its end."""
    return (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")


def page_of(repo: str) -> str:
    """The address of a repository's page."""
    return f"{endpoint()}/{repo}"
