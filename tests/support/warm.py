"""Engines that start in no time: forks of one process in which torch is imported already.

All else is as users have it: a process of its own, a pipe, a kill. That they can also be spawned, test_worker.py and
test_guide.py see.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any
from unittest.mock import patch

from localspec.core.requests import LoadRequest
from localspec.runtime.model import Model
from localspec.runtime.open import Opening, open_model


def run_in(environment: dict[str, str], target: Callable[..., None], args: tuple[Any, ...]) -> None:
    """A fork begins with the environment of the first test."""
    os.environ.clear()
    os.environ.update(environment)
    target(*args)


class Fork(ForkServerProcess):
    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> None:
        super().__init__(target=run_in, args=(dict(os.environ), target, args), daemon=daemon)


class Forks(ForkServerContext):
    """In place of worker.SPAWN."""

    Process = Fork


FORKS = Forks()
FORKS.set_forkserver_preload([__name__])


def open_verified(request: LoadRequest) -> Generator[Opening, None, Model]:
    """In a child: transformers takes seconds to import; test_self_check.py is about it."""
    with patch("localspec.loading.kernels.verify_config", lambda _: None):
        return (yield from open_model(request))
