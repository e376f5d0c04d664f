"""The tab of downloads: a row for each in the order of the queue, and keys to pause, move and drop them."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.hub.queue import Download, DownloadQueue
from localspec.tui.panels.download_rows import detail, listed, total_line
from localspec.tui.panels.key_lists import DownloadList, KeyList

SECOND = 1.0  # between two looks at how long one has waited


class DownloadsTab(Vertical):
    """Shows the queue as it was at the last `follow`."""

    class Dropped(Message):
        """One is to be taken off the queue; what becomes of its parts is to be asked."""

        def __init__(self, item: Download) -> None:
            super().__init__()
            self.item = item

    def __init__(self, queue: DownloadQueue) -> None:
        super().__init__(id="downloads")
        self.queue = queue
        self.items: Sequence[Download] = ()
        self.waits_since: dict[str, float] = {}
        self.total, self.detail = Static(markup=False, classes="options"), Static(markup=False, classes="detail")
        self.list = DownloadList(markup=False, id="download-list")

    def compose(self) -> ComposeResult:
        yield from (self.total, self.list, self.detail)

    def on_mount(self) -> None:
        self.set_interval(SECOND, self.count)
        self.follow()

    def open(self) -> None:
        self.list.focus()

    def count(self) -> None:
        """Let a wait for the next try be seen."""
        if self.display and any(item.state == "retrying" for item in self.items):
            self.draw()

    def follow(self) -> None:
        """Take what the queue says now; the cursor stays on its row, or where that was if it is gone."""
        before, index = self.item, self.list.highlighted or 0
        then = {item.key: item for item in self.items}
        self.items = self.queue.items
        waiting = [item for item in self.items if item.state == "retrying"]
        fresh = {item.key: monotonic() for item in waiting if then.get(item.key) != item}
        self.waits_since = {item.key: self.waits_since.get(item.key, monotonic()) for item in waiting} | fresh
        keys = [item.key for item in self.items]
        if keys != list(then):
            self.list.set_options([Option("") for _ in keys])
            at = keys.index(before.key) if before is not None and before.key in keys else min(index, len(keys) - 1)
            self.list.highlighted = at if keys else None
        self.draw()

    def draw(self) -> None:
        waited = {key: monotonic() - since for key, since in self.waits_since.items()}
        for index, line in enumerate(listed(self.items, waited, self.size.width - 4)):
            self.list.replace_option_prompt_at_index(index, line)
        self.total.update(Content(total_line(self.items)))
        self.show_detail()

    def on_resize(self) -> None:
        self.draw()

    @property
    def item(self) -> Download | None:
        """The one under the cursor."""
        index = self.list.highlighted
        return self.items[index] if index is not None and index < len(self.items) else None

    def show_detail(self) -> None:
        item = self.item
        since = self.waits_since.get(item.key, monotonic()) if item else 0.0
        self.detail.update(Content(detail(item, monotonic() - since) if item else ""))

    @on(OptionList.OptionHighlighted)
    def move_to(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.show_detail()

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.pause()

    @on(KeyList.Wanted)
    def act(self, message: KeyList.Wanted) -> None:
        message.stop()
        item = self.item
        match message.what:
            case _ if item is None:
                return
            case "pause":
                self.pause()
            case "retry":
                self.queue.go_on(item.key)
            case "up":
                self.queue.move(item.key, -1)
            case "down":
                self.queue.move(item.key, 1)
            case "drop":
                self.drop(item)

    def pause(self) -> None:
        """Pause it, or let it go on."""
        if (item := self.item) is not None:
            self.queue.go_on(item.key) if item.state in ("paused", "failed") else self.queue.pause(item.key)

    def drop(self, item: Download) -> None:
        """One that is complete only leaves the list."""
        if item.state == "done" or not item.done:
            self.queue.drop(item.key)
        else:
            self.post_message(self.Dropped(item))
