"""The hub's process while another thread closes it: it ends at once, and it alone."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from localspec.core.errors import HubAway, PullError
from localspec.hub import process
from localspec.hub.process import HubProcess
from localspec.hub.records import AskSearch, SearchRequest

SILENCE = 5.0
QUESTION = AskSearch(SearchRequest())
PROGRESS = b'{"type":"progress","repo":"org/model","stage":"resolving","done":0,"total":0}'
TALKS = f"import sys, time\nsys.stdin.readline()\nprint({PROGRESS.decode()!r}, flush=True)\ntime.sleep(60)"


@pytest.fixture
def talks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's process is one that answers once, and then says nothing."""

    def started(_command: list[str], **options: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-S", "-E", "-c", TALKS], **options)  # type: ignore[call-overload, no-any-return]

    class Stage:
        PIPE, Popen = subprocess.PIPE, staticmethod(started)

    monkeypatch.setattr(process, "subprocess", Stage)


def reading(hub: HubProcess, first: threading.Event, found: list[Exception]) -> Callable[[], None]:
    def read() -> None:
        try:
            for _ in hub.ask(QUESTION):
                first.set()
        except (PullError, OSError, ValueError) as fault:
            found.append(fault)

    return read


@pytest.mark.usefixtures("talks")
def test_a_close_from_another_thread_wakes_the_reader_at_once():
    """A descriptor that is closed falls out of the selector: its reader slept until the deadline, about once in six."""
    for _ in range(50):
        hub, first, found = HubProcess(silence=SILENCE), threading.Event(), list[Exception]()
        reader = threading.Thread(target=reading(hub, first, found))
        reader.start()
        assert first.wait(SILENCE)
        time.sleep(0.01)  # it waits for the next answer by now
        began = time.monotonic()
        hub.close()
        reader.join()
        assert time.monotonic() - began < SILENCE / 2
        assert [str(fault).split(".")[0] for fault in found] == ["The download's process ended"]


@pytest.mark.usefixtures("talks")
def test_silence_ends_the_process_that_was_silent_and_no_other():
    with HubProcess(silence=0.3) as hub:
        silent = hub.ask(QUESTION)
        next(silent)
        ended = hub._child
        assert ended is not None
        hub._child = None  # as after a close by another thread
        other = hub._started()
        with pytest.raises(HubAway):
            next(silent)
        assert ended.poll() is not None
        assert other.poll() is None
        assert hub._child is other
