"""Questions of a screen to a hub process of its own: the newest of each kind, one at a time, in a thread.

Starts no process before the first question. Knows no widget but the one that hears the answers.
"""

from __future__ import annotations

from threading import Lock

from textual.message import Message
from textual.widget import Widget

from localspec.core.errors import LocalspecError, PullError
from localspec.hub.process import HubProcess
from localspec.hub.records import AskFit, AskPair, AskPull, AskSearch, HubAnswer

HubQuestion = AskSearch | AskFit | AskPair | AskPull
ORDER: tuple[type[HubQuestion], ...] = (
    AskPull,
    AskSearch,
    AskPair,
    AskFit,
)  # the first of those that wait is asked next


class HubAnswered(Message):
    """An answer to a question, or why there is none; it may no longer be the question that matters."""

    def __init__(self, question: HubQuestion, answer: HubAnswer | LocalspecError) -> None:
        super().__init__()
        self.question, self.answer = question, answer


class HubLink:
    """`listener` is sent a HubAnswered for every answer."""

    def __init__(self, listener: Widget) -> None:
        self._listener, self._hub = listener, HubProcess()
        self._lock = Lock()
        self._waiting: dict[type[HubQuestion], HubQuestion] = {}
        self._works = self._is_over = False

    def ask(self, question: HubQuestion) -> None:
        """Ask it instead of one of its kind that still waits."""
        with self._lock:
            self._waiting[type(question)] = question
            begins, self._works = not self._works, True
        if begins:
            self._listener.run_worker(self._work, thread=True, exit_on_error=False, group="hub")

    def close(self) -> None:
        """End what is asked."""
        self._is_over = True
        self._hub.close()

    def _work(self) -> None:
        while (question := self._next()) is not None:
            try:
                for answer in self._hub.ask(question):
                    self._listener.post_message(HubAnswered(question, answer))
            except LocalspecError as fault:
                self._tell_fault(question, fault)
            except (OSError, ValueError):  # its pipes were closed while it was read
                self._tell_fault(question, PullError("The hub's process ended.", hint="Try again."))

    def _tell_fault(self, question: HubQuestion, fault: LocalspecError) -> None:
        if not self._is_over:
            self._listener.post_message(HubAnswered(question, fault))

    def _next(self) -> HubQuestion | None:
        with self._lock:
            kind = next((kind for kind in ORDER if kind in self._waiting), None)
            if kind is None or self._is_over:
                self._works = False
                return None
            return self._waiting.pop(kind)
