"""Messages beside the conversation: a hint, a refusal, a note in the transcript. Knows no engine."""

from __future__ import annotations

from textual.screen import Screen
from textual.widget import Widget

from localspec.core.errors import LocalspecError
from localspec.core.events import Notice
from localspec.core.sanitize import one_line
from localspec.tui.chat.chat_words import chat_words
from localspec.tui.chat.recorder import Noticed
from localspec.tui.control.state import ChatState
from localspec.tui.keys.key_names import with_keys
from localspec.tui.panels.prompt import Prompt
from localspec.tui.panels.stats_line import StatsLine
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.transcript import Transcript


class Feedback:
    """`command` is the one that runs now, as it was typed: one that is refused goes back into the prompt.
    `shown_notices`: those on how models load that this session has shown."""

    command = ""

    def __init__(self, screen: Screen[None], state: ChatState, transcript: Transcript) -> None:
        self.screen, self.state, self.transcript = screen, state, transcript
        self.shown_notices: set[tuple[str, str, str]] = set()

    @property
    def status(self) -> StatsLine:
        return self.state.status

    @property
    def prompt(self) -> Prompt:
        return self.state.prompt

    def hint(self, text: str, seconds: float | None = None, *, stays: bool = False) -> None:
        """A sentence in the state line; `stays`: whatever the engine does meanwhile."""
        self.status.give_hint(text, seconds, stays=stays)

    def with_keys(self, text: str) -> str:
        """The text, in which an id in braces stands for its key."""
        return with_keys(self.screen, text)

    def words(self, text: str) -> str:
        """A sentence of the engine's as it can be followed here: with commands for flags."""
        return chat_words(text, self.with_keys("{models}"))

    def refuse(self, why: str) -> None:
        """Shows why a request is refused. A typed command stays in the prompt, as a message does."""
        self.give_back(self.command)
        self.status.give_hint(one_line(self.words(why)))

    def give_back(self, typed: str) -> None:
        """A command, to be mended; one that was chosen with a key has nothing to give back."""
        if typed:
            self.prompt.give(typed)

    def tell(self, notice: Notice) -> None:
        """Called from any thread."""
        self.screen.post_message(Noticed(notice))

    def answer(self, notice: Notice) -> None:
        """What has come of what the user just did. Called from any thread."""
        self.screen.post_message(Noticed(notice, answers=True))

    def warn(self, fault: LocalspecError) -> None:
        """Why what the user just did has failed. Called from any thread."""
        self.answer(Notice("warning", fault.code, fault.message, fault.hint))

    async def remark(self, notice: Notice) -> None:
        """Adds what the engine says: how a model is loaded once a session."""
        if self.state.phase != "loading":
            await self.inform(notice)
        elif (news := (self.state.tuning.name, notice.code, notice.message)) not in self.shown_notices:
            self.shown_notices.add(news)
            await self.inform(notice)

    async def inform(self, notice: Notice, *, answers: bool = False) -> None:
        """Adds a notice to the transcript, unless the same one is its last line. `answers`: as `show` has it."""
        note = Note(self.words(f"{notice.message} {notice.hint}".strip()), level=notice.level)
        last = next(reversed(self.transcript.children), None)
        if not isinstance(last, Note) or last.text != note.text:
            await self.show(note, answers=answers)
        elif answers:
            self.transcript.anchor()

    async def note(self, text: str) -> None:
        """Adds what a command says."""
        await self.show(Note(text), answers=True)

    async def show(self, widget: Widget, *, answers: bool = False) -> None:
        """Add to the transcript: a message that waits stays last, and a note comes before an answer not begun. What
        `answers` a command is brought into sight; nothing else moves what the user reads."""
        if not self.transcript.is_attached:  # the app is ending: Textual takes no more widgets
            return
        answer, queued = self.state.answer, self.state.queued
        unbegun = answer if isinstance(widget, Note) and answer is not None and not answer.text else None
        waiting = self.transcript.widget(queued) if queued is not None else None
        later = next((w for w in (unbegun, waiting) if w is not None and w.is_attached), None)
        await self.transcript.mount(widget, before=later)
        if answers:
            self.transcript.anchor()
