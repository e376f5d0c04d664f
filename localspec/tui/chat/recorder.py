"""Sends the chat to the history: questions at once, an answer as it grows and as it ended.

Knows the engine's events and what the history's writer takes; no widgets and no database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

import msgspec
from textual.message import Message

from localspec.core.errors import HistoryError
from localspec.core.events import FinishReason, Notice, Ready, Stats, Step, Text
from localspec.core.version import __version__
from localspec.engine.drafters.table import spelling
from localspec.history import (
    Answered,
    Asked,
    Edited,
    Generation,
    Instructed,
    Left,
    Located,
    Moved,
    NewChat,
    Opened,
    Removed,
    SavedAnswer,
    SettingValue,
    Shortened,
    Sought,
    StoredChat,
    Titled,
    Unanswered,
    Unsent,
    Update,
    WhenFull,
    Written,
    first_line,
    title_of,
)
from localspec.runtime.stats import joined
from localspec.tui.chat.conversation import Utterance
from localspec.tui.panels.pills import name

SAVE_SECONDS, SAVE_TOKENS = 2.0, 200  # so much of an answer is lost at most when the program is killed
WHOLE = ("stop", "length")  # an answer that ended so is one, though it may be empty
SETTLED_SECONDS = 6.0  # longer than SQLite waits for another program
TROUBLED_SECONDS = 1.0  # for one more try, where the last one failed
NO_NAME = NewChat("")
NO_PARAMS: Mapping[str, SettingValue] = {}


class HistorySink(Protocol):
    """Receives what the recorder writes: the history's writer. It never makes the chat wait."""

    def start(self, tell: Callable[[Notice], object]) -> None: ...
    def post(self, update: Update) -> None: ...
    def steps(self, message_id: int) -> Sequence[Step]: ...
    @property
    def in_trouble(self) -> bool: ...


class Noticed(Message):
    """Carries a notice from outside of the screen to the user. `answers`: it is what came of what the user just did."""

    def __init__(self, notice: Notice, *, answers: bool = False) -> None:
        super().__init__()
        self.notice, self.answers = notice, answers


class ChatSaved(Message):
    """The running chat is this one of the history's; None where nothing of it is written yet."""

    def __init__(self, chat_id: str | None) -> None:
        super().__init__()
        self.chat_id = chat_id


