"""The server that the files of this folder share: one answer at a time. A test leaves it idle, and its engine alive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.served import Server, started


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    state = tmp_path_factory.getbasetemp() / "one-state"  # of all tests that have one_state_folder
    with started(state, tmp_path_factory.mktemp("served"), "--parallel", "1") as server:
        server.wait_until_ready()
        yield server
