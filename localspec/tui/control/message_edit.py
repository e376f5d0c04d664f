"""A message lent to the prompt, to be sent in another version: what was in the prompt is kept for afterwards.

Knows the prompt, and no chats.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from textual.content import Content

from localspec.core.sanitize import clean
from localspec.history import Attachment
from localspec.tui.chat.attachments import left_out
from localspec.tui.control.typed_commands import escape_slash
from localspec.tui.panels.pills import newest
from localspec.tui.panels.prompt import Prompt


@dataclass(frozen=True, slots=True)
class UnsentMessage:
    """A text in the prompt, with what is attached to it."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    left_out: frozenset[str] = field(default=frozenset(), compare=False)  # files that it mentions and does not have

    def joined(self, later: UnsentMessage) -> UnsentMessage:
        text = "\n\n".join(filter(None, (self.text, later.text)))
        attachments = newest(dict.fromkeys((*self.attachments, *later.attachments)))
        return UnsentMessage(text, attachments, self.left_out | later.left_out)


NOTHING = UnsentMessage()


class MessageEdit:
    """`message` is what was lent, while it is; what the user wrote before it or in its place is never lost."""

    message: UnsentMessage | None = None

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._kept = NOTHING

    @property
    def _there(self) -> UnsentMessage:
        pills = self._prompt.pills
        return UnsentMessage(self._prompt.text, pills.attachments, frozenset(pills.removed))

    @property
    def before(self) -> UnsentMessage:
        """What the user had written before a message was lent."""
        return self._kept

    @property
    def changed(self) -> UnsentMessage:
        """What the user has written in the place of what was lent."""
        there = self._there
        if self.message is not None and (self.is_untouched or not there.text.strip()):
            return NOTHING  # the files alone were lent
        return there

    @property
    def own(self) -> UnsentMessage:
        """All that the user has written."""
        return self.before.joined(self.changed)

    @property
    def is_untouched(self) -> bool:
        """Whether the message is in the prompt as it was lent."""
        return self.message is not None and self._there == self.message

    def lend(self, text: str, attachments: tuple[Attachment, ...], title: str) -> None:
        """Puts a message into the prompt, in place of one that was lent before; `title` says what may be done."""
        if not self.is_untouched:
            self._kept = self._kept.joined(self._there)
        shown = escape_slash(clean(text))  # it may be from a history of another program's
        self._put(UnsentMessage(shown, attachments, frozenset(left_out(shown, attachments))))
        self.message = self._there
        self._prompt.border_title = Content(title)

    def change(self, draft: UnsentMessage) -> None:
        """What the user had made of the message is there again; undo brings the message as it was lent."""
        self._put(replace(draft, left_out=self._there.left_out), can_be_undone=True)

    def end(self) -> None:
        """The message leaves the prompt, changed or not; what was there before comes back."""
        kept = self._kept
        self.release()
        self._put(kept)

    def put_away(self) -> None:
        """Ends the loan; what the user has made of the message stays, after what was there before."""
        if self.message is None:
            return
        kept = self.own
        self.release()
        self._put(kept)

    def typed_behind(self, text: str) -> str:
        """What was typed right after the message; "" where that is not a command. One cannot be typed before it."""
        behind = text.removeprefix(self.message.text.strip()).strip() if self.message is not None else ""
        return behind if behind != text.strip() and behind.startswith("/") else ""

    def release(self) -> None:
        """Forgets the loan; the prompt is as it is."""
        self.message, self._kept = None, NOTHING
        self._prompt.border_title, self._prompt.text_only = None, False

    def _put(self, draft: UnsentMessage, *, can_be_undone: bool = False) -> None:
        self._prompt.pills.attachments = draft.attachments
        self._prompt.lay(draft.text, can_be_undone=can_be_undone)
        self._prompt.leave_out(draft.left_out)
