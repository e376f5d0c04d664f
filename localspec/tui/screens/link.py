"""Asks before a link in an answer is opened: a model wrote it, and its text need not say where it leads.

Knows an address; opening it is a browser's.
"""

from __future__ import annotations

import re
import webbrowser
from typing import ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localspec.core.sanitize import one_line
from localspec.tui.keys.key_names import shown
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall

LinkAction = Literal["open", "copy"]
WEB = re.compile(r"https?://(?:[^/?#\s\\]*@)?(\[[^\]/?#\s\\]*\]|[^/?#:@\s\\]+)[^\s\\]*", re.IGNORECASE)
NOT_WEB = "This link is not opened: only http and https are."
NO_BROWSER = "No browser can be opened here; the address is copied."


def host(address: str) -> str:
    """The host that an address leads to; "" if it is not a web address."""
    found = WEB.fullmatch(address)
    return found[1] if found else ""


def browse(address: str) -> bool:
    """Whether a browser has taken it; one that would draw on this terminal is none. Waits for a program."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    draws_here = isinstance(browser, webbrowser.GenericBrowser) and not isinstance(
        browser, webbrowser.BackgroundBrowser
    )
    return not draws_here and browser.open(address)


class LinkScreen(DismissedOnce, ModalScreen[LinkAction | None]):
    """Asks whether to open or copy a link; None: neither."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Leave", show=False, id="link.leave"),
        Binding("o", "choose('open')", "Open", show=False, id="link.open"),
        Binding("c", "choose('copy')", "Copy", show=False, id="link.copy"),
    ]

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def compose(self) -> ComposeResult:
        with Vertical():
            leads = Content.assemble("This link leads to ", (one_line(host(self._address)), "bold"))
            yield Static(leads, markup=False)
            with VerticalScroll(can_focus=False):
                yield Static(one_line(self._address), markup=False)
            yield OptionList(
                self.option("link.open", "Open it in the browser", "open"),
                self.option("link.copy", "Copy it", "copy"),
                self.option("link.leave", "Leave it", None),
                markup=False,
            )
        yield TooSmall()

    def option(self, name: str, words: str, action: LinkAction | None) -> Option:
        return Option(Content.assemble((f"{shown(self, name):<4}", "bold"), words), id=action)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_choose(event.option_id)

    def action_choose(self, action: str | None) -> None:
        self.dismiss(action)

    async def action_dismiss(self, result: LinkAction | None = None) -> None:
        self.dismiss(result)

    def on_click(self, event: events.Click) -> None:
        event.stop()
