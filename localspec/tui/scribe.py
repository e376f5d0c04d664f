"""The chat's own words on their way to the history: questions at once, an answer as it grows and as it ended.

Knows the engine's events and what the history's writer takes; no widgets and no database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

import msgspec
from textual.message import Message

from localspec import __version__
from localspec.errors import HistoryError
from localspec.events import FinishReason, Notice, Ready, SpecCard, Stats, Step
from localspec.history import (
    Answer,
    Answered,
    Asked,
    Chat,
    Generation,
    Instructed,
    Left,
    Located,
    NewChat,
    Opened,
    Said,
    Setting,
    first_line,
)

SAVE_SECONDS = 2.0  # so much of an answer is lost when the program is killed
SETTLED_SECONDS = 6.0  # longer than SQLite waits for another program
NO_NAME = NewChat("")
NOTHING_SAID: Mapping[str, Setting] = {}


class Paper(Protocol):
    """What takes down what is said: the history's writer. It never makes the chat wait."""

    def start(self, tell: Callable[[Notice], object]) -> None: ...
    def post(self, said: Said) -> None: ...


class Told(Message):
    """The paper has something to say."""

    def __init__(self, notice: Notice) -> None:
        super().__init__()
        self.notice = notice


class Kept(Message):
    """The running chat is this one of the history's; None where nothing of it is written yet."""

    def __init__(self, chat_id: str | None) -> None:
        super().__init__()
        self.chat_id = chat_id


class Scribe:
    """`chat` is what a chat of this program is like; without paper nothing is kept, and not `titled` no title."""

    def __init__(self, paper: Paper | None = None, chat: NewChat = NO_NAME, *, titled: bool = True) -> None:
        self._paper = paper
        self._titled = titled
        self._usual = self._chat = chat
        self._author = self._made = Generation("")  # of answers from now on; of the one being written
        self._steps: list[Step] = []
        self._answering = self._has_grown = False

    @property
    def keeps(self) -> bool:
        return self._paper is not None

    def start(self, tell: Callable[[Notice], object]) -> None:
        """`tell` is called from another thread."""
        if self._paper is not None:
            self._paper.start(tell)

    def meet(self, ready: Ready) -> None:
        """Who answers from now on."""
        model = ready.model
        self._author = Generation(
            model.name,
            quant=model.quant,
            device=model.device,
            draft=drafter(ready.spec),
            versions={"localspec": __version__},
        )

    def lose_drafter(self) -> None:
        self._author = msgspec.structs.replace(self._author, draft=None)

    def change(self, *, model_key: str | None = None, preset: str | None = None) -> None:
        """From the next question on the chat is with this model, or the one it was with, and this preset or none."""
        self._chat = msgspec.structs.replace(self._chat, model_key=model_key or self._chat.model_key, preset=preset)

    def ask(self, question: str, params: Mapping[str, Setting] = NOTHING_SAID) -> None:
        self._made = msgspec.structs.replace(self._author, params=dict(params))
        self._steps, self._answering, self._has_grown = [], True, False
        title = first_line(question) if self._titled else ""
        self._post(Asked(msgspec.structs.replace(self._chat, title=title), question))

    def add(self, step: Step) -> None:
        self._steps.append(step)
        self._has_grown = True

    def save(self, stats: Stats) -> None:
        """The answer so far, unless that is saved already."""
        if self._answering and self._has_grown:
            self._has_grown = False
            self._answer(stats)

    def end(self, stats: Stats, reason: FinishReason) -> None:
        """The answer as it is and why it is no longer; once."""
        if self._answering:
            self._answering = False
            self._answer(msgspec.structs.replace(stats, finish_reason=reason))

    @property
    def model_key(self) -> str:
        """Of the model that answers, as the history names it."""
        return self._chat.model_key

    def instruct(self, system: str) -> None:
        """This chat has another system prompt, or none."""
        self._chat = msgspec.structs.replace(self._chat, system=system or None)
        self._post(Instructed(system or None))

    def leave(self) -> None:
        """What is asked next begins another chat."""
        self._chat = self._usual
        self._post(Left())

    def open(self, chat: Chat) -> None:
        """What is asked next goes on in this chat."""
        self._post(Opened(chat))

    def locate(self, tell: Callable[[str | None], object]) -> None:
        """The chat's id, once all that was said is written: told from another thread."""
        if self._paper is not None:
            self._paper.post(Located(tell))
        else:
            tell(None)

    def settled(self) -> str | None:
        """The chat's id once all that was said is written. Waits for the disk: not for the screen's thread."""
        told: Future[str | None] = Future()
        self.locate(told.set_result)
        try:
            return told.result(SETTLED_SECONDS)
        except TimeoutError:
            raise HistoryError("The history cannot be written at present.", hint="Try again later.") from None

    def _answer(self, stats: Stats) -> None:
        text = "".join(step.text for step in self._steps)
        self._post(Answered(Answer(text, msgspec.structs.replace(self._made, stats=stats), tuple(self._steps))))

    def _post(self, said: Said) -> None:
        if self._paper is not None:
            self._paper.post(said)


def drafter(spec: SpecCard) -> str | None:
    """As --draft names it."""
    match spec.kind:
        case "off":
            return None
        case "early-exit":
            return f"early-exit:{spec.exit_layer}"
        case _:
            return spec.name
