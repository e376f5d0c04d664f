"""The lists in the tabs of the models screen: a key pressed there is a message, and what it does is the tab's.

Knows no rows.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message
from textual.widgets import OptionList

from localspec.tui.keys.models_keys import DISK_KEYS, DOWNLOAD_KEYS, HUB_KEYS


class KeyList(OptionList):
    """The keys of a list have the action `want`."""

    class Wanted(Message):
        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    def action_want(self, what: str) -> None:
        self.post_message(self.Wanted(what))


class ModelList(KeyList):
    BINDINGS: ClassVar[list[BindingType]] = DISK_KEYS


class HubList(KeyList):
    BINDINGS: ClassVar[list[BindingType]] = HUB_KEYS


class DownloadList(KeyList):
    BINDINGS: ClassVar[list[BindingType]] = DOWNLOAD_KEYS
