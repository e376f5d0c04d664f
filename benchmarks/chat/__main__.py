"""Times the chat where it is heavy: an answer of 10,000 tokens with 500 lines of code, a chat of 1,000 messages, text
that no person writes, a storm of sizes, Esc.

    .venv/bin/python -m benchmarks.chat [PART ...]

Prints a Markdown table; chat/program.py says of what.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
from collections.abc import Iterator, Sequence
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any  # Any: kinds of events, JSON

import psutil

from benchmarks.chat.program import HEAVY, PATIENCE_SECONDS, SAID, Measured, long_text, measured, shown_at, words_in
from benchmarks.program import Arguments, run
from benchmarks.terminal import Terminal
from benchmarks.ui.measure import CLEAR, KEYS, within
from benchmarks.ui.report import percentile
from localspec.core.events import AnyEvent, Done, Failure, Prefill, Ready, Step
from localspec.core.requests import GenerateRequest, LoadRequest, SamplingOptions
from localspec.history import History, NewChat, StoredMessage
from localspec.runtime.worker import EngineProcess

MESSAGES = 1000
BETWEEN_KEYS = 0.5
PAINTS, OPENINGS, STOPS, MOST_STOPS = 3, 5, 200, 2000
SIZES, BETWEEN_SIZES = 100, 0.05
KILLS, KILLED_AFTER = 20, (2.5, 7.0)
TOKEN_VIEW, SIDEBAR, NEW_CHAT = "\x1bOR", "\x02", "\x0e"


def row(what: str, taken: Sequence[float]) -> None:
    shown = " | ".join(f"{percentile(taken, share):.0f}" for share in (0.5, 0.95, 1.0))
    print(f"| {what} | {len(taken):,} | {shown} |", flush=True)


def frames(what: str, found: dict[str, Any]) -> None:
    row(f"{what}: frame, ms", found["wall"])
    row(f"{what}: frame, cpu ms", found["cpu"])
    row(f"{what}: longest without looking for keys, ms", [max(found["wall"] + found["idle"])])


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
        frames(f"{name}, being written", program.next_figures())
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
            last = history.append(StoredMessage.unsaved(last.chat_id, role, text, parent_id=last.id))  # type: ignore[arg-type]


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
        frames(f"{name}, an answer being written", program.next_figures())
        print(f"| {name}: resident after | | {program.resident} | | |")


def measure_open(folder: str) -> None:
    """Times from Enter in the sidebar to the chat's last words, and back again by a new chat."""
    made_past(folder, MESSAGES)
    taken = list[float]()
    with measured("open", folder) as program:
        for _ in range(OPENINGS):
            program.terminal.type(SIDEBAR)
            program.quiet()
            since, pressed = program.terminal.size, monotonic()
            program.terminal.type("\r")
            taken.append(1000 * (program.terminal.wait(f"Answer {MESSAGES}.", PATIENCE_SECONDS, since=since) - pressed))
            program.quiet()
            program.terminal.type(NEW_CHAT)
            program.quiet()
        row(f"{MESSAGES:,} messages, opened in the sidebar: Enter to last words, ms", taken)


def measure_heavy(folder: str) -> None:
    for what in HEAVY:
        with measured(what, folder) as program:
            program.terminal.type("go\r")
            found = program.next_figures()
            program.quiet()
            frames(what, {name: taken + found[name] for name, taken in program.figures().items() if name != "pid"})


def measure_storm(folder: str) -> None:
    dice = random.Random(7)
    with measured("answer", folder) as program:
        program.terminal.type("go\r")
        for _ in range(SIZES):
            program.resize(dice.randint(1, 200), dice.randint(1, 60))
            sleep(BETWEEN_SIZES)
        frames(f"{SIZES} sizes while 10,000 tokens are written", program.figures())


def measure_kill(folder: str) -> None:
    """How long before a kill -9 the last round that was kept came to the screen."""
    dice, lost = random.Random(3), list[float]()
    for number in range(KILLS):
        home = os.path.join(folder, str(number))
        os.mkdir(home)
        with measured("answer", home) as program:
            program.terminal.type("go\r")
            sleep(dice.uniform(*KILLED_AFTER))
            os.kill(program.pid, signal.SIGKILL)
        os.environ.update(within(home))
        with History() as history:
            answer = history.open(history.chats(limit=1)[0].id).branch[-1]
            kept = len([*history.steps(answer.id)])
        stamps = [stamp for (stamp,) in struct.iter_unpack("d", shown_at(home).read_bytes())]
        lost.append(1000 * (stamps[-1] - stamps[kept - 1]))
    row("killed while an answer is written: what is lost of it, ms", lost)


def measure_paint(folder: str) -> None:
    """Times the real program until the chat's last words are on the screen."""
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
    """Time from cancel(), after so many events, to the end; None for an answer that ended by itself."""
    engine.ask(request)
    for _ in range(after):
        if not isinstance(until(events, Prefill, Step, Done), Prefill | Step):
            return None
    pressed = monotonic()
    engine.cancel()
    done = until(events, Done)
    return 1000 * (monotonic() - pressed) if isinstance(done, Done) and done.finish_reason == "cancelled" else None


def measure_stop(folder: str) -> None:
    """Times guide in a child, from cancel() in the parent to the end of the answer in it."""
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


PARTS = {
    "answer": measure_answer,
    "past": measure_past,
    "open": measure_open,
    "heavy": measure_heavy,
    "storm": measure_storm,
    "kill": measure_kill,
    "paint": measure_paint,
    "stop": measure_stop,
}


def main(words: Sequence[str]) -> None:
    parser = Arguments("chat", __doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; default: all")
    given = parser.parse_args(words)
    if unknown := [part for part in given.parts if part not in PARTS]:
        parser.error(f"'{unknown[0]}' is not one of {', '.join(PARTS)}")
    print("| what | how many | median | p95 | largest |\n|---|---|---|---|---|", flush=True)
    for part in given.parts or PARTS:
        with TemporaryDirectory() as folder:
            PARTS[part](folder)


if __name__ == "__main__":
    sys.exit(run(main))
