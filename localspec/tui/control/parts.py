"""The objects that the controllers of one chat share. Each picks its own from this record."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from textual.screen import Screen
from textual.worker import Worker

from localspec.tui.chat.conversation import Conversation
from localspec.tui.chat.recorder import HistoryRecorder
from localspec.tui.control.engine_link import EngineLink
from localspec.tui.control.feedback import Feedback
from localspec.tui.control.state import ChatState
from localspec.tui.control.tuning import Tuning
from localspec.tui.transcript.transcript import Transcript

Work = Callable[[], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class ChatParts:
    """`screen` is for its message queue, its workers and the screens above it."""

    screen: Screen[None]
    state: ChatState
    feedback: Feedback
    engine: EngineLink
    conversation: Conversation
    transcript: Transcript
    recorder: HistoryRecorder
    tuning: Tuning

    def work(self, work: Work, group: str, *, exclusive: bool = False) -> Worker[None]:
        """Run this beside the screen's message queue; `exclusive`: instead of what its group does."""
        return self.screen.run_worker(work, group=group, exclusive=exclusive)
