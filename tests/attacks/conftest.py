"""One good model, one warm program and one folder of verdicts for all attacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.warm_program import WarmProgram
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like


@pytest.fixture(scope="session")
def good_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("good") / "model", gpt2_like(), template=CHATML, eos="<|im_end|>")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProgram]:
    if sys.platform != "linux":
        pytest.skip("memory and time of a process are measured on Linux")
    started = WarmProgram(tmp_path_factory.mktemp("printed"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which what one run has checked, the next need not."""
    folders = {f"LOCALSPEC_{kind}_DIR": str(tmp_path_factory.mktemp(kind.lower())) for kind in ("STATE", "DATA")}
    return {**os.environ, **folders}
