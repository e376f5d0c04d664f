"""Takes turns back into the prompt, and brings them back. Nothing leaves the tree."""

from __future__ import annotations

from localspec.tui.control.branches import Branches
from localspec.tui.control.edits import Edits
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.turns import Turns

TAKEN_BACK = "Taken back into the prompt. {redo} or /redo brings the turn back."
TITLE = "{send} sends it again · {redo} brings the turn back · {stop} clears it"


class Undo:
    """Remembers, by where the branch ended then, which turn was taken back from there."""

    def __init__(self, parts: ChatParts, turns: Turns, branches: Branches, edits: Edits) -> None:
        self.conversation, self.feedback = parts.conversation, parts.feedback
        self.turns, self.branches, self.edits = turns, branches, edits
        self._undone: dict[int | None, tuple[int, int]] = {}  # its end, and the newest message there was below

    async def take_back(self) -> None:
        """The last turn leaves the branch, its question goes into the prompt."""
        question, end = self.conversation.last("user"), self.conversation.head
        if question is None or end is None:
            self.feedback.hint("There is nothing to undo.")
        elif self.turns.is_free():
            head = self.conversation.tree.nodes[question.id].parent_id
            await self.branches.go(head)
            self._undone[head] = end, self._newest_below(head)
            self.edits.message_edit.lend(question.text, question.attachments, self.feedback.with_keys(TITLE))
            self.feedback.hint(self.feedback.with_keys(TAKEN_BACK))

    async def bring_back(self) -> None:
        """The turn that was taken back last is shown again; where none was, the next of the branch that goes on."""
        head = self.conversation.head
        end, newest = self._undone.get(head, (None, 0))
        if end not in self.conversation.tree.nodes or newest != self._newest_below(head):
            end = self.conversation.next_turn()
        if end is None:
            self.feedback.hint("There is nothing to bring back: no turn follows here.")
        elif self.turns.is_free():
            self._undone.pop(head, None)
            await self.branches.go(end)
            self.feedback.hint("The turn is back.")

    def _newest_below(self, head: int | None) -> int:
        return max(self.conversation.tree.children(head), default=0)
