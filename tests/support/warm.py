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
from localspec.runtime.open import open_model
from localspec.runtime.open_target import Opening
from localspec.runtime.slots import Slots
from tests.support import warm_sandbox


def run_in(environment: dict[str, str], sandboxes: str, target: Callable[..., None], args: tuple[Any, ...]) -> None:
    """A fork begins with the environment of the first test."""
    os.environ.clear()
    os.environ.update(environment)
    warm_sandbox.SERVER.join(sandboxes)
    with patch("localspec.models.sandbox.subprocess", warm_sandbox):
        target(*args)


class Fork(ForkServerProcess):
    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> None:
        given = dict(os.environ), warm_sandbox.SERVER.address, target, args
        super().__init__(target=run_in, args=given, daemon=daemon)


class Forks(ForkServerContext):
    """In place of worker.SPAWN."""

    Process = Fork


FORKS = Forks()
FORKS.set_forkserver_preload([__name__])


def open_verified(request: LoadRequest) -> Generator[Opening, None, Slots]:
    """In a child: transformers takes seconds to import, the engine's check a fifth of one; test_self_check.py is about
    both."""
    engine = patch("localspec.loading.self_check.cpu.verify_packed", lambda *_: None)
    with engine, patch("localspec.loading.kernels.verify_config", lambda _: None):
        return (yield from open_model(request))
