"""What is known of a message, in a line."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.details import details


@pytest.fixture
def in_lima(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Five hours behind UTC, all the year."""
    monkeypatch.setenv("TZ", "PET5")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_lima")
def test_the_time_is_that_of_the_users_clock_as_above_the_message():
    said = Utterance(1, None, "user", "hi", at="2026-01-02T03:04:05.000000Z")
    assert details(said) == "You · 2 characters · 2026-01-01 22:04"
