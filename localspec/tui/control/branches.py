"""Steps in the conversation's tree: regenerate an answer, branch from it, show another version, delete a message.

A step in the tree changes the conversation, the history and the transcript, in this order. None is taken while an
answer is being written or waited for.
"""

from __future__ import annotations

from localspec.tui.chat.conversation import Utterance
from localspec.tui.control.edits import Edits
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.selection import Selection
from localspec.tui.control.turns import Turns

DELETE_SECONDS = 4.0  # to read it
DELETE_AGAIN = "Press {msg.delete} again to delete this message and all messages after it."
RETRIED = "The previous answer is kept as another version: {msg.prev}, then {msg.older}."
NO_BRANCH = "Select an answer to branch from ({msg.prev})."


class Branches:
    """What is edited leaves the prompt where the branch becomes another."""

    def __init__(self, parts: ChatParts, selection: Selection, edits: Edits, turns: Turns) -> None:
        self.screen, self.state, self.feedback, self.engine = parts.screen, parts.state, parts.feedback, parts.engine
        self.conversation, self.transcript, self.recorder = parts.conversation, parts.transcript, parts.recorder
        self.selection, self.edits, self.turns = selection, edits, turns

    async def retry(self, utterance: Utterance | None = None) -> None:
        """Regenerates this answer, or the last one, and keeps the old one."""
        last = utterance or self.conversation.last()
        question = self.conversation.question(last) if last else None
        if question is None:
            self.feedback.hint("There is no answer to regenerate.")
        elif self.turns.can_ask() and self.engine.feed is not None:
            self.selection.cursor, is_other = None, bool(self.conversation.tree.children(question.id))
            self.conversation.head = question.id
            await self.turns.generate(question, self.engine.feed)
            self.transcript.anchor()
            if is_other:
                self.feedback.hint(self.feedback.with_keys(RETRIED))

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
        self.selection.cursor = utterance.id

    def show_tree(self) -> None:
        """All branches, to go to a message of one."""
        from localspec.tui.screens.tree import TreeScreen

        if self.conversation.tree.nodes:
            self.screen.app.push_screen(TreeScreen(self.conversation, self.selection.cursor), self.jump)
        else:
            self.feedback.hint("This chat is empty: it has no branches yet.")

    async def jump(self, message_id: int | None) -> None:
        """Goes to this message, wherever in the tree it is."""
        utterance = self.conversation.tree.nodes.get(message_id or 0)
        if utterance is None:
            return
        if utterance in self.conversation.branch:
            self.selection.cursor = utterance.id
        elif self.turns.is_free():
            self.edits.give_back()
            await self.show_at(utterance)

    async def go(self, head: int | None) -> None:
        """The branch ends here."""
        self.edits.give_back()
        self.conversation.head, self.selection.cursor = head, None
        self.recorder.show(head)
        await self.turns.show_other_branch()

    # --- a message deleted

    @property
    def asks_to_delete(self) -> bool:
        """Whether a second press deletes the message pointed at."""
        return self.feedback.status.hint == self.feedback.with_keys(DELETE_AGAIN)

    async def delete(self, utterance: Utterance) -> None:
        """Delete the message, when asked a second time, and all that follow it."""
        if not self.turns.is_free():
            return
        if not self.asks_to_delete:
            self.feedback.hint(self.feedback.with_keys(DELETE_AGAIN), DELETE_SECONDS)
            return
        self.selection.leave()
        self.conversation.remove(utterance)
        edited = self.edits.edited
        if edited is not None and edited.id not in self.conversation.tree.nodes:
            self.edits.end()
        self.recorder.remove(utterance, self.conversation.head)
        await self.turns.show_other_branch()
