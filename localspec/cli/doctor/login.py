"""Finds which Hugging Face token is in use, by the hub's own rules. Uses no network and never returns the token."""

from __future__ import annotations

from localspec.cli.doctor.records import LoginStatus, Source
from localspec.hub.environment import endpoint, is_offline
from localspec.hub.login import given_token, saved_token


def look() -> LoginStatus:
    given, saved = given_token(), saved_token()
    source: Source | None = "HF_TOKEN" if given else "file" if saved else None
    return LoginStatus(
        source,
        hides_another=bool(given and saved and given != saved),
        is_offline=is_offline(),
        endpoint=endpoint(),
    )
