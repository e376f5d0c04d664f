"""A question as it stands in the transcript. The door where its text is cleaned."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from localspec.core.sanitize import clean
from localspec.history import Attachment
from localspec.tui.markdown.layout import Pile
from localspec.tui.panels.pills import Chips
from localspec.tui.transcript.speaker import Speaker


class Question(Pile, Vertical):
    """A message of the user, exactly as typed."""

    def __init__(
        self,
        text: str,
        *,
        attachments: tuple[Attachment, ...] = (),
        version: tuple[int, int] = (1, 1),
        at: str = "",
    ) -> None:
        super().__init__()
        self.text, self.attachments = text, attachments
        self.speaker = Speaker("You", version, at)

    def compose(self) -> ComposeResult:
        yield self.speaker
        if self.attachments:
            yield Chips(self.attachments, classes="pills")
        if self.text:
            yield Static(clean(self.text), markup=False, classes="body")

    def wait(self) -> None:
        """Marks the message as queued."""
        self.speaker.rename("You · queued")
        self.add_class("-queued")

    def asked(self) -> None:
        """Removes the mark of a queued message."""
        self.speaker.rename("You")
        self.remove_class("-queued")
