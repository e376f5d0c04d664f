"""How far a measurement is, as events: a bar for whoever looks on, lines for a program. Knows not what is measured."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from localspec.core.events import Loading

Tell = Callable[[Loading], object]


def nobody(_: Loading) -> None:
    """Where nobody asked."""


def loading(tell: Tell) -> Callable[[object], None]:
    """Of what is said while a model is opened, how far that is."""

    def heard(said: object) -> None:
        if isinstance(said, Loading):
            tell(said)

    return heard


def shares(tell: Tell, what: str) -> Callable[[float], None]:
    """Takes the share that is done. From a 0 on it also tells about how long the rest will take."""
    began: float | None = None

    def told(share: float) -> None:
        nonlocal began
        now = perf_counter()
        began = began if share else now
        left = (now - began) * (1 / share - 1) if share and began is not None else None
        tell(Loading(what, round(100 * share), 100, "percent", left))

    return told
