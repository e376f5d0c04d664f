"""A question as it stands in the transcript. The door where its text is cleaned."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from localspec.core.sanitize import clean
from localspec.history import Attachment
from localspec.tui.markdown.layout import Pile
from localspec.tui.panels.pills import pills
from localspec.tui.transcript.speaker import Speaker


class Question(Pile, Vertical):
    """What the user said, exactly."""

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
            yield Static(pills(self.attachments), markup=False, classes="pills")
        if self.text:
            yield Static(clean(self.text), markup=False, classes="body")

    def wait(self) -> None:
        """It cannot be asked yet."""
        self.speaker.rename("You · queued")
        self.add_class("-queued")

    def asked(self) -> None:
        """It is no longer waiting."""
        self.speaker.rename("You")
        self.remove_class("-queued")
