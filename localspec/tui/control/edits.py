"""A message of the chat edited in the prompt, and kept as another version when it is sent.

What is lent to the prompt, and what was there before, is `MessageEdit`'s.
"""

from __future__ import annotations

from localspec.core.sanitize import clean
from localspec.history import Attachment
from localspec.tui.chat.conversation import Utterance
from localspec.tui.control.commands import find
from localspec.tui.control.message_edit import NOTHING, MessageEdit, UnsentMessage
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.selection import Selection
from localspec.tui.control.turns import Turns
from localspec.tui.control.typed_commands import escape_slash, parse

NO_ATTACHMENTS = "An answer is text only: remove the attachments first (Backspace at the beginning)."
REWRITTEN = "Kept as another version. Your next message goes on from it; /continue lets the model write on."
EDITING = "{send} sends it as another version · {stop} cancels the edit"
EDITING_ANSWER = "{send} keeps it as another version · {stop} cancels the edit"
CANCELLED = "Edit cancelled. {edit} opens it again as you left it."
CANCELLED_EARLIER = "Edit cancelled. {msg.prev}, then {msg.edit} opens it again as you left it."


class Edits:
    """`edited` is the message that is edited; `message_edit` also lends a turn that was taken back."""

    edited: Utterance | None = None

    def __init__(self, parts: ChatParts, selection: Selection, turns: Turns) -> None:
        self.screen, self.feedback, self.prompt = parts.screen, parts.feedback, parts.state.prompt
        self.conversation, self.recorder = parts.conversation, parts.recorder
        self.selection, self.turns = selection, turns
        self._cancelled: dict[int, UnsentMessage] = {}  # what was made of messages, and not sent
        self.message_edit = MessageEdit(self.prompt)

    def edit(self, utterance: Utterance | None = None) -> None:
        """Bring a message into the prompt, this or the last question: what is sent then stands beside it."""
        edited = utterance or self.conversation.last("user")
        if edited is None:
            self.feedback.hint("There is no message to edit.")
        elif self.turns.is_free():
            self.begin(edited)

    def begin(self, utterance: Utterance) -> None:
        self.edited, self.selection.cursor = utterance, None
        title = EDITING if utterance.role == "user" else EDITING_ANSWER
        self.message_edit.lend(utterance.text, utterance.attachments, self.feedback.with_keys(title))
        self.prompt.text_only = utterance.role == "assistant"
        if (draft := self._cancelled.pop(utterance.id, None)) is not None:
            self.message_edit.change(draft)
        self.screen.refresh_bindings()

    def end(self) -> None:
        """Ends editing; the prompt's earlier text returns."""
        self.edited = None
        self.message_edit.end()
        self.screen.refresh_bindings()

    def cancel(self) -> None:
        """Ends editing, and keeps what was made of the message for its next edit."""
        edited, draft = self.edited, self.message_edit.changed
        self.end()
        if edited is not None and draft != NOTHING:
            self._cancelled[edited.id] = draft
            hint = CANCELLED if edited is self.conversation.last("user") else CANCELLED_EARLIER
            self.feedback.hint(self.feedback.with_keys(hint))

    def follow_typing(self) -> None:
        """A text in the prompt is written, so letters no longer act on a message; or nothing is left of one that was
        lent."""
        if self.prompt.text:
            self.selection.cursor = None
        elif self.edited is None:
            self.prompt.border_title = None

    # --- what is sent

    @property
    def edits_answer(self) -> bool:
        return self.edited is not None and self.edited.role == "assistant"

    async def rewrite(self, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Keeps the text as the user's version of the answer that is edited; nothing is generated."""
        answer = self.edited
        if answer is None or attachments or not self.turns.is_free():
            self.prompt.give(escape_slash(text), attachments, was_sent=True)
            if attachments:
                self.feedback.hint(NO_ATTACHMENTS)
            return
        self.end()
        if text == clean(answer.text).strip():
            self.feedback.hint("Nothing was changed.")
            return
        own = self.conversation.rewrite(answer, text)
        self.recorder.edit(own)
        await self.turns.show_other_branch()
        self.feedback.hint(REWRITTEN)

    def take_edit(self) -> bool:
        """Prepares sending: the message becomes another version of the edited one, if one is edited. False if it
        cannot be sent now."""
        if self.edited is None:
            return True
        if not self.turns.can_ask():
            return False
        self.conversation.head = self.edited.parent_id
        self.end()
        return True

    def command_behind(self, text: str) -> str:
        """The command in a text that is a turn taken back and then `/redo`, as the hint says: the turn stays."""
        command = self.message_edit.typed_behind(text) if self.edited is None else ""
        if command and self.message_edit.message is not None and (typed := parse(command)) and find(typed[0]):
            self.prompt.give(self.message_edit.message.text)
            return command
        return ""

    def sent(self) -> None:
        """A message was sent. One that was lent is no longer; one that came back into the prompt stays there."""
        if self.message_edit.message is not None and not self.prompt.text:
            self.message_edit.end()

    # --- another branch, another chat

    def give_back(self) -> None:
        """What is lent to the prompt leaves it: the branch is another now."""
        if self.edited is not None:
            self.cancel()
        self.message_edit.put_away()

    def leave(self) -> None:
        """Ends editing and selecting when another chat is opened."""
        self.give_back()
        self.selection.cursor = None
