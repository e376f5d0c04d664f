"""Times the chat where it is heavy: an answer of 10,000 tokens with 500 lines of code, a chat of 1,000 messages, Esc.

    .venv/bin/python -m docs.measure_chat [answer | past | paint | stop ...]

The screen runs in a terminal of 120 x 40, fed by a scripted engine of 200 tokens a second; keys are typed into the
terminal. A frame is a stretch in which the screen's thread did not look for keys and drew something; "cpu" is what it
took of a processor, whatever else the machine did. Prints a Markdown table.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any  # Any: JSON

import psutil

from localspec.bench.terminal import Terminal
from localspec.bench.ui import CLEAR, KEYS, within
from localspec.bench.ui_report import percentile
from localspec.events import AnyEvent, Done, Failure, Prefill, Ready, Step
from localspec.history import History, NewChat, NewMessage, Writer, recall
from localspec.requests import GenerateRequest, LoadRequest, SamplingOptions
from localspec.tui import app
from localspec.tui.collecting import collect_at_rest
from localspec.tui.scribe import Scribe
from localspec.tui.watched import WatchedChat
from localspec.worker import EngineProcess
from tests.scripted_engine import ScriptedEngine, answer, rounds

TOKENS, LINES, MESSAGES = 10_000, 500, 1000
ROUND_SECONDS = 0.015  # of three tokens
PATIENCE_SECONDS, REST_SECONDS, BETWEEN_KEYS = 900.0, 0.2, 0.5
PAGES, PAINTS, STOPS, MOST_STOPS = 60, 3, 200, 2000
PAGE_UP, TOKEN_VIEW = "\x1b[5~", "\x1bOR"
PROSE = "Drafts are **checked** in one pass, and what is wrong is thrown away, so that the text `stays` the same.\n\n"
LIST = "".join(f"- item {i} of a list, with `code` in it\n" for i in range(6)) + "\n"
SAID = PROSE + LIST


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


class MeasuredChat(WatchedChat):
    """Tells what its frames took: when it is ready, when it has answered, and whenever it is sent a signal."""

    CSS_PATH = Path(app.__file__).with_name("chat.tcss")

    def __init__(self, fd: int, engine: ScriptedEngine, **kept: Any) -> None:
        super().__init__(lambda: engine, **kept)
        self.fd = fd

    def on_mount(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.tell)
        self.run_worker(self.play())

    async def play(self) -> None:
        while self.chat.phase == "loading":
            await asyncio.sleep(0.05)
        self.tell()
        while True:
            while not self.chat.answering:
                await asyncio.sleep(0.05)
            while self.chat.answering:
                await asyncio.sleep(0.05)
            self.tell()

    def tell(self) -> None:
        told = {**asdict(self.take_frames()), "pid": os.getpid()}
        os.write(self.fd, f"{json.dumps(told)}\n".encode())


def run_chat(what: str, fd: int) -> None:
    def pace(event: AnyEvent) -> None:
        if isinstance(event, Step):
            time.sleep(ROUND_SECONDS)

    text = long_text() if what == "answer" else SAID * 8
    engine = ScriptedEngine(answer(*rounds(text)), before=pace)
    past = recall(None) if what == "past" else None
    paper = Writer(chat=past.chat if past else None)
    chat = MeasuredChat(fd, engine, scribe=Scribe(paper, NewChat("guide")), past=past)
    collect_at_rest()
    chat.run()


# --- who measures


class Measured:
    """The program in its terminal."""

    def __init__(self, what: str, folder: str) -> None:
        self.pipe, theirs = os.pipe()
        command = [sys.executable, "-m", "docs.measure_chat", "--run", what, str(theirs)]
        self.terminal = Terminal(command, pass_fds=(theirs,), env=within(folder))
        os.close(theirs)
        self.lines = os.fdopen(self.pipe)
        self.pid = int(self.told()["pid"])

    def told(self) -> dict[str, Any]:
        return json.loads(self.lines.readline())  # type: ignore[no-any-return]

    def figures(self) -> dict[str, Any]:
        """Since the last time."""
        os.kill(self.pid, signal.SIGUSR1)
        return self.told()

    def quiet(self) -> None:
        size = -1
        while size != (size := self.terminal.size):
            sleep(REST_SECONDS)

    def echo_ms(self, key: str) -> float:
        since, pressed = self.terminal.size, monotonic()
        self.terminal.type(key)
        return 1000 * (self.terminal.wait(key, PATIENCE_SECONDS, since=since) - pressed)

    def shown_ms(self, key: str) -> float:
        """Until it has begun to draw what the key brings."""
        since, pressed = self.terminal.size, monotonic()
        self.terminal.type(key)
        self.terminal.wait("\x1b", PATIENCE_SECONDS, since=since)
        return 1000 * (monotonic() - pressed)

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


def row(what: str, taken: Sequence[float]) -> None:
    shown = " | ".join(f"{percentile(taken, share):.0f}" for share in (0.5, 0.95, 1.0))
    print(f"| {what} | {len(taken):,} | {shown} |", flush=True)


def frames(what: str, told: dict[str, Any]) -> None:
    row(f"{what}: frame, ms", told["wall"])
    row(f"{what}: frame, cpu ms", told["cpu"])
    row(f"{what}: longest without looking for keys, ms", [max(told["wall"] + told["idle"])])


def echoes_while_writing(program: Measured) -> list[float]:
    """Asks, and types until the answer is there."""
    program.terminal.type("go\r")
    sleep(BETWEEN_KEYS)
    taken = []
    for key in KEYS:
        taken.append(program.echo_ms(key))
        sleep(BETWEEN_KEYS)
    return taken


def measure_answer(folder: str) -> None:
    name = f"{words_in(long_text()):,} tokens"
    with measured("answer", folder) as program:
        print(f"| {name}: resident before | | {program.resident} | | |")
        row(f"{name}, being written: key to echo, ms", echoes_while_writing(program))
        frames(f"{name}, being written", program.told())
        program.terminal.type(CLEAR)
        program.quiet()
        program.figures()
        row(f"{name}, pages up: key to drawing, ms", program.pages())
        frames(f"{name}, pages up", program.figures())
        row(f"{name}, token view: key to drawing, ms", [program.shown_ms(TOKEN_VIEW)])
        program.quiet()
        frames(f"{name}, token view", program.figures())
        print(f"| {name}: resident after | | {program.resident} | | |")


def made_past(folder: str, count: int) -> None:
    for name, place in within(folder).items():
        os.environ[name] = place
    with History() as history:
        last = history.begin(NewChat("guide", title="a long chat"), "question 1")
        for number in range(2, count + 1):
            role, text = ("user", f"question {number}") if number % 2 else ("assistant", f"{SAID}Answer {number}.")
            last = history.append(NewMessage(last.chat_id, role, text, parent_id=last.id))  # type: ignore[arg-type]


def measure_past(folder: str) -> None:
    name = f"{MESSAGES:,} messages"
    made_past(folder, MESSAGES)
    with measured("past", folder) as program:
        program.quiet()
        print(f"| {name}: resident before | | {program.resident} | | |")
        program.figures()
        row(f"{name}: key to echo, ms", [program.echo_ms(key) for key in KEYS])
        program.terminal.type(CLEAR)
        program.quiet()
        program.figures()
        row(f"{name}, pages up: key to drawing, ms", program.pages())
        frames(f"{name}, pages up", program.figures())
        row(f"{name}, an answer being written: key to echo, ms", echoes_while_writing(program))
        frames(f"{name}, an answer being written", program.told())
        print(f"| {name}: resident after | | {program.resident} | | |")


def measure_paint(folder: str) -> None:
    """Of the real program, until the chat's last words are on the screen."""
    for count in (10, MESSAGES):
        home = os.path.join(folder, str(count))
        made_past(home, count)
        wall, cpu = list[float](), list[float]()
        for _ in range(PAINTS + 1):
            terminal = Terminal([sys.executable, "-m", "localspec", "chat", "--continue"], env=within(home))
            wall.append(1000 * (terminal.wait(f"Answer {count}.", PATIENCE_SECONDS) - terminal.began))
            cpu.append(1000 * sum(psutil.Process(terminal._process.pid).cpu_times()[:2]))
            terminal.close()
        row(f"`localspec chat --continue`, {count:,} messages: start to last words, ms", wall[1:])
        row(f"`localspec chat --continue`, {count:,} messages: the same, cpu ms", cpu[1:])


