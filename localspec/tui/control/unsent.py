"""What is in the prompt and was not sent: kept while it is written, and back in the chat that it was written in.

Knows the prompt and the recorder, and no database.
"""

from __future__ import annotations

from textual.message import Message

from localspec.core.sanitize import clean
from localspec.history import Unsent
from localspec.tui.chat.attachments import mentioned
from localspec.tui.control.edits import Edits
from localspec.tui.control.message_edit import UnsentMessage
from localspec.tui.control.parts import ChatParts

MOST_LOOKS = 5  # after which it is kept though typing never rests
BACK = "A message that was not sent is in the prompt again."  # in a new chat, one that was to begin another
EDIT_BACK = "Your edit of this message was not sent: it is in the prompt again."
NO_EDIT = "Your edit of an earlier message was not sent: it is in the prompt again, as a new message."


class Returned(Message):
    """The history has this, which was not sent in the chat of this visit."""

    def __init__(self, visit: int, found: tuple[Unsent, ...]) -> None:
        super().__init__()
        self.visit, self.found = visit, found


class UnsentText:
    """`look` is called every few seconds: a key costs nothing. The text before an edit is a message of its own."""

    def __init__(self, parts: ChatParts, edits: Edits) -> None:
        self.screen, self.state, self.feedback = parts.screen, parts.state, parts.feedback
        self.conversation, self.recorder, self.server = parts.conversation, parts.recorder, parts.tuning.server
        self.edits, self.message_edit = edits, edits.message_edit
        self._seen: tuple[Unsent, ...] = ()
        self._looks = 0  # since it has changed
        self._visit, self._silent = 0, False  # the number of the chat that is shown; whether it is the one before

    @property
    def written(self) -> tuple[Unsent, ...]:
        """A message for each text there is: what was written, and what was made of the message that is edited."""
        found: list[tuple[UnsentMessage, int | None]] = [(self.message_edit.own, None)]
        if (edited := self.edits.edited) is not None:
            found = [(self.message_edit.before, None), (self.message_edit.changed, edited.id)]
        return tuple(
            Unsent(draft.text, draft.attachments, self.server, edits)
            for draft, edits in found
            if draft.text.strip() or draft.attachments
        )

    def look(self) -> None:
        """Keeps what is written, once it is the same as at the last look."""
        if not self.recorder.keeps:
            return
        written = self.written
        self._looks = self._looks + 1 if written != self.recorder.unsent else 0
        if self._looks and (written == self._seen or self._looks > MOST_LOOKS):
            self.recorder.keep_unsent(*written)
        self._seen = written

    def leave(self, *, takes_along: bool = False) -> None:
        """The chat is left: what was written stays with it, or goes along to a new one, but for an edit. Where nothing
        can be kept, it goes along in any case."""
        written, can_keep = self.written, self.recorder.can_keep
        stays = [one for one in written if one.edits is not None or not takes_along]
        self.recorder.leave_unsent(*(stays if can_keep else ()))
        self.edits.leave()
        if can_keep and not takes_along:
            self.state.prompt.take()
            self.state.prompt.pills.take()

    def close(self) -> None:
        """The program ends."""
        self.recorder.leave_unsent(*self.written)

    # --- in the chat that is shown now

    def seek(self, *, silent: bool = False) -> None:
        """Asks for what was not sent in it, to be put back; `silent`: it was in the prompt a moment ago."""
        self._visit, self._silent = self._visit + 1, silent
        visit = self._visit
        self.recorder.seek_unsent(self.server, lambda found: self.screen.post_message(Returned(visit, found)))

    def put_back(self, returned: Returned) -> None:
        """Puts it into the prompt; an edit goes on. Until then the history has it as it was."""
        if returned.visit != self._visit or not returned.found:
            return
        hint = BACK
        for one in sorted(returned.found, key=lambda one: one.edits is not None):
            if one.edits is not None:
                hint = EDIT_BACK if self._edits(one) else NO_EDIT
            else:
                self.state.prompt.give(clean(one.content), one.attachments)
                self.state.prompt.attach(*mentioned(clean(one.content)))  # the bar shows what will be sent
        self.recorder.keep_unsent(*self.written, took=tuple(one.id for one in returned.found))
        if not self._silent and self.state.phase != "gone":  # that nothing answers is the news then
            self.feedback.hint(hint, stays=True)  # the model may be loaded in the next moment

    def _edits(self, unsent: Unsent) -> bool:
        """Whether the edit goes on; else its text is one of its own."""
        text, edited = clean(unsent.content), self.conversation.tree.nodes.get(unsent.edits or 0)
        if edited is None or self.edits.edited is not None or self.state.busy:
            self.state.prompt.give(text, unsent.attachments)
            return False
        self.edits.begin(edited)
        self.message_edit.change(UnsentMessage(text, unsent.attachments))
        return True
