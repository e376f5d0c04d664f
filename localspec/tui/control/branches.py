"""What the user does to what has been said: point at it, say it again, otherwise, elsewhere, not at all; copy it.

A step in the tree changes the conversation, the history and the transcript, in this order. None is taken while an
answer is being written or waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial

from textual import on
from textual.binding import Binding
from textual.content import Content
from textual.events import Key
from textual.reactive import reactive
from textual.widgets import TextArea

from localspec.core.errors import UsageError
from localspec.core.sanitize import clean, one_line
from localspec.history import Attachment, OpenChat
from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.details import details
from localspec.tui.control.commands import typed
from localspec.tui.control.replacing import ReplaceScreen
from localspec.tui.keys.key_names import keys_of, rows, with_keys
from localspec.tui.panels.prompt import Prompt
from localspec.tui.terminal import clipboard

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
    Binding("d", "", "delete", id="msg.delete"),
)
LEAVING = {"msg.edit", "msg.retry", "msg.branch"}  # after which nothing is pointed at
NOT_EMPTY = "Letters act on a message while the prompt is empty."
DELETE_SECONDS = 2.0
DELETE_AGAIN = "Press {msg.delete} again to delete this message and all that was said after it."
NOT_NOW = "Not while an answer is awaited; {stop} stops it."
NO_BRANCH = "A branch begins at an answer. Another version of a message: {msg.edit}, another answer: {msg.retry}."
EDITING = "{send} sends it as another version · {stop} gives it up"


class BranchScreen(ReplaceScreen):
    """A message may be pointed at (`cursor`), and one edited in the prompt, whose draft is kept for afterwards."""

    cursor: reactive[int | None] = reactive(None, init=False)

    edited: Utterance | None = None
    draft: tuple[str, tuple[Attachment, ...]] = "", ()  # what was in the prompt before it, and attached

    @cached_property
    def letters(self) -> Mapping[str, Callable[[Utterance], object]]:
        """What each does to the message that is pointed at."""
        return {
            "msg.copy": lambda said: self.take(said.text),
            "msg.code": self.copy_code,
            "msg.edit": self.edit,
            "msg.retry": self.retry,
            "msg.branch": self.branch,
            "msg.older": lambda said: self.turn(said, -1),
            "msg.newer": lambda said: self.turn(said, 1),
            "msg.tokens": self.show_tokens,
            "msg.stats": lambda said: self.status.give_hint(details(said)),
            "msg.delete": self.delete,
        }

    # --- the message that is pointed at

    @property
    def at(self) -> Utterance | None:
        return self.conversation.tree.nodes.get(self.cursor or 0)

    def move(self, direction: int) -> None:
        """To the message before or after; from nowhere to the last one."""
        branch = self.conversation.branch
        place = branch.index(self.at) + direction if self.at in branch else len(branch) - 1
        if branch:
            self.cursor = branch[max(0, min(place, len(branch) - 1))].id
            letters = " ".join(f"{keys} {what}" for keys, what in rows(self, LETTERS))
            self.status.give_hint(NOT_EMPTY if self.prompt.text else letters)

    def claims(self, event: Key) -> bool:
        """A letter with the prompt empty. Any other leaves the message and is typed."""
        said, letter = self.at, next((name for name in self.letters if event.key in keys_of(self, name)), "")
        if said is None or not (letter or event.character):
            return False
        if not letter or letter in LEAVING:
            self.cursor = None
        if letter:
            self.call_later(self.letters[letter], said)
        return bool(letter)

    def watch_cursor(self) -> None:
        self.call_later(self.point)

    async def point(self) -> None:
        await self.transcript.point(self.at)

    def leave_message(self) -> None:
        self.cursor = None
        self.status.end_hint()

    @on(TextArea.Changed, "#prompt")
    def type_instead(self) -> None:
        if self.prompt.text:
            self.cursor = None

    # --- steps in the tree

    def is_free(self) -> bool:
        """Whether the conversation may change now; if not, the user is told."""
        if self.busy:
            self.refuse(with_keys(self, NOT_NOW))
        return not self.busy

    def can_ask(self) -> bool:
        """Whether the engine can, too."""
        if self.is_free() and self.phase != "idle":
            self.refuse(f"Not now: {self.status.state}")
        return not self.busy and self.phase == "idle"

    async def retry(self, said: Utterance | None = None) -> None:
        """This answer once more, beside it; or the last one."""
        last = said or self.conversation.last()
        question = self.conversation.question(last) if last else None
        if question is None:
            self.status.give_hint("There is nothing to answer once more.")
        elif self.can_ask() and self.feed is not None:
            self.cursor = None
            self.conversation.head = question.id
            await self.generate(question, self.feed)
            self.transcript.anchor()

    def edit(self, said: Utterance | None = None) -> None:
        """Bring a question back into the prompt: what is sent then stands beside it."""
        question = self.conversation.question(said) if said else self.conversation.last("user")
        if question is None:
            self.status.give_hint("There is no message of yours to edit.")
        elif self.is_free():
            self.begin_edit(question)

    def begin_edit(self, question: Utterance) -> None:
        if self.edited is None:
            self.draft = self.prompt.text, self.prompt.pills.attachments
        self.edited, self.cursor = question, None
        self.prompt.text = typed(clean(question.text))  # it may be from a history that somebody else wrote
        self.prompt.pills.attachments = question.attachments
        self.prompt.move_cursor(self.prompt.document.end)
        self.prompt.border_title = Content(with_keys(self, EDITING))

    def end_edit(self) -> None:
        """What was in the prompt before is there again."""
        self.edited, self.prompt.border_title = None, None
        self.prompt.text, self.prompt.pills.attachments = self.draft
        self.prompt.move_cursor(self.prompt.document.end)

    async def say(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        if self.edited is not None:
            if not self.can_ask():
                self.prompt.give(typed(text), attachments)
                return
            self.conversation.head = self.edited.parent_id
            self.end_edit()
        await super().say(text, attachments)

    async def undo(self) -> None:
        """The last turn leaves the branch; it stays where it is in the tree."""
        question = self.conversation.last("user")
        if question is None:
            self.status.give_hint("There is no turn to take back.")
        elif self.is_free():
            await self.go(question.parent_id)

    async def branch(self, said: Utterance | None = None) -> None:
        """Go on from this answer, or from the last one."""
        answer = said or self.conversation.last("assistant")
        if answer is None or answer.role != "assistant":
            self.status.give_hint(with_keys(self, NO_BRANCH))
        elif self.is_free():
            await self.go(answer.id)
            self.status.give_hint("What you send next goes on from here.")

    async def turn(self, said: Utterance, places: int) -> None:
        """To another version of this, and what was said after it."""
        other = self.conversation.beside(said, places)
        if other is said:
            self.status.give_hint("There is no version before this one." if places < 0 else "This is the last version.")
        elif self.is_free():
            self.conversation.show(other)
            self.scribe.show(self.conversation.head)
            await self.transcript.show(self.conversation.branch, near=other)
            self.show_figures()
            self.cursor = other.id

    async def delete(self, said: Utterance) -> None:
        """At the second time."""
        if not self.is_free():
            return
        again = with_keys(self, DELETE_AGAIN)
        if self.status.hint != again:
            self.status.give_hint(again, DELETE_SECONDS)
            return
        self.status.end_hint()
        self.cursor = None
        self.conversation.remove(said)
        if self.edited is not None and self.edited.id not in self.conversation.tree.nodes:
            self.end_edit()
        self.scribe.remove(said, self.conversation.head)
        self.drop_figures()
        await self.show_branch()

    async def go(self, head: int | None) -> None:
        """The branch ends here."""
        if self.edited is not None:
            self.end_edit()
        self.conversation.head, self.cursor = head, None
        self.scribe.show(head)
        self.drop_figures()
        await self.show_branch()

    def drop_figures(self) -> None:
        """Of an answer that is not shown any more."""
        if self.measured not in {said.id for said in self.conversation.branch}:
            self.rounds = ()

    async def begin_with(self, past: OpenChat | None) -> None:
        if self.edited is not None:
            self.end_edit()
        self.cursor = None
        await super().begin_with(past)

    # --- what it says

    def show_tokens(self, said: Utterance) -> None:
        if said.role == "assistant":
            self.transcript.answer(said).turn()

    def copy(self, what: str) -> None:
        """`what` is nothing for the last answer, `code` for its last block of code, `all` for the whole branch."""
        answer = self.conversation.last("assistant")
        if what not in {"", "code", "all"}:
            self.refuse("What can be copied: /copy, /copy code, /copy all")
        elif what == "all" and self.conversation.branch:
            self.take("\n\n".join(f"{said.speaker}:\n{said.told}" for said in self.conversation.branch))
        elif answer is None:
            self.status.give_hint("There is nothing to copy.")
        elif what == "code":
            self.copy_code(answer)
        else:
            self.take(answer.text)

    def copy_code(self, said: Utterance) -> None:
        from localspec.tui.markdown.parser import code_blocks  # imports Markdown's parser

        if blocks := code_blocks(said.text):
            self.take(blocks[-1])
        else:
            self.status.give_hint("There is no code block in it.")

    def take(self, text: str, says: str = "Copied.") -> None:
        """To the clipboard, clean: where it is pasted, a control byte would act."""
        text = clean(text)
        self.app.copy_to_clipboard(text)
        self.status.give_hint(says)
        self.run_worker(partial(self.put, text), thread=True, exit_on_error=False, group="clipboard")

    def put(self, text: str) -> None:
        """In a thread: the terminal does not say whether it took it. Nothing is kept where no chat is."""
        if not clipboard.put(text) and self.scribe.keeps:
            with suppress(OSError, UsageError):
                self.call_later(self.status.give_hint, one_line(clipboard.keep(text)))

    # --- keys and commands

    @on(Prompt.Recalled)
    def action_edit(self) -> None:
        self.call_later(self.edit, self.at)

    def action_retry(self) -> None:
        self.call_later(self.retry, self.at)

    def action_point(self, direction: int) -> None:
        self.prompt.call_later(self.move, direction)  # behind the letters that were typed before it

    async def command_retry(self, _: str) -> None:
        await self.retry()

    def command_edit(self, _: str) -> None:
        self.edit()

    async def command_undo(self, _: str) -> None:
        await self.undo()

    async def command_branch(self, _: str) -> None:
        await self.branch()

    def command_copy(self, argument: str) -> None:
        self.copy(argument)
