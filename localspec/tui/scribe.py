"""The chat's own words on their way to the history: questions at once, an answer as it grows and as it ended.

Knows the engine's events and what the history's writer takes; no widgets and no database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from textual.message import Message

from localspec import __version__
from localspec.events import FinishReason, Notice, Ready, SpecCard, Stats, Step
from localspec.history import Answer, Answered, Asked, Generation, Left, Moved, NewChat, Removed, Said, first_line
from localspec.tui.conversation import Utterance

SAVE_SECONDS = 2.0  # so much of an answer is lost when the program is killed
NO_NAME = NewChat("")


class Paper(Protocol):
    """What takes down what is said: the history's writer. It never makes the chat wait."""

    def start(self, tell: Callable[[Notice], object]) -> None: ...
    def post(self, said: Said) -> None: ...
    def steps(self, message_id: int) -> Sequence[Step]: ...


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
        self._answer: Utterance | None = None  # while it is being written
        self._steps: list[Step] = []
        self._has_grown = self._has_place = False

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

    def ask(self, question: Utterance, stats: Stats) -> None:
        """At once, though it may wait for the answer that is being written: that one then needs its place."""
        if self._answer is not None and not self._has_place:
            self._save(self._answer, stats)
        chat = msgspec.structs.replace(self._chat, title=first_line(question.text))
        self._post(Asked(chat, question.text, question.id, question.parent_id))

    def answer(self, said: Utterance) -> None:
        """It is being written from now on."""
        self._answer, self._made = said, self._author
        self._steps, self._has_grown, self._has_place = [], False, False

    def add(self, step: Step) -> None:
        self._steps.append(step)
        self._has_grown = True

    def save(self, stats: Stats) -> None:
        """The answer so far, unless that is saved already."""
        if self._answer is not None and self._has_grown:
            self._save(self._answer, stats)

    def end(self, stats: Stats, reason: FinishReason) -> Generation | None:
        """The answer as it is and why it is no longer, once; and who wrote it."""
        if self._answer is None:
            return None
        answer, self._answer = self._answer, None
        return self._save(answer, msgspec.structs.replace(stats, finish_reason=reason))

    def show(self, head: int | None) -> None:
        """The branch that is shown."""
        self._post(Moved(head))

    def remove(self, said: Utterance, head: int | None) -> None:
        """The message and all after it; what is shown then."""
        self._post(Removed(said.id))
        self._post(Moved(head))

    def leave(self) -> None:
        """What is asked next begins another chat."""
        self._post(Left())

    def rounds(self, message_id: int) -> Sequence[Step]:
        """Of an answer that was kept before. Waits for the disk."""
        return self._paper.steps(message_id) if self._paper is not None else ()

    def _save(self, answer: Utterance, stats: Stats) -> Generation:
        self._has_grown, self._has_place = False, True
        made = msgspec.structs.replace(self._made, stats=stats)
        text = "".join(step.text for step in self._steps)
        self._post(Answered(Answer(text, made, tuple(self._steps)), answer.id, answer.parent_id or 0))
        return made

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
