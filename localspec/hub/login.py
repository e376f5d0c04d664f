"""The login that the hub sees: which token is used, and where it comes from. Shows the token nowhere.

Knows nothing about what the token may read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from localspec.core.plain_file import read_small
from localspec.models import hub_cache

VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
Source = Literal["HF_TOKEN", "hf auth login", ""]


@dataclass(frozen=True, slots=True)
class Login:
    """A token and its source. `hides_saved`: the variable overrides another token, which is saved."""

    token: str = field(default="", repr=False)
    source: Source = ""
    hides_saved: bool = False


def read_login() -> Login:
    """The login by the hub library's own rules, which also refresh a saved one."""
    from huggingface_hub import get_token

    given, saved, token = given_token(), saved_token(), get_token() or ""
    source: Source = "" if not token else "HF_TOKEN" if given else "hf auth login"
    return Login(token, source, hides_saved=bool(given and saved and saved != given))


def given_token() -> str:
    """The token in the environment; "" for none."""
    return os.environ.get(given_by(), "").strip()


def given_by() -> str:
    """The variable that gives the token; "" for none."""
    return next((name for name in VARIABLES if os.environ.get(name, "").strip()), "")


def saved_token() -> str:
    """The token that `hf auth login` saved; "" for none."""
    try:
        return read_small(token_file()).decode().strip()
    except (OSError, ValueError):
        return ""


def token_file() -> Path:
    """The file of the saved token, by the hub's own rules."""
    chosen = os.environ.get("HF_TOKEN_PATH")
    return hub_cache.expanded(chosen) if chosen else hub_cache.home() / "token"
