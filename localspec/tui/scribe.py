"""The chat's own words on their way to the history: questions at once, an answer as it grows and as it ended.

Knows the engine's events and what the history's writer takes; no widgets and no database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from textual.message import Message

from localspec import __version__
from localspec.events import FinishReason, Notice, Ready, SpecCard, Stats, Step
from localspec.history import Answer, Answered, Asked, Attachment, Generation, Left, NewChat, Said, first_line
from localspec.tui.pills import name

SAVE_SECONDS = 2.0  # so much of an answer is lost when the program is killed
NO_NAME = NewChat("")


class Paper(Protocol):
    """What takes down what is said: the history's writer. It never makes the chat wait."""

    def start(self, tell: Callable[[Notice], object]) -> None: ...
    def post(self, said: Said) -> None: ...


class Told(Message):
    """The paper has something to say."""

    def __init__(self, notice: Notice) -> None:
        super().__init__()
        self.notice = notice


class Scribe:
    """`chat` is what a new chat of this program is like; without paper nothing is kept."""

    def __init__(self, paper: Paper | None = None, chat: NewChat = NO_NAME) -> None:
        self._paper = paper
        self._chat = chat
        self._author = self._made = Generation("")  # of answers from now on; of the one being written
        self._steps: list[Step] = []
        self._answering = self._has_grown = False

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

    def ask(self, question: str, attachments: tuple[Attachment, ...] = ()) -> None:
        self._made = self._author
        self._steps, self._answering, self._has_grown = [], True, False
        title = first_line(question) or next((name(one) for one in attachments), "")
        self._post(Asked(msgspec.structs.replace(self._chat, title=title), question, attachments))

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

    def leave(self) -> None:
        """What is asked next begins another chat."""
        self._post(Left())

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
