"""Edits of the conversation's tree: select a message, edit it, regenerate it, branch from it, delete it.

A step in the tree changes the conversation, the history and the transcript, in this order. None is taken while an
answer is being written or waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from textual.binding import Binding
from textual.events import Key

from localspec.core.sanitize import clean
from localspec.history import Attachment
from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.details import details
from localspec.tui.control.commands import find
from localspec.tui.control.copies import Copies
from localspec.tui.control.message_edit import NOTHING, MessageEdit, UnsentMessage
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.turns import Turns
from localspec.tui.control.typed_commands import escape_slash, parse
from localspec.tui.keys.key_names import keys_of, shown
from localspec.tui.panels.keys_line import Key as LineKey
from localspec.tui.panels.keys_line import letter
from localspec.tui.panels.pills import Chips

LETTERS = (  # with what each does, in so few words that all fit in 80 columns
    Binding("y", "", "copy", id="msg.copy"),
    Binding("c", "", "code", id="msg.code"),
    Binding("e", "", "edit", id="msg.edit"),
    Binding("r", "", "retry", id="msg.retry"),
    Binding("b", "", "branch", id="msg.branch"),
    Binding("left_square_bracket", "", "version", id="msg.older"),
    Binding("right_square_bracket", "", "version", id="msg.newer"),
    Binding("t", "", "tokens", id="msg.tokens"),
    Binding("i", "", "stats", id="msg.stats"),
    Binding("v", "", "files", id="msg.files"),
    Binding("d", "", "delete", id="msg.delete"),
)
OF_ANSWERS = {"code", "branch", "tokens"}
LEAVING = {"msg.edit", "msg.retry", "msg.branch"}  # after which nothing is pointed at
NOT_EMPTY = "Letters act on a message while the prompt is empty."
DELETE_SECONDS = 4.0  # to read it
AGAIN = "again?"  # in the line of keys, as wide as the word that it replaces
DELETE_AGAIN = "Press {msg.delete} again to delete this message and all messages after it."
NO_ATTACHMENTS = "An answer is text only: remove the attachments first (Backspace at the beginning)."
REWRITTEN = "Kept as another version. Your next message goes on from it; /continue lets the model write on."
RETRIED = "The previous answer is kept as another version: {msg.prev}, then {msg.older}."
NO_BRANCH = "Select an answer to branch from ({msg.prev})."
EDITING = "{send} sends it as another version · {stop} cancels the edit"
EDITING_ANSWER = "{send} keeps it as another version · {stop} cancels the edit"
CANCELLED = "Edit cancelled. {edit} opens it again as you left it."
CANCELLED_EARLIER = "Edit cancelled. {msg.prev}, then {msg.edit} opens it again as you left it."


class Branches:
    """A message may be pointed at (`cursor`), and one edited in the prompt, to which it is `lent`."""

    edited: Utterance | None = None
    _cursor: int | None = None

    def __init__(self, parts: ChatParts, turns: Turns, copies: Copies) -> None:
        self.screen, self.state, self.feedback, self.engine = parts.screen, parts.state, parts.feedback, parts.engine
        self.conversation, self.transcript, self.recorder = parts.conversation, parts.transcript, parts.recorder
        self.prompt, self.turns = parts.state.prompt, turns
        self._cancelled: dict[int, UnsentMessage] = {}  # what was made of messages, and not sent
        self.message_edit = MessageEdit(self.prompt)
        self.letters: Mapping[str, Callable[[Utterance], object]] = {  # what each does to the message pointed at
            "msg.copy": lambda utterance: copies.take(utterance.text),
            "msg.code": copies.copy_code,
            "msg.edit": self.edit,
            "msg.retry": self.retry,
            "msg.branch": self.branch,
            "msg.older": lambda utterance: self.switch(utterance, -1),
            "msg.newer": lambda utterance: self.switch(utterance, 1),
            "msg.tokens": self.show_tokens,
            "msg.stats": lambda utterance: self.feedback.hint(details(utterance)),
            "msg.files": self.view_files,
            "msg.delete": self.delete,
        }

    # --- the message that is pointed at

    @property
    def cursor(self) -> int | None:
        return self._cursor

    @cursor.setter
    def cursor(self, message_id: int | None) -> None:
        if message_id != self._cursor:
            self._cursor = message_id
            self.screen.refresh_bindings()
            self.screen.call_later(self.point)

    @property
    def at(self) -> Utterance | None:
        return self.conversation.tree.nodes.get(self.cursor or 0)

    def move(self, direction: int) -> None:
        """Moves the cursor to the message before or after; to the last one, if none was selected."""
        branch = self.conversation.branch
        index = branch.index(self.at) + direction if self.at in branch else len(branch) - 1
        if branch:
            self.cursor = branch[max(0, min(index, len(branch) - 1))].id
            if self.prompt.text:
                self.feedback.hint(NOT_EMPTY)
            elif self.screen.app.is_inline:  # which has no line of keys
                self.feedback.hint(" · ".join(f"{key.display} {key.word}" for key in self.letter_keys()))

    def letter_keys(self) -> list[LineKey]:
        """The letters that do something with the message pointed at; none while there is none."""
        if (utterance := self.at) is None or self.prompt.text:
            return []
        lacks = OF_ANSWERS if utterance.role == "user" else set[str]()
        if self.conversation.version(utterance)[1] < 2:
            lacks = lacks | {"version"}
        if not utterance.attachments:
            lacks = lacks | {"files"}
        found: dict[str, list[str]] = {}
        for one in LETTERS:
            if one.description not in lacks:
                word = AGAIN if one.id == "msg.delete" and self.asks_to_delete else one.description
                found.setdefault(word, []).append(str(one.id))
        names = {what: " ".join(shown(self.screen, id) for id in ids) for what, ids in found.items()}
        return [letter(keys_of(self.screen, ids[0])[0], names[what], what) for what, ids in found.items()]

    @property
    def asks_to_delete(self) -> bool:
        """Whether a second press deletes the message pointed at."""
        return self.feedback.status.hint == self.feedback.with_keys(DELETE_AGAIN)

    def claims(self, event: Key) -> bool:
        """A letter with the prompt empty. Any other leaves the message and is typed."""
        utterance, letter = (
            self.at,
            next((name for name in self.letters if event.key in keys_of(self.screen, name)), ""),
        )
        if utterance is None or not (letter or event.character):
            return False
        if not letter or letter in LEAVING:
            self.cursor = None
        if letter:
            self.screen.call_later(self.letters[letter], utterance)
        return bool(letter)

    async def point(self) -> None:
        await self.transcript.point(self.at)

    def leave_message(self) -> None:
        self.cursor = None
        self.feedback.status.end_hint()

    def follow_typing(self) -> None:
        """A text in the prompt is written, so letters no longer act on a message; or nothing is left of one that was
        lent."""
        if self.prompt.text:
            self.cursor = None
        elif self.edited is None:
            self.prompt.border_title = None

    # --- steps in the tree

    async def retry(self, utterance: Utterance | None = None) -> None:
        """Regenerates this answer, or the last one, and keeps the old one."""
        last = utterance or self.conversation.last()
        question = self.conversation.question(last) if last else None
        if question is None:
            self.feedback.hint("There is no answer to regenerate.")
        elif self.turns.can_ask() and self.engine.feed is not None:
            self.cursor, is_other = None, bool(self.conversation.tree.children(question.id))
            self.conversation.head = question.id
            await self.turns.generate(question, self.engine.feed)
            self.transcript.anchor()
            if is_other:
                self.feedback.hint(self.feedback.with_keys(RETRIED))

    def edit(self, utterance: Utterance | None = None) -> None:
        """Bring a message into the prompt, this or the last question: what is sent then stands beside it."""
        edited = utterance or self.conversation.last("user")
        if edited is None:
            self.feedback.hint("There is no message to edit.")
        elif self.turns.is_free():
            self.begin_edit(edited)

    def begin_edit(self, utterance: Utterance) -> None:
        self.edited, self.cursor = utterance, None
        title = EDITING if utterance.role == "user" else EDITING_ANSWER
        self.message_edit.lend(utterance.text, utterance.attachments, self.feedback.with_keys(title))
        self.prompt.text_only = utterance.role == "assistant"
        if (draft := self._cancelled.pop(utterance.id, None)) is not None:
            self.message_edit.change(draft)
        self.screen.refresh_bindings()

    def end_edit(self) -> None:
        """Ends editing; the prompt's earlier text returns."""
        self.edited = None
        self.message_edit.end()
        self.screen.refresh_bindings()

    def cancel_edit(self) -> None:
        """Ends editing, and keeps what was made of the message for its next edit."""
        edited, draft = self.edited, self.message_edit.changed
        self.end_edit()
        if edited is not None and draft != NOTHING:
            self._cancelled[edited.id] = draft
            hint = CANCELLED if edited is self.conversation.last("user") else CANCELLED_EARLIER
            self.feedback.hint(self.feedback.with_keys(hint))

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
        self.end_edit()
        if text == clean(answer.text).strip():
            self.feedback.hint("Nothing was changed.")
            return
        own = self.conversation.rewrite(answer, text)
        self.recorder.edit(own)
        self.drop_figures()
        await self.turns.show_branch()
        self.feedback.hint(REWRITTEN)

    def take_edit(self) -> bool:
        """Prepares sending: the message becomes another version of the edited one, if one is edited. False if it
        cannot be sent now."""
        if self.edited is None:
            return True
        if not self.turns.can_ask():
            return False
        self.conversation.head = self.edited.parent_id
        self.end_edit()
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

    def leave(self) -> None:
        """Ends editing and selecting when another chat is opened."""
        self.give_back()
        self.cursor = None

    def give_back(self) -> None:
        """What is lent to the prompt leaves it: the branch is another now."""
        if self.edited is not None:
            self.cancel_edit()
        self.message_edit.put_away()

    async def branch(self, utterance: Utterance | None = None) -> None:
        """Go on from this answer, or from the last one."""
        answer = utterance or self.conversation.last("assistant")
        if answer is None or answer.role != "assistant":
            self.feedback.hint(self.feedback.with_keys(NO_BRANCH))
        elif self.turns.is_free():
            await self.go(answer.id)
            self.feedback.hint("Your next message continues from here.")

    async def switch(self, utterance: Utterance, steps: int) -> None:
        """Shows another version of this message, and what followed it."""
        other = self.conversation.beside(utterance, steps)
        if other is utterance:
            self.feedback.hint("There is no version before this one." if steps < 0 else "This is the last version.")
        elif self.turns.is_free():
            await self.show_at(other)
            number, total = self.conversation.version(other)
            self.feedback.hint(f"Version {number} of {total}.")  # the title may be out of sight

    async def show_at(self, utterance: Utterance) -> None:
        """The branch through this message, as far as it was continued last, with the message in sight."""
        self.conversation.show(utterance)
        self.recorder.show(self.conversation.head)
        await self.transcript.show(self.conversation.branch, near=utterance)
        self.state.show_figures()
        self.cursor = utterance.id

    def show_tree(self) -> None:
        """All branches, to go to a message of one."""
        from localspec.tui.screens.tree import TreeScreen

        if self.conversation.tree.nodes:
            self.screen.app.push_screen(TreeScreen(self.conversation, self.cursor), self.jump)
        else:
            self.feedback.hint("This chat is empty: it has no branches yet.")

    async def jump(self, message_id: int | None) -> None:
        """Goes to this message, wherever in the tree it is."""
        utterance = self.conversation.tree.nodes.get(message_id or 0)
        if utterance is None:
            return
        if utterance in self.conversation.branch:
            self.cursor = utterance.id
        elif self.turns.is_free():
            self.give_back()
            await self.show_at(utterance)

    async def delete(self, utterance: Utterance) -> None:
        """Delete the message, when asked a second time, and all that follow it."""
        if not self.turns.is_free():
            return
        if not self.asks_to_delete:
            self.feedback.hint(self.feedback.with_keys(DELETE_AGAIN), DELETE_SECONDS)
            return
        self.feedback.status.end_hint()
        self.cursor = None
        self.conversation.remove(utterance)
        if self.edited is not None and self.edited.id not in self.conversation.tree.nodes:
            self.end_edit()
        self.recorder.remove(utterance, self.conversation.head)
        self.drop_figures()
        await self.turns.show_branch()

    async def go(self, head: int | None) -> None:
        """The branch ends here."""
        self.give_back()
        self.conversation.head, self.cursor = head, None
        self.recorder.show(head)
        self.drop_figures()
        await self.turns.show_branch()

    def drop_figures(self) -> None:
        """Clears the figures of an answer that is not shown any more."""
        if self.turns.measured not in {utterance.id for utterance in self.conversation.branch}:
            self.state.forget_figures()

    # --- what it says

    def show_tokens(self, utterance: Utterance) -> None:
        if utterance.role == "assistant":
            self.transcript.answer(utterance).toggle_view()

    def view_files(self, utterance: Utterance) -> None:
        if utterance.attachments:
            self.screen.post_message(Chips.Opened(utterance.attachments))
        else:
            self.feedback.hint("Nothing is attached to this message.")
