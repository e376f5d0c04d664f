"""Finds which Hugging Face token is in use, by the hub's own rules. Uses no network and never returns the token."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.cli.doctor.records import Login, Source
from localspec.core.plain_file import read_small
from localspec.models import hub_cache

VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
YES = {"1", "ON", "YES", "TRUE"}


def look() -> Login:
    given = next((token for name in VARIABLES if (token := os.environ.get(name, "").strip())), "")
    saved = in_file()
    source: Source | None = "HF_TOKEN" if given else "file" if saved else None
    offline = any(os.environ.get(name, "").upper() in YES for name in OFFLINE)
    return Login(source, hides_another=bool(given and saved and given != saved), is_offline=offline)


def in_file() -> str:
    try:
        return read_small(token_file()).decode().strip()
    except (OSError, ValueError):
        return ""


def token_file() -> Path:
    if chosen := os.environ.get("HF_TOKEN_PATH"):
        return hub_cache.expanded(chosen)
    return hub_cache.home() / "token"
