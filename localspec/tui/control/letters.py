"""The letters that act on the message pointed at, while the prompt is empty: what each does, and which are offered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from textual.binding import Binding
from textual.events import Key

from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.details import details
from localspec.tui.control.branches import Branches
from localspec.tui.control.copies import Copies
from localspec.tui.control.edits import Edits
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.selection import Selection
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
AGAIN = "again?"  # in the line of keys, as wide as the word that it replaces


class Letters:
    """`actions` has what each letter does to the message pointed at."""

    def __init__(
        self, parts: ChatParts, selection: Selection, branches: Branches, edits: Edits, *, copies: Copies
    ) -> None:
        self.screen, self.feedback, self.prompt = parts.screen, parts.feedback, parts.state.prompt
        self.conversation, self.transcript = parts.conversation, parts.transcript
        self.selection, self.branches = selection, branches
        self.actions: Mapping[str, Callable[[Utterance], object]] = {
            "msg.copy": lambda utterance: copies.take(utterance.text),
            "msg.code": copies.copy_code,
            "msg.edit": edits.edit,
            "msg.retry": branches.retry,
            "msg.branch": branches.branch,
            "msg.older": lambda utterance: branches.switch(utterance, -1),
            "msg.newer": lambda utterance: branches.switch(utterance, 1),
            "msg.tokens": self.show_tokens,
            "msg.stats": lambda utterance: self.feedback.hint(details(utterance)),
            "msg.files": self.view_files,
            "msg.delete": branches.delete,
        }

    def move(self, direction: int) -> None:
        """Moves the cursor to the message before or after; to the last one, if none was selected."""
        branch, at = self.conversation.branch, self.selection.at
        index = branch.index(at) + direction if at in branch else len(branch) - 1
        if branch:
            self.selection.cursor = branch[max(0, min(index, len(branch) - 1))].id
            if self.prompt.text:
                self.feedback.hint(NOT_EMPTY)
            elif self.screen.app.is_inline:  # which has no line of keys
                self.feedback.hint(" · ".join(f"{key.display} {key.word}" for key in self.keys()))

    def keys(self) -> list[LineKey]:
        """The letters that do something with the message pointed at; none while there is none."""
        if (utterance := self.selection.at) is None or self.prompt.text:
            return []
        lacks = OF_ANSWERS if utterance.role == "user" else set[str]()
        if self.conversation.version(utterance)[1] < 2:
            lacks = lacks | {"version"}
        if not utterance.attachments:
            lacks = lacks | {"files"}
        found: dict[str, list[str]] = {}
        for one in LETTERS:
            if one.description not in lacks:
                word = AGAIN if one.id == "msg.delete" and self.branches.asks_to_delete else one.description
                found.setdefault(word, []).append(str(one.id))
        names = {what: " ".join(shown(self.screen, id) for id in ids) for what, ids in found.items()}
        return [letter(keys_of(self.screen, ids[0])[0], names[what], what) for what, ids in found.items()]

    def claims(self, event: Key) -> bool:
        """A letter with the prompt empty. Any other leaves the message and is typed."""
        utterance, letter = (
            self.selection.at,
            next((name for name in self.actions if event.key in keys_of(self.screen, name)), ""),
        )
        if utterance is None or not (letter or event.character):
            return False
        if not letter or letter in LEAVING:
            self.selection.cursor = None
        if letter:
            self.screen.call_later(self.actions[letter], utterance)
        return bool(letter)

    # --- what it says

    def show_tokens(self, utterance: Utterance) -> None:
        if utterance.role == "assistant":
            self.transcript.answer(utterance).toggle_view()

    def view_files(self, utterance: Utterance) -> None:
        if utterance.attachments:
            self.screen.post_message(Chips.Opened(utterance.attachments))
        else:
            self.feedback.hint("Nothing is attached to this message.")
