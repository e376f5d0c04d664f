"""Times the same model through the chat's pipe and screen, and through `run`, in terminals, taking turns."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from select import select
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import msgspec

from benchmarks.shapes.random_weights import BITS, SHAPES
from benchmarks.terminal import Terminal
from benchmarks.ui.forced_model import QUESTION
from benchmarks.ui.report import Played, UiReport
from localspec.bench.machine import describe_machine
from localspec.core import processor
from localspec.core.errors import DoesNotFit, EngineError
from localspec.core.main_memory import available_bytes
from localspec.core.weight_formats import ListedFormat

LOAD_SECONDS, ANSWER_SECONDS, KEY_SECONDS, PAINT_SECONDS = 900.0, 600.0, 5.0, 60.0
BETWEEN_KEYS = 0.4
KEYS = [chr(code) for code in range(0x2460, 0x2474)]  # ① to ⑳: nothing else on the screen looks like them
CLEAR, NEW_CHAT, MODELS, DOWNLOADS, CLOSE = "\x03", "\x0e", "\x0f", "3", "\x1b"
ON_DISK, QUEUE = "Tab drafters", "pause, go on"  # of the tabs' lines of keys
FIRST_PAINT = "anything…"
COPIES = 2  # of the weights: one in each program
PAINT, ANSWERS, LOAD = 1, 20, 30  # about what they take, for the progress bar
OPENER = "benchmarks.ui.forced_model:open_forced"


class Figures(msgspec.Struct, frozen=True):
    """A line from one of the programs."""

    ready: bool = False
    tokens: int = 0
    cpu_seconds: float = 0.0
    engine_seconds: float = 0.0
    frames_ms: list[float] = []
    longest_ms: float = 0.0
    changes: int = 0


FIGURES = msgspec.json.Decoder(Figures)


@dataclass(slots=True)
class Program:
    """One of the two, in its terminal, and the pipe that its figures come through."""

    terminal: Terminal
    pipe: int
    heard: bytes = b""

    def next_figures(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> Figures:
        """The next line; `meanwhile` is called again and again until it comes."""
        until = monotonic() + seconds
        while b"\n" not in self.heard:
            if monotonic() > until:
                raise EngineError("The program under measurement did not answer.", hint="Run the bench again.")
            if select([self.pipe], [], [], BETWEEN_KEYS)[0]:
                read = os.read(self.pipe, 1 << 16)
                if not read:
                    raise EngineError("The program under measurement ended.", hint="localspec chat may say why.")
                self.heard += read
            else:
                meanwhile()
        line, _, self.heard = self.heard.partition(b"\n")
        return FIGURES.decode(line)

    def forget(self) -> None:
        """Drops lines that nobody waits for: an answer is told again where it is saved again."""
        while select([self.pipe], [], [], 0)[0] and os.read(self.pipe, 1 << 16):
            pass
        self.heard = b""


@dataclass(slots=True)
class Progress:
    """How much of all is done; `tell` hears the share."""

    all: int
    tell: Callable[[float], None]
    done: int = 0

    def add(self, part: int) -> None:
        self.done += part
        self.tell(self.done / self.all)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: `repeats` answers of each program. `downloading`: a download reports its progress, and
    as many answers more are written behind the list of downloads."""

    shape: str
    kind: ListedFormat
    tokens: int
    repeats: int
    downloading: bool = False

    @property
    def asked(self) -> tuple[str, ...]:
        """The arguments of both programs."""
        return self.shape, self.kind, str(self.tokens)


def measure_ui(plan: Plan, tell: Callable[[float], None]) -> UiReport:
    """Plays as many answers of each, and as many starts, after one that is not counted."""
    need = COPIES * SHAPES[plan.shape].num_weights * BITS[plan.kind] / 8
    if need > available_bytes():
        raise DoesNotFit(
            f"Two {plan.shape} in {plan.kind} do not fit in memory.", hint="Try: python -m benchmarks.ui --shape tiny"
        )
    repeats = plan.repeats
    progress = Progress((repeats + 1) * (PAINT + ANSWERS) + COPIES * LOAD, tell)
    paints = [first_paint(progress) for _ in range(repeats + 1)][1:]
    with TemporaryDirectory() as folder:
        turns, watched, echoes = play(plan, folder, progress)
    machine = describe_machine(processor.physical_cores(), "cpu")
    runs, chats = zip(*turns[1:], strict=True)
    return UiReport(
        plan.shape,
        plan.kind,
        plan.tokens,
        repeats,
        machine,
        runs,
        chats,
        echoes,
        tuple(paints),
        watched=tuple(watched[1:]),
        downloading=plan.downloading,
    )


