"""The pieces, and how each is taken out of the chat: Textual's own way is what is left. Knows no figures."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any  # Any: classes and modules of all kinds

from textual.content import Content

from localspec.tui.markdown import layout, leaves, parser
from localspec.tui.markdown.layout import Aside, GrowingScroll, GrowingText, Pile, Tall
from localspec.tui.markdown.painter import Painter
from localspec.tui.markdown.passage import GROWING
from localspec.tui.terminal.collector import Collector, collect_at_rest


@dataclass(frozen=True)
class Without:
    """The owner's names are gone, so that its base's are there again."""

    owner: type
    names: tuple[str, ...]

    def __call__(self) -> None:
        for name in self.names:
            delattr(self.owner, name)


@dataclass(frozen=True)
class Instead:
    """Puts another value in place of a name."""

    owner: Any
    name: str
    value: object

    def __call__(self) -> None:
        setattr(self.owner, self.name, self.value)


def update(shown: GrowingText, old: Content, new: Content) -> None:
    if not old.is_same(new):
        shown.update(new)


def forget(*kinds: str) -> None:
    for kind in kinds:
        del GROWING[kind]


def collect_as_python_does(thresholds: tuple[int, int, int]) -> None:
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    Instead(Collector, "request", lambda _: None)()


PIECES: dict[str, tuple[Callable[[], None], ...]] = {
    "painter": (Without(Painter, ("render_partial_update", "_render_chops")),),
    "aside": (Without(Aside, ("arrange", "_size_updated")),),
    "scroll": (Without(GrowingScroll, ("_size_updated",)),),
    "tall": (Without(Tall, ("_size_updated",)),),
    "pile": (Without(Pile, ("arrange",)),),
    "growing-text": (
        Instead(GrowingText, "grow", update),
        Instead(GrowingText, "reserve", lambda _: None),
        Instead(GrowingText, "settle", lambda _: None),
    ),
    "paragraph": (partial(forget, "paragraph_open"),),
    "fence": (partial(forget, "fence", "code_block"),),
    "lists": (partial(forget, "bullet_list_open", "ordered_list_open"),),
    "joined": (Instead(parser, "join_paragraphs", lambda _: None),),
    "collector": (partial(collect_as_python_does, gc.get_threshold()),),
}
PARTS: dict[str, tuple[Callable[[], None], ...]] = {  # of a piece
    "lines-ahead": (Instead(layout, "LINES_AHEAD", 0),),
    "leaves": (Instead(leaves, "LEAF_LINES", 1_000_000),),
    "code-rule": (),  # of the pace: the program under measurement has its own
    "figures-rule": (),
}


def take_out(name: str) -> None:
    """`none` takes out nothing, `all` every piece. After collect_at_rest, which `collector` undoes."""
    collect_at_rest()
    for one in {"none": (), "all": tuple(PIECES)}.get(name, (name,)):
        for cut in (PIECES | PARTS)[one]:
            cut()
