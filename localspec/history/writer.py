"""The one thread that writes a running chat into the history. Whoever says something never waits for the disk.

What is said is written in order. What cannot be written is told once, kept, and tried again: with what is said next,
every few seconds, and at the end. Knows no screen and no engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING

from localspec.core.errors import LocalspecError, NoSuchChat
from localspec.core.events import Notice, Step
from localspec.history.records import Chat
from localspec.history.turns import Answered, Said, Turns

if TYPE_CHECKING:
    from localspec.history.store import History

Tell = Callable[[Notice], object]
RETRY_SECONDS = 5.0
CLOSE_SECONDS = 10.0  # longer than SQLite waits for another program
AGAIN = Notice("info", "history_again", "The history is written again; nothing is missing in it.")
LATE = Notice("warning", "history", "The history took too long: the end of the chat is not saved.")


class Writer:
    """`chat` is the one to go on with. `start` opens the history: its thread alone writes, `steps` reads from any."""

    def __init__(self, path: Path | None = None, *, chat: Chat | None = None) -> None:
        self._path = path
        self._turns = Turns(chat)
        self._history: History | None = None
        self._tell: Tell = lambda _: None
        self._trouble: Notice | None = None
        self._waiting: deque[Said] = deque()
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._work, name="history", daemon=True)  # a dead disk must not keep the program

    def start(self, tell: Tell) -> None:
        """`tell` is called from the writer's thread."""
        self._tell = tell
        self._thread.start()

    def post(self, said: Said) -> None:
        with self._changed:
            self._waiting.append(said)
            self._changed.notify_all()

    def steps(self, message_id: int) -> tuple[Step, ...]:
        """Every round of an answer that was kept before, once the history is open; may wait, and never complains."""
        with self._changed:
            self._changed.wait_for(lambda: self._history or self._trouble or self._closing, CLOSE_SECONDS)
        with suppress(LocalspecError):
            return self._history.steps(message_id) if self._history else ()
        return ()

    @property
    def in_trouble(self) -> bool:
        """What was said last could not be written."""
        return self._trouble is not None

    def close(self) -> Notice | None:
        """Write what still waits; what is in the way of that, if anything is."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)
        return (self._trouble or LATE) if self._waiting else None

    # --- in the thread

    def _work(self) -> None:
        self._succeeds(self._open)  # now, so that trouble is known before anything is said
        with self._changed:
            self._changed.notify_all()
        while (said := self._next()) is not None:
            if self._succeeds(partial(self._write, said)):
                self._waiting.popleft()
            elif self._closing:
                break
        if self._history is not None:
            self._history.close()

    def _write(self, said: Said) -> None:
        if notice := self._turns.write(self._open(), said):
            self._tell(notice)

    def _next(self) -> Said | None:
        """What was said first, once there is something; of an answer that has grown since, only the newest. None: end.

        It stays in the queue until it is written, and nobody else takes from there.
        """
        with self._changed:
            if self._trouble is not None and not self._closing:
                self._changed.wait(RETRY_SECONDS)
            self._changed.wait_for(lambda: self._waiting or self._closing)
            while len(self._waiting) > 1 and outdated(self._waiting[0], self._waiting[1]):
                self._waiting.popleft()
            return self._waiting[0] if self._waiting else None

    def _open(self) -> History:
        from localspec.history.store import History  # here, in the thread: SQLite is not the first frame's to wait for

        if self._history is None:
            self._history = History(self._path)
            for notice in self._history.notices:
                self._tell(notice)
        return self._history

    def _succeeds(self, work: Callable[[], object]) -> bool:
        """What was deleted meanwhile counts as written: another try would change nothing."""
        try:
            work()
        except NoSuchChat as fault:
            self._tell(warning(fault))
        except LocalspecError as fault:
            return self._fail(warning(fault))
        except Exception as fault:  # whatever it is, what is said next must still find this thread
            return self._fail(Notice("warning", "history", f"The history failed ({fault!r}): this is not saved."))
        if self._trouble is not None:
            self._trouble = None
            self._tell(AGAIN)
        return True

    def _fail(self, notice: Notice) -> bool:
        if self._trouble != notice:
            self._tell(notice)
        self._trouble = notice
        return False


def outdated(said: Said, later: Said) -> bool:
    """The same answer, grown since."""
    return isinstance(said, Answered) and isinstance(later, Answered) and said.id == later.id


def warning(fault: LocalspecError) -> Notice:
    return Notice("warning", fault.code, fault.message, fault.hint)