def until(events: Iterator[AnyEvent], *kinds: type[Any]) -> AnyEvent:
    return next(event for event in events if isinstance(event, (Failure, *kinds)))


def stopped_ms(engine: EngineProcess, events: Iterator[AnyEvent], request: GenerateRequest, after: int) -> float | None:
    """From cancel(), after so many events, to the end; None of an answer that ended by itself."""
    engine.ask(request)
    for _ in range(after):
        if not isinstance(until(events, Prefill, Step, Done), Prefill | Step):
            return None
    pressed = monotonic()
    engine.cancel()
    done = until(events, Done)
    return 1000 * (monotonic() - pressed) if isinstance(done, Done) and done.finish_reason == "cancelled" else None


def measure_stop(folder: str) -> None:
    """Of guide in a child: from cancel() in the parent to the end of the answer in it."""
    os.environ.update(within(folder))
    dice, wild = random.Random(1), SamplingOptions(temperature=2.0)
    engine = EngineProcess(LoadRequest("guide"))
    engine.start()
    events = engine.events()
    until(events, Ready)
    for what, words, most in (("an answer is written", 3, 20), ("a prompt is read", 2000, 1)):
        taken = list[float]()
        for _ in range(MOST_STOPS):
            prompt = "word " * (words + dice.randrange(words)) + str(dice.random())
            request = GenerateRequest(prompt=prompt, max_tokens=1500, sampling=wild)
            if (took := stopped_ms(engine, events, request, dice.randint(1, most))) is not None:
                taken.append(took)
            if len(taken) == STOPS:
                break
        row(f"Esc while {what}, guide: cancel to end, ms", taken)
    engine.close()


PARTS = {"answer": measure_answer, "past": measure_past, "paint": measure_paint, "stop": measure_stop}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run_chat(sys.argv[2], int(sys.argv[3]))
    else:
        print("| what | how many | median | p95 | largest |\n|---|---|---|---|---|", flush=True)
        for part in sys.argv[1:] or PARTS:
            with TemporaryDirectory() as place:
                PARTS[part](place)
