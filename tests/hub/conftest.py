"""Files that talk to the fake hub from the test's own process ask for `online`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hub_clients import library_online


@pytest.fixture
def online() -> Iterator[None]:
    with library_online():
        yield
