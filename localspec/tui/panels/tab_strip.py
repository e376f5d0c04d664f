"""The names of a screen's tabs with how much is in each, the open one marked; beside them what is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rich.cells import cell_len
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from localspec.tui.keys.key_names import with_keys

Tab = Literal["disk", "hub", "downloads"]
TABS: tuple[Tab, ...] = get_args(Tab)
NAMES: dict[Tab, str] = {"disk": "On disk", "hub": "Hub", "downloads": "Downloads"}


@dataclass(frozen=True, slots=True)
class TabCounts:
    """How many are on disk, and how many downloads are not complete."""

    disk: int = 0
    downloads: int = 0


class TabStrip(Widget):
    """A click opens a tab, as its key does."""

    tab: reactive[Tab] = reactive[Tab]("disk")
    counts: reactive[TabCounts] = reactive(TabCounts())
    free: reactive[str] = reactive("")
    """Parts with a dot between them; where that is too wide, the last alone."""

    class Chosen(Message):
        def __init__(self, tab: Tab) -> None:
            super().__init__()
            self.tab = tab

    def label(self, tab: Tab) -> str:
        number = {"disk": self.counts.disk, "downloads": self.counts.downloads}.get(tab, 0)
        return with_keys(self, f" {{models.{tab}}} {NAMES[tab]}{f' {number}' if number else ''} ")

    def render(self) -> Content:
        strip = Content("│").join(
            Content.styled(self.label(tab), "bold reverse" if tab == self.tab else "") for tab in TABS
        )
        left = self.content_size.width - strip.cell_length
        free = next((words for words in (self.free, self.free.rpartition(" · ")[2]) if cell_len(words) < left), "")
        return Content.assemble(strip, " " * (left - cell_len(free)), (free, "$foreground-muted"))

    def on_click(self, event: object) -> None:
        x, at = getattr(event, "x", 0), 0
        for tab in TABS:
            at += cell_len(self.label(tab)) + 1
            if x < at:
                self.post_message(self.Chosen(tab))
                return
