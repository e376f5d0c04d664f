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
from localspec.tui.chat.file_lines import first_number
from localspec.tui.chat.word_matches import pattern
from localspec.tui.keys.key_names import with_keys
from localspec.tui.panels.lines import Lines
from localspec.tui.panels.pills import name
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall

CLOSE = "{attached.close} closes"
WALK = "{attached.on} next {attached.back} back · "
OTHERS = "{attached.previous} {attached.next} others · "


class AttachedScreen(DismissedOnce, ModalScreen[None]):
    """One of the attachments at a time, with its number of lines and characters; or at the first of these words, where
    some are looked for."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Close", show=False, id="attached.close"),
        Binding("left", "turn(-1)", "Previous file", show=False, id="attached.previous"),
        Binding("right", "turn(1)", "Next file", show=False, id="attached.next"),
        Binding("n", "walk(1)", "Next hit of what was looked for", show=False, id="attached.on"),
        Binding("N", "walk(-1)", "Previous hit", show=False, id="attached.back"),
    ]

    def __init__(self, attachments: Sequence[Attachment], number: int = 0, words: str = "") -> None:
        super().__init__()
        self._attachments, self._number, self._sought = attachments, number, pattern(words)

    def compose(self) -> ComposeResult:
        yield Vertical(classes="dialog")
        yield TooSmall()

    async def on_mount(self) -> None:
        await self._show()

    async def _show(self) -> None:
        shown, total = self._attachments[self._number], len(self._attachments)
        text = shown.text or ""
        dialog, lines = self.query_one(".dialog"), Lines(text, self._sought, first_number(shown.path, text))
        which = f" ({self._number + 1} of {total})" if total > 1 else ""
        dialog.border_title = Content(f"{name(shown)}{which}")
        await dialog.remove_children()
        await dialog.mount(lines)
        lines.focus()
        self._tell()

    def _tell(self) -> None:
        """What there is of the text, or of the hits in it, and the keys."""
        lines, length = self.query_one(Lines), len(self._attachments[self._number].text or "")
        count, hits = len(lines.lines), len(lines.hits)
        what = f"{count:,} line{'s' if count != 1 else ''} · {length:,} characters · "
        if hits:
            what = f"hit {lines.chosen + 1:,} of {hits:,} · {WALK}"
        keys = f"{OTHERS if len(self._attachments) > 1 else ''}{CLOSE}"
        self.query_one(".dialog").border_subtitle = Content(with_keys(self, f"{what}{keys}"))

    def action_walk(self, direction: int) -> None:
        self.query_one(Lines).walk(direction)
        self._tell()

    async def action_turn(self, direction: int) -> None:
        if len(self._attachments) > 1:
            self._number = (self._number + direction) % len(self._attachments)
            await self._show()

    async def action_dismiss(self, result: None = None) -> None:
        self.dismiss(result)
