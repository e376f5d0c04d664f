"""Shows what is attached to a message, or was: the text of a file or of a long paste. Knows attachments, no files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from localspec.history import Attachment
from localspec.tui.keys.key_names import with_keys
from localspec.tui.panels.lines import Lines
from localspec.tui.panels.pills import name
from localspec.tui.screens.size_notice import TooSmall

CLOSE = "{attached.close} closes"
OTHERS = "{attached.previous} {attached.next} others · "


class AttachedScreen(ModalScreen[None]):
    """One of the attachments at a time, with its number of lines and characters."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", show=False, id="attached.close"),
        Binding("left", "turn(-1)", "Previous file", show=False, id="attached.previous"),
        Binding("right", "turn(1)", "Next file", show=False, id="attached.next"),
    ]

    def __init__(self, attachments: Sequence[Attachment], number: int = 0) -> None:
        super().__init__()
        self._attachments, self._number = attachments, number

    def compose(self) -> ComposeResult:
        yield Vertical(classes="dialog")
        yield TooSmall()

    async def on_mount(self) -> None:
        await self._show()

    async def _show(self) -> None:
        shown, total = self._attachments[self._number], len(self._attachments)
        text = shown.text or ""
        dialog, lines = self.query_one(".dialog"), Lines(text)
        which = f" ({self._number + 1} of {total})" if total > 1 else ""
        keys = with_keys(self, f"{OTHERS if total > 1 else ''}{CLOSE}")
        dialog.border_title = Content(f"{name(shown)}{which}")
        count = len(lines.lines)
        dialog.border_subtitle = Content(
            f"{count:,} line{'s' if count != 1 else ''} · {len(text):,} characters · {keys}"
        )
        await dialog.remove_children()
        await dialog.mount(lines)
        lines.focus()

    async def action_turn(self, direction: int) -> None:
        if len(self._attachments) > 1:
            self._number = (self._number + direction) % len(self._attachments)
            await self._show()

    async def action_dismiss(self, result: None = None) -> None:
        self.dismiss(result)
