"""The chat in a terminal of 120 x 40 without a screen, its frames timed; for benchmarks.chat.

It is fed by a scripted engine of 200 tokens a second; keys are typed into the terminal. A frame is a stretch in which
the thread of the screen did not look for keys and drew something; "cpu" is what it took of a processor, whatever else
the machine did.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from time import monotonic, sleep
from typing import Any  # Any: JSON

import psutil

from benchmarks.terminal import Terminal
from benchmarks.timed_chat import TimedChat
from benchmarks.ui.measure import within
from localspec.core.events import AnyEvent, Step
from localspec.history import NewChat, Writer, recall
from localspec.tui.chat.recorder import HistoryRecorder
from localspec.tui.terminal.collector import collect_at_rest
from tests.support.scripted_engine import ScriptedEngine, answer, rounds, step
from tests.tui.test_chat_heavy import DEEP

TOKENS, LINES = 10_000, 500
ROUND_SECONDS = 0.015  # of three tokens
PATIENCE_SECONDS, REST_SECONDS = 900.0, 0.2
PAGES, PAGE_UP = 60, "\x1b[5~"
PIECE = 1000  # characters that a text no person writes comes in
PROSE = "Drafts are **checked** in one pass, and what is wrong is thrown away, so that the text `stays` the same.\n\n"
LIST = "".join(f"- item {i} of a list, with `code` in it\n" for i in range(6)) + "\n"
SAID = PROSE + LIST
MEGABYTE = "".join(f"Paragraph {i} goes on for a while, in words that no one reads.\n\n" for i in range(16_000))
HEAVY = {"a reply of a megabyte": MEGABYTE, **DEEP}


def long_text() -> str:
    """The code in the middle of prose."""
    code = "\n".join(f"    total = add(total, values[{i}])  # line {i} of them" for i in range(LINES))
    text = f"```python\ndef all_of(values, total):\n{code}\n```\n\n"
    missing = TOKENS - words_in(text)
    half = SAID * (missing // words_in(SAID) // 2)
    return half + text + half


def words_in(text: str) -> int:
    return sum(len(step.tokens) for step in rounds(text))


# --- the program under measurement


class MeasuredChat(TimedChat):
    """Tells what its frames took: when it is ready, when it has answered, and whenever it is sent a signal."""

    def __init__(self, fd: int, engine: ScriptedEngine, **kept: Any) -> None:
        super().__init__(lambda: engine, **kept)
        self.fd = fd

    def on_mount(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.tell)
        self.run_worker(self.play())

    async def play(self) -> None:
        while self.chat.state.phase == "loading":
            await asyncio.sleep(0.05)
        self.tell()
        while True:
            while not self.chat.state.answering:
                await asyncio.sleep(0.05)
            while self.chat.state.answering:
                await asyncio.sleep(0.05)
            self.tell()

    def tell(self) -> None:
        figures = {**asdict(self.take_frames()), "pid": os.getpid()}
        os.write(self.fd, f"{json.dumps(figures)}\n".encode())


def script_of(what: str) -> list[Step]:
    if what in HEAVY:
        return [step(HEAVY[what][at : at + PIECE], accepted=0) for at in range(0, len(HEAVY[what]), PIECE)]
    return rounds(long_text() if what == "answer" else SAID * 8)


def shown_at(folder: str) -> Path:
    """The time at which each round came to the screen, as float64: what a kill does not take back."""
    return Path(folder, "shown_at")


def run_chat(what: str, fd: int) -> None:
    stamps = shown_at(os.path.dirname(os.environ["LOCALSPEC_STATE_DIR"])).open("wb", buffering=0)

    def pace(event: AnyEvent) -> None:
        if isinstance(event, Step):
            time.sleep(ROUND_SECONDS)
            stamps.write(struct.pack("d", monotonic()))

    engine = ScriptedEngine(answer(*script_of(what)), before=pace)
    past = recall(None) if what == "past" else None
    paper = Writer(chat=past.chat if past else None)
    chat = MeasuredChat(fd, engine, recorder=HistoryRecorder(paper, NewChat("guide")), past=past)
    collect_at_rest()
    chat.run()


# --- who measures


class Measured:
    """The program in its terminal."""

    def __init__(self, what: str, folder: str) -> None:
        self.pipe, theirs = os.pipe()
        command = [sys.executable, "-m", "benchmarks.chat.program", what, str(theirs)]
        self.terminal = Terminal(command, pass_fds=(theirs,), env=within(folder))
        os.close(theirs)
        self.lines = os.fdopen(self.pipe)
        self.pid = int(self.next_figures()["pid"])

    def next_figures(self) -> dict[str, Any]:
        return json.loads(self.lines.readline())  # type: ignore[no-any-return]

    def figures(self) -> dict[str, Any]:
        """The figures since the last call."""
        os.kill(self.pid, signal.SIGUSR1)
        return self.next_figures()

    def quiet(self) -> None:
        size = -1
        while size != (size := self.terminal.size):
            sleep(REST_SECONDS)

    def echo_ms(self, key: str) -> float:
        since, pressed = self.terminal.size, monotonic()
        self.terminal.type(key)
        return 1000 * (self.terminal.wait(key, PATIENCE_SECONDS, since=since) - pressed)

    def shown_ms(self, key: str) -> float:
        """Milliseconds from a key until the program begins to draw what it brings."""
        since, pressed = self.terminal.size, monotonic()
        self.terminal.type(key)
        self.terminal.wait("\x1b", PATIENCE_SECONDS, since=since)
        return 1000 * (monotonic() - pressed)

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.terminal._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def pages(self) -> list[float]:
        taken = []
        for _ in range(PAGES):
            taken.append(self.shown_ms(PAGE_UP))
            self.quiet()
        return taken

    @property
    def resident(self) -> str:
        return f"{psutil.Process(self.pid).memory_info().rss / 2**20:,.0f} MiB"


@contextmanager
def measured(what: str, folder: str) -> Iterator[Measured]:
    program = Measured(what, folder)
    try:
        yield program
    finally:
        program.terminal.close()


if __name__ == "__main__":
    run_chat(sys.argv[1], int(sys.argv[2]))
