"""Finds which Hugging Face token is in use, by the hub's own rules. Uses no network and never returns the token."""

from __future__ import annotations

from localspec.cli.doctor.records import Login, Source
from localspec.hub.environment import endpoint, is_offline
from localspec.hub.login import given_token, saved_token


def look() -> Login:
    given, saved = given_token(), saved_token()
    source: Source | None = "HF_TOKEN" if given else "file" if saved else None
    return Login(
        source,
        hides_another=bool(given and saved and given != saved),
        is_offline=is_offline(),
        endpoint=endpoint(),
    )
