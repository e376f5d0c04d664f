"""The list of what a search of the hub found. Knows its keys; what they do is the tab's."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message
from textual.widgets import OptionList

from localspec.tui.keys.models_keys import HUB_KEYS


class HubList(OptionList):
    """The rows. A key that is pressed there is a message to the tab."""

    BINDINGS: ClassVar[list[BindingType]] = HUB_KEYS

    class Wanted(Message):
        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    def action_want(self, what: str) -> None:
        self.post_message(self.Wanted(what))
