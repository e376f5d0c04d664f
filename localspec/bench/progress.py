"""Progress of a measurement as Loading events: a bar on a terminal, lines for a program. Knows nothing of what runs."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from localspec.core.events import Loading, Notice

Tell = Callable[[Loading], object]
Warn = Callable[[Notice], object]


def silent(_: Loading | Notice) -> None:
    """Shows nothing."""


def loading(tell: Tell) -> Callable[[object], None]:
    """Passes on the Loading events of a model that is being opened, and no others."""

    def heard(event: object) -> None:
        if isinstance(event, Loading):
            tell(event)

    return heard


def shares(tell: Tell, what: str) -> Callable[[float], None]:
    """Turns shares that are done into events; from a 0 on they have an ETA."""
    began: float | None = None

    def report(share: float) -> None:
        nonlocal began
        now = perf_counter()
        began = began if share else now
        left = (now - began) * (1 / share - 1) if share and began is not None else None
        tell(Loading(what, round(100 * share), 100, "percent", left))

    return report
