"""Finds which Hugging Face token is in use, by the hub's own rules. Uses no network and never returns the token."""

from __future__ import annotations

import os

from localspec.cli.doctor.records import Login, Source
from localspec.hub.client import ENDPOINT
from localspec.hub.login import given_token, saved_token
from localspec.hub.offline import is_offline


def look() -> Login:
    given, saved = given_token(), saved_token()
    source: Source | None = "HF_TOKEN" if given else "file" if saved else None
    return Login(
        source,
        hides_another=bool(given and saved and given != saved),
        is_offline=is_offline(),
        endpoint=os.environ.get("HF_ENDPOINT") or ENDPOINT,
    )
