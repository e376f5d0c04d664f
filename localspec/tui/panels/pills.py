"""A message's attachments as one short piece each: their text would bury the message. Knows no files."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from localspec.core.sanitize import one_line
from localspec.history import Attachment

NAME_CHARACTERS = 40
PASTED = "pasted text"


def name(attachment: Attachment) -> str:
    found = one_line(attachment.path or PASTED)
    return found if len(found) <= NAME_CHARACTERS else f"…{found[1 - NAME_CHARACTERS :]}"


def pills(attachments: Iterable[Attachment]) -> Content:
    """One pill for each attachment, in brackets so that it is one without colours too."""
    made = [(f"[{name(one)}, {len(one.text or ''):,} characters]", "$text-secondary") for one in attachments]
    return Content(" ").join(Content.styled(*pill) for pill in made)


class Pills(Static):
    """Shows the attachments above the prompt, while there are any."""

    attachments: reactive[tuple[Attachment, ...]] = reactive((), init=False)

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.display = False

    def watch_attachments(self) -> None:
        self.display = bool(self.attachments)
        self.update(pills(self.attachments))

    def add(self, *attachments: Attachment) -> None:
        """Adds a file, once only."""
        for one in attachments:
            if one.path is None or one not in self.attachments:
                self.attachments = (*self.attachments, one)

    def take(self) -> tuple[Attachment, ...]:
        taken, self.attachments = self.attachments, ()
        return taken

    def remove_last(self) -> None:
        self.attachments = self.attachments[:-1]