class HistoryRecorder:
    """`chat` is what a chat of this program is like; without a sink nothing is kept, and not `titled` no title."""

    def __init__(self, sink: HistorySink | None = None, chat: NewChat = NO_NAME, *, titled: bool = True) -> None:
        self._sink = sink
        self._titled = titled
        self.title: str | None = None  # of the chat; None before its first question
        self._says_nothing = False  # the title, which the next question may better
        self._own_title = ""  # of a chat that would begin with the last question
        self._usual = self._chat = chat
        self._author = self._made = Generation("")  # of answers from now on; of the one being written
        self._answer: Utterance | None = None  # while it is being written
        self._answers = chat.model_key  # the key of the model that writes it
        self._begun, self._spent = "", Stats()  # of an answer that goes on: what there was of it before
        self._added = ""  # since then
        self.unsent: tuple[Unsent, ...] = ()  # what is kept of the prompt
        self._steps: list[Step] = []
        self._grown, self._is_stored = 0, False  # by so many tokens since it was saved last

    @property
    def keeps(self) -> bool:
        return self._sink is not None

    @property
    def can_keep(self) -> bool:
        """Whether messages can be saved now, as far as one knows."""
        return self._sink is not None and not self._sink.in_trouble

    @property
    def model_key(self) -> str:
        """The key of the model that answers, as the history names it."""
        return self._chat.model_key

    def start(self, tell: Callable[[Notice], object]) -> None:
        """`tell` is called from another thread."""
        if self._sink is not None:
            self._sink.start(tell)

    def meet(self, ready: Ready) -> None:
        """Takes the model that answers from now on."""
        model = ready.model
        self._author = Generation(
            model.name,
            target_sha=model.revision or None,
            quant=model.quant,
            device=model.device,
            draft=spelling(ready.spec),
            versions={"localspec": __version__},
        )

    def lose_drafter(self) -> None:
        self._author = msgspec.structs.replace(self._author, draft=None)

    def change(self, *, model_key: str | None = None, preset: str | None = None) -> None:
        """Sets the model (None: unchanged) and the preset (or none) of chats from the next question on."""
        changes = {"model_key": model_key or self._chat.model_key, "preset": preset}
        self._chat, self._usual = (msgspec.structs.replace(one, **changes) for one in (self._chat, self._usual))

    def instruct(self, system: str) -> None:
        """This chat has another system prompt, or none."""
        self._chat = msgspec.structs.replace(self._chat, system=system or None)
        self._post(Instructed(system or None))

    def shorten(self, when_full: WhenFull | None, turns_left_out: int) -> None:
        """Saves how this chat is shortened to its context: by which choice, and how many turns are left out."""
        self._post(Shortened(when_full, turns_left_out))

    def ask(self, question: Utterance, stats: Stats) -> None:
        """Saves a question at once, even while the answer before it is still being written: that one is then saved
        first."""
        if self._answer is not None and not self._is_stored:
            self._save(self._answer, stats)
        self._entitle(question)
        self.unsent = ()  # the writer drops it with this
        chat = msgspec.structs.replace(self._chat, title=self.title or "")
        ids = question.id, question.parent_id
        self._post(Asked(chat, question.text, *ids, question.attachments, self._own_title))

    def _entitle(self, question: Utterance) -> None:
        """The chat's title: what was asked first, or first beyond a greeting."""
        files = [one.path for one in question.attachments if one.path]
        found = title_of(question.text, files) or next((name(one) for one in question.attachments), "")
        self._own_title = (found or first_line(question.text)) if self._titled else ""
        if self.title is None:
            self.title = self._own_title
            self._says_nothing = self._titled and not found
        elif self._says_nothing and found:
            self._post(Titled(found, self.title))
            self.title, self._says_nothing = found, False

    def rename(self, title: str) -> None:
        """The user calls this chat so, whatever is asked."""
        self.title, self._says_nothing = title, False
        self._post(Titled(title))

    def begin_anew(self) -> None:
        """The chat was deleted elsewhere: the last question has begun another."""
        self.called(self._own_title)

    def called(self, title: str) -> None:
        """Goes on in a chat that is called so."""
        self.title, self._says_nothing = title, self._titled and not title_of(title)

    def answer(self, utterance: Utterance, params: Mapping[str, SettingValue] = NO_PARAMS) -> None:
        """Begins an answer, whose tokens are chosen with these `params`."""
        self._answer, self._made = utterance, msgspec.structs.replace(self._author, params=dict(params))
        self._answers = self._chat.model_key
        self._begun, self._spent, self._added = "", Stats(), ""
        self._steps, self._grown, self._is_stored = [], 0, False

    def resume(
        self, utterance: Utterance, before: Sequence[Step], params: Mapping[str, SettingValue] = NO_PARAMS
    ) -> None:
        """Continues an answer in its message; `before` are the rounds it has."""
        self.answer(utterance, params)
        self._begun, self._spent = utterance.text, utterance.made.stats if utterance.made else Stats()
        self._steps, self._is_stored = list(before), True

    def whole(self, stats: Stats) -> Stats:
        """The figures of the answer that is being written, with those of its part that was written before."""
        return joined(self._spent, stats) if self._begun else stats

    def add(self, step: Step | Text) -> None:
        self._added += step.text
        if isinstance(step, Text):
            self._grown += 1
        else:
            self._steps.append(step)
            self._grown += len(step.tokens)

    @property
    def is_due(self) -> bool:
        """Whether so much of the answer is unsaved that it does not wait for the clock."""
        return self._grown >= SAVE_TOKENS

    def save(self, stats: Stats) -> None:
        """The answer so far, unless that is saved already."""
        if self._answer is not None and self._grown:
            self._save(self._answer, stats)

    def end(self, stats: Stats, reason: FinishReason, fault: str = "") -> Generation | None:
        """The answer as it is and why it is no longer, once; and who wrote it. One that never began is none. `fault`:
        the sentence of the error that ended it."""
        if self._answer is None:
            return None
        answer, self._answer = self._answer, None
        if reason not in WHOLE and not (self._is_stored or self._added):
            return None
        return self._save(answer, msgspec.structs.replace(stats, finish_reason=reason), fault)

    @property
    def has_not_gone_on(self) -> bool:
        """Whether nothing was added yet to an answer that was to go on."""
        return bool(self._begun) and not self._added

    def drop(self) -> None:
        """What was to be written was not: the history keeps what it has."""
        self._answer = None

    def leave_unanswered(self, question: Utterance) -> None:
        """The answer to this never began."""
        self._post(Unanswered(question.id, question.reason))

    def edit(self, utterance: Utterance) -> None:
        """The user's own version of an answer."""
        self._post(Edited(utterance.text, utterance.id, utterance.parent_id or 0))

    def show(self, head: int | None) -> None:
        """The branch that is shown."""
        self._post(Moved(head))

    def remove(self, utterance: Utterance, head: int | None) -> None:
        """The message and all after it; what is shown then. A chat without a message has no title."""
        self.title = None if head is None else self.title
        self._post(Removed(utterance.id))
        self._post(Moved(head))

    def leave(self) -> None:
        """Leaves the chat: the next question begins another."""
        self.title = None
        self._chat = self._usual
        self._post(Left())

    def open(self, chat: StoredChat) -> None:
        """Enters this chat: the next question continues it."""
        self._chat = msgspec.structs.replace(self._usual, system=chat.system)
        self.called(chat.title)
        self._post(Opened(chat))

    def locate(self, tell: Callable[[str | None], object]) -> None:
        """Calls back with the chat's id, once all messages are written; from another thread."""
        if self._sink is not None:
            self._sink.post(Located(tell))
        else:
            tell(None)

    def settled(self) -> str | None:
        """The chat's id once all its messages are written. Waits for the disk: not for the screen's thread."""
        located: Future[str | None] = Future()
        self.locate(located.set_result)
        try:
            return located.result(TROUBLED_SECONDS if self._sink and self._sink.in_trouble else SETTLED_SECONDS)
        except TimeoutError:
            raise HistoryError("The history cannot be written at present.", hint="Try again later.") from None

    def rounds(self, message_id: int) -> Sequence[Step]:
        """The rounds of an answer that was kept before. Waits for the disk."""
        return self._sink.steps(message_id) if self._sink is not None else ()

    def keep_unsent(self, *unsent: Unsent, took: tuple[int, ...] = ()) -> None:
        """This is in the prompt now; `took` are the ids of what was put there of an earlier program's."""
        if took or unsent != self.unsent:
            self.unsent = unsent
            self._post(Written(unsent, took))

    def leave_unsent(self, *unsent: Unsent) -> None:
        """Leaves the chat, or the program, with this in the prompt."""
        if unsent or self.unsent:
            self.unsent = ()
            self._post(Written(unsent, is_left=True))

    def seek_unsent(self, server: str, tell: Callable[[tuple[Unsent, ...]], object]) -> None:
        """Calls back with what was left in this chat's prompt, or in that of a new one with this server; from another
        thread."""
        self._post(Sought(server, tell))

    def _save(self, answer: Utterance, stats: Stats, fault: str = "") -> Generation:
        self._grown, self._is_stored = 0, True
        made = msgspec.structs.replace(self._made, stats=self.whole(stats))
        text = self._begun + self._added
        written = SavedAnswer(text, made, tuple(self._steps), fault)
        self._post(Answered(written, answer.id, answer.parent_id or 0, self._answers))
        return made

    def _post(self, update: Update) -> None:
        if self._sink is not None:
            self._sink.post(update)
