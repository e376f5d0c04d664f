"""The thread that writes a running chat into the history, so that the screen never waits for the disk.

Updates are written in order. One that cannot be written is reported once, kept, and tried again: with the next update,
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
from localspec.history.records import StoredChat
from localspec.history.turns import Answered, TurnWriter, Update

if TYPE_CHECKING:
    from localspec.history.store import History

Notify = Callable[[Notice], object]
RETRY_SECONDS = 5.0
CLOSE_SECONDS = 10.0  # longer than SQLite waits for another program
AGAIN = Notice("info", "history_again", "The chat is being saved again; nothing is missing.")
LATE = Notice("warning", "history", "Saving took too long: the end of this chat is not saved.")


class Writer:
    """Saves a running chat; `chat` is the one to continue. Its thread writes; any may call `steps`."""

    def __init__(self, path: Path | None = None, *, chat: StoredChat | None = None) -> None:
        self._path = path
        self._turns = TurnWriter(chat)
        self._history: History | None = None
        self._notify: Notify = lambda _: None
        self._trouble: Notice | None = None
        self._waiting: deque[Update] = deque()
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._work, name="history", daemon=True)  # a dead disk must not keep the program

    def start(self, notify: Notify) -> None:
        """Opens the history in the writer's thread, from which `notify` is called."""
        self._notify = notify
        self._thread.start()

    def post(self, update: Update) -> None:
        """Queues an update; returns at once."""
        with self._changed:
            self._waiting.append(update)
            self._changed.notify_all()

    def steps(self, message_id: int) -> tuple[Step, ...]:
        """Every round of a saved answer, once the history is open. May wait; never raises."""
        with suppress(LocalspecError):
            return history.steps(message_id) if (history := self._opened()) else ()
        return ()

    def _opened(self) -> History | None:
        with self._changed:
            self._changed.wait_for(lambda: self._history or self._trouble or self._closing, CLOSE_SECONDS)
        return self._history

    @property
    def in_trouble(self) -> bool:
        """True when the last update could not be written."""
        return self._trouble is not None

    def close(self) -> Notice | None:
        """Writes what still waits; returns why something could not be written, if so."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)
        return (self._trouble or LATE) if self._waiting else None

    # --- in the thread

    def _work(self) -> None:
        self._succeeds(self._open)  # now, so that trouble is known before the first question
        with self._changed:
            self._changed.notify_all()
        while (update := self._next()) is not None:
            if self._succeeds(partial(self._write, update)):
                self._waiting.popleft()
            elif self._closing:
                break
        if self._history is not None:
            self._history.close()

    def _write(self, update: Update) -> None:
        if notice := self._turns.write(self._open(), update):
            self._notify(notice)

    def _next(self) -> Update | None:
        """The oldest update, once there is one; of an answer that has grown since, only the newest. None: end.

        It stays in the queue until it is written; only this thread takes from there.
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
                self._notify(notice)
        return self._history

    def _succeeds(self, work: Callable[[], object]) -> bool:
        """Runs the work and reports a failure. A chat deleted meanwhile counts as written, as no retry helps."""
        try:
            work()
        except NoSuchChat as fault:
            self._notify(warning(fault))
        except LocalspecError as fault:
            return self._fail(warning(fault))
        except Exception as fault:  # whatever it is, the next update must still find this thread
            return self._fail(Notice("warning", "history", f"The history failed ({fault!r}): this is not saved."))
        if self._trouble is not None:
            self._trouble = None
            self._notify(AGAIN)
        return True

    def _fail(self, notice: Notice) -> bool:
        if self._trouble != notice:
            self._notify(notice)
        self._trouble = notice
        return False


def outdated(update: Update, later: Update) -> bool:
    """True for two states of the same answer."""
    return isinstance(update, Answered) and isinstance(later, Answered) and update.id == later.id


def warning(fault: LocalspecError) -> Notice:
    return Notice("warning", fault.code, fault.message, fault.hint)
