"""A message's attachments as one short piece each: their text would bury the message. Reads no files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.style import Style
from textual.widgets import Static

from localspec.core.sanitize import one_line
from localspec.history import Attachment
from localspec.tui.chat.file_lines import whole_name
from localspec.tui.terminal.bound_keys import runs_binding

NAME_CHARACTERS = 40
PASTED = "pasted text"
NUMBER = "attachment"  # of the pill, in the style of its letters


def name(attachment: Attachment) -> str:
    found = one_line(attachment.path or PASTED)
    return found if len(found) <= NAME_CHARACTERS else f"…{found[1 - NAME_CHARACTERS :]}"


def pills(attachments: Iterable[Attachment], chosen: int | None = None) -> Content:
    """One pill for each attachment, in brackets so that it is one without colours too."""
    made = [
        Content.styled(
            f"[{name(one)}, {len(one.text or ''):,} characters]",
            "$text-secondary reverse" if number == chosen else "$text-secondary",
        ).stylize(Style.from_meta({NUMBER: number}))
        for number, one in enumerate(attachments)
    ]
    return Content(" ").join(made)


def newest(attachments: Iterable[Attachment]) -> tuple[Attachment, ...]:
    """The last version of each file, where its first one stood, and once where it has several names; every paste."""
    kept: dict[str | int, Attachment] = {}
    for number, one in enumerate(attachments):
        kept[number if one.path is None else one.path] = one
    named = Counter(one.text for one in kept.values() if one.path is not None)
    found: dict[object, Attachment] = {}
    for key, one in kept.items():
        is_alone = one.path is None or named[one.text] == 1
        found[key if is_alone else (whole_name(one.path or ""), one.text)] = one
    return tuple(found.values())


class Chips(Static):
    """Shows attachments; a click on one opens it."""

    attachments: reactive[tuple[Attachment, ...]] = reactive((), init=False)

    class Opened(Message):
        """One of these attachments is to be read: the one with this number."""

        def __init__(self, attachments: tuple[Attachment, ...], number: int = 0) -> None:
            super().__init__()
            self.attachments, self.number = attachments, number

    def __init__(self, attachments: tuple[Attachment, ...] = (), *, classes: str | None = None) -> None:
        super().__init__(pills(attachments), markup=False, classes=classes)
        self.set_reactive(Chips.attachments, attachments)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if (number := event.style.meta.get(NUMBER)) is not None:
            self.post_message(self.Opened(self.attachments, number))


class Pills(Chips):
    """Shows the attachments above the prompt, while there are any. With the focus one of them is chosen; `leave` goes
    back to the prompt with the letter that was typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,v", "look", "Read the file", show=False, id="files.open"),
        Binding("left", "choose(-1)", "Previous file", show=False, id="files.previous"),
        Binding("right", "choose(1)", "Next file", show=False, id="files.next"),
        Binding("backspace,delete", "drop", "Remove the file", show=False, id="files.drop"),
        Binding("down", "leave", "Back to the prompt", show=False, id="files.leave"),
    ]

    def __init__(self, leave: Callable[[str], None]) -> None:
        super().__init__()
        self._leave, self._chosen = leave, 0
        self.removed: set[str] = set()  # the paths that the user took away, while the text still mentions them
        self.display = False

    def watch_attachments(self) -> None:
        self.display = self.can_focus = bool(self.attachments)
        self._chosen = max(0, min(self._chosen, len(self.attachments) - 1))
        if not self.attachments and self.has_focus:
            self._leave("")
        self._draw()

    def _draw(self) -> None:
        self.update(pills(self.attachments, self._chosen if self.has_focus else None))

    def add(self, *attachments: Attachment) -> None:
        """Adds these; of a file that is there already, only the new version stays."""
        self.attachments = newest((*self.attachments, *attachments))
        self.removed.difference_update(one.path or "" for one in attachments)

    def take(self) -> tuple[Attachment, ...]:
        taken, self.attachments = self.attachments, ()
        return taken

    def detach(self, attachment: Attachment) -> None:
        self.attachments = tuple(one for one in self.attachments if one is not attachment)

    def take_away(self, number: int = -1) -> None:
        """The user takes this one away, or the last; it stays away though the text mentions it."""
        for one in self.attachments[number:][:1]:
            self.removed.add(one.path or "")
            self.detach(one)

    # --- with the focus

    def on_focus(self) -> None:
        self._chosen = len(self.attachments) - 1
        self._draw()

    def on_blur(self) -> None:
        self._draw()

    async def on_key(self, event: events.Key) -> None:
        if await runs_binding(self, event.key):
            event.stop()
        elif event.is_printable and event.character:
            event.stop()
            self._leave(event.character)

    def action_look(self) -> None:
        self.post_message(self.Opened(self.attachments, self._chosen))

    def action_choose(self, direction: int) -> None:
        self._chosen = (self._chosen + direction) % len(self.attachments)
        self._draw()

    def action_drop(self) -> None:
        self.take_away(self._chosen)

    def action_leave(self) -> None:
        self._leave("")
