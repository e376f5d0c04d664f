"""What is searched for on the hub: words, order, filters. Knows no widget and no hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from localspec.hub.records import SearchRequest
from localspec.tui.panels.hub_rows import Listing

Sort = Literal["trending", "downloads", "likes", "created", "fit"]
SORTS: tuple[Sort, ...] = get_args(Sort)
OPTIONS = (
    "{{hub.sort}} sort: {sort}   {{hub.fits}} {fits} fits   {{hub.gated}} {gated} gated   {{hub.gguf}} {gguf} GGUF"
)


@dataclass(frozen=True, slots=True)
class HubSearch:
    """`gated` False: those behind a gate are left out."""

    words: str = ""
    sort: Sort = "trending"
    fits: bool = False
    gated: bool = True
    gguf: bool = False

    def request(self, cursor: str = "") -> SearchRequest:
        """What the hub is asked; the order by fit is ours."""
        sort = "trending" if self.sort == "fit" else self.sort
        return SearchRequest(self.words, gguf=self.gguf, gated=None if self.gated else False, sort=sort, cursor=cursor)

    def changed(self, what: str) -> HubSearch:
        """The search with the next order, or with one of its filters the other way."""
        match what:
            case "sort":
                return replace(self, sort=SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)])
            case "fits":
                return replace(self, fits=not self.fits)
            case "gated":
                return replace(self, gated=not self.gated)
            case _:
                return replace(self, gguf=not self.gguf)

    def arranged(self, listings: Sequence[Listing]) -> list[Listing]:
        """The rows that are shown, in order."""
        shown = [one for one in listings if one.fits or not self.fits]
        return sorted(shown, key=lambda one: one.rank) if self.sort == "fit" else shown

    @property
    def options(self) -> str:
        """The order and the filters with their keys, as ids in braces."""
        boxes = {name: "[x]" if getattr(self, name) else "[ ]" for name in ("fits", "gated", "gguf")}
        return OPTIONS.format(sort=self.sort, **boxes)