def play(
    plan: Plan, folder: str, progress: Progress
) -> tuple[list[tuple[Played, Played]], list[Played], tuple[float, ...]]:
    """Plays the turns of both programs, one more than are counted; returns them, those behind the list of downloads,
    and the milliseconds from key to echo in all but the first."""
    meanwhile = ("--downloading",) if plan.downloading else ()
    turns, watched, echoes = list[tuple[Played, Played]](), list[Played](), list[float]()
    with playing("benchmarks.ui.run_program", folder, *plan.asked) as run:
        progress.add(LOAD)
        with playing("benchmarks.ui.chat_program", folder, OPENER, *plan.asked, *meanwhile) as chat:
            progress.add(LOAD)
            for turn in range(plan.repeats + 1):
                turns.append(by_both(run, chat, echoes if turn else [], chat_first=turn % 2 == 0))
                watched += [behind_downloads(chat)] if plan.downloading else []
                progress.add(ANSWERS)
    return turns, watched, tuple(echoes)


def by_both(run: Program, chat: Program, echoes: list[float], *, chat_first: bool) -> tuple[Played, Played]:
    if chat_first:
        shown = by_chat(chat, echoes)
        return by_run(run), shown
    return by_run(run), by_chat(chat, echoes)


def by_run(run: Program) -> Played:
    began = monotonic()
    run.terminal.type("\n")
    return played(run.next_figures(ANSWER_SECONDS), monotonic() - began)


def by_chat(chat: Program, echoes: list[float]) -> Played:
    """One answer in a new chat, so that the prompt is always the same."""
    keys = iter(KEYS)

    def press() -> None:
        if key := next(keys, None):
            since, pressed = chat.terminal.size, monotonic()
            chat.terminal.type(key)
            echoes.append(1000 * (chat.terminal.wait(key, KEY_SECONDS, since=since) - pressed))

    began = ask(chat)
    done = played(chat.next_figures(ANSWER_SECONDS, press), monotonic() - began)
    rest(chat, CLEAR, NEW_CHAT)
    return done


def behind_downloads(chat: Program) -> Played:
    """One answer in a new chat, while the list of downloads stands over it; frames count from when it does."""
    began, since = ask(chat), chat.terminal.size
    for key, shown in ((MODELS, ON_DISK), (DOWNLOADS, QUEUE)):
        chat.terminal.type(key)
        chat.terminal.wait(shown, KEY_SECONDS, since=since)
    done = played(chat.next_figures(ANSWER_SECONDS), monotonic() - began)
    rest(chat, CLOSE, NEW_CHAT)
    return done


def ask(chat: Program) -> float:
    """Sends the question; returns when."""
    chat.forget()
    chat.terminal.type(QUESTION)
    sleep(BETWEEN_KEYS)
    began = monotonic()
    chat.terminal.type("\r")
    return began


def rest(chat: Program, *keys: str) -> None:
    """Press these one after the other, with time after each."""
    for key in keys:
        sleep(BETWEEN_KEYS)
        chat.terminal.type(key)
    sleep(BETWEEN_KEYS)


def played(found: Figures, seconds: float) -> Played:
    shown = tuple(found.frames_ms), found.longest_ms, found.changes
    return Played(found.tokens, seconds, found.cpu_seconds, found.engine_seconds, *shown)


@contextmanager
def playing(module: str, folder: str, *arguments: str) -> Iterator[Program]:
    """A program in a terminal, once it is ready; all that it keeps is kept in the folder."""
    ours, theirs = os.pipe()
    terminal = Terminal([sys.executable, "-m", module, *arguments, str(theirs)], pass_fds=(theirs,), env=within(folder))
    os.close(theirs)
    program = Program(terminal, ours)
    try:
        program.next_figures(LOAD_SECONDS)
        yield program
    finally:
        terminal.close()
        os.close(ours)


def first_paint(progress: Progress) -> float:
    """Milliseconds from the command to a prompt on the screen, of a user who has neither chats nor settings."""
    with TemporaryDirectory() as folder:
        compiled = {"PYTHONDONTWRITEBYTECODE": ""}  # as what is installed is, after the first start
        terminal = Terminal([sys.executable, "-m", "localspec", "chat"], env=within(folder) | compiled)
        try:
            return 1000 * (terminal.wait(FIRST_PAINT, PAINT_SECONDS) - terminal.began)
        finally:
            terminal.close()
            progress.add(PAINT)


def within(folder: str) -> dict[str, str]:
    """The user's own chats, settings and logs are left alone."""
    return {f"LOCALSPEC_{purpose}_DIR": os.path.join(folder, purpose) for purpose in ("STATE", "DATA", "CONFIG")}
