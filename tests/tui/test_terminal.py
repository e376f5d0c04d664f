"""What a terminal sends becomes the messages it meant, however the bytes are cut into reads."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from io import StringIO
from threading import Event
from types import SimpleNamespace
from typing import ClassVar

import pytest
from rich.cells import cell_len
from textual.drivers.headless_driver import HeadlessDriver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Paste
from textual.message import Message

from benchmarks.terminal import Terminal
from localspec.core.errors import UsageError
from localspec.tui.app import ChatApp, run
from localspec.tui.control.tuning import Tuning
from localspec.tui.screens.help import active_keys
from localspec.tui.terminal import driver as terminal
from localspec.tui.terminal.driver import InlineDriver, TerminalDriver, TerminalParser
from localspec.tui.terminal.terminal_app import ANEW
from tests.core.test_sanitize import FORBIDDEN
from tests.support.chat_stage import HELLO, Stage
from tests.support.scripted_engine import ScriptedEngine

START, END = "\x1b[200~", "\x1b[201~"
COLOURED = "\x1b[31mred\x1b[0m line\rsecond\r\x1b\x1b[200~\x1b[20\x1bOP\x03\x1b[13;2u漢 end\x1b"


def meant(parser: TerminalParser, *reads: str) -> list[str]:
    """Keys by name, pastes by what they hold."""
    return [named(message) for read in reads for message in parser.feed(read)]


def named(message: Message) -> str:
    match message:
        case Key():
            return message.key
        case Paste():
            return f"paste {message.text}"
    return type(message).__name__


def test_a_paste_is_one_message_wherever_it_is_cut():
    """Coloured logs, pasted: Textual 8 leaves the paste at the first ESC, and each newline after it sends."""
    sent = f"a{START}{COLOURED}{END}b\x1b[A\r{START}{END}{START}two{END}c"
    expected = ["a", f"paste {COLOURED}", "b", "up", "enter", "paste ", "paste two", "c"]
    assert meant(TerminalParser(), sent) == expected
    assert meant(TerminalParser(), *sent) == expected
    for cut in range(1, len(sent)):
        assert meant(TerminalParser(), sent[:cut], sent[cut:]) == expected, f"cut at {cut}"


def test_a_paste_of_a_megabyte_in_small_reads():
    text = "\x1b[31mred\x1b[0m line\n" * 50_000
    sent = START + text + END + "\r"
    reads = [sent[i : i + 1000] for i in range(0, len(sent), 1000)]
    assert meant(TerminalParser(), *reads) == [f"paste {text}", "enter"]


def test_a_paste_without_an_end_gives_the_keyboard_back(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(terminal, "monotonic", lambda: now)
    parser = TerminalParser()
    assert meant(parser, f"{START}lost\r") == []
    now += terminal.PASTE_SILENCE_SECONDS / 2
    assert [*parser.tick()] == []
    assert meant(parser, "\rmore\x1b[20") == []
    now += terminal.PASTE_SILENCE_SECONDS * 2
    assert [named(message) for message in parser.tick()] == ["paste lost\r\rmore\x1b[20"]
    assert meant(parser, f"x\x1b[A{START}next{END}") == ["x", "up", "paste next"]


def test_a_paste_at_the_end_of_input_is_not_lost():
    assert meant(TerminalParser(), f"{START}all there was", "") == ["paste all there was"]


@pytest.mark.parametrize("sent", ["\x1b\r", "\x1b[13;3u"])
def test_alt_enter_is_no_plain_enter(sent: str):
    """ESC CR is what a terminal without the kitty protocol sends; Textual reads it as Enter, which would send."""
    assert meant(TerminalParser(), sent)[0] in {"ctrl+j", "alt+enter"}
    assert meant(TerminalParser(), *sent)[0] in {"ctrl+j", "alt+enter"}


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\x1b[1;2R", "shift+f3"),  # xterm, tmux
        ("\x1b[13;2~", "shift+f3"),  # the kitty protocol
        ("\x1b[25~", "f13"),  # rxvt's Shift+F3
        ("\x1b[28~", "f15"),  # the Linux console's
        ("\x1b[1;3R", "alt+f3"),
        ("\x1b[1;6R", "ctrl+shift+f3"),
        ("\x1bOR", "f3"),
        ("\x1b[13~", "f3"),
        ("\x1b[15~", "f5"),
        ("\x1b[1;3A", "alt+up"),
    ],
)
def test_keys_are_known_by_what_terminals_send(sent: str, key: str):
    assert meant(TerminalParser(), sent) == [key]
    assert meant(TerminalParser(), "a" + sent, "b") == ["a", key, "b"]


@pytest.mark.parametrize("sent", ["\x1b[1;1R", "\x1b[2;2R", "\x1b[1;9R", "\x1b[24;80R"])
def test_where_the_cursor_is_is_no_key(sent: str):
    assert meant(TerminalParser(), sent) == ["CursorPosition"]


class Recording:
    """Reads a pipe until `stop` is pressed, and posts nothing."""

    def __init__(self, fileno: int) -> None:
        self.fileno, self._debug, self.exit_event, self.heard = fileno, False, Event(), []

    def process_message(self, message: Message) -> None:
        self.heard.append(named(message))
        if self.heard[-1] == "full_stop":
            self.exit_event.set()


class RecordingDriver(Recording, TerminalDriver):
    pass


class RecordingInline(Recording, InlineDriver):
    pass


@pytest.mark.parametrize("recording", [RecordingDriver, RecordingInline])
def test_the_chat_reads_through_that_parser_and_bytes_that_are_not_utf8_do_no_harm(recording: type[Recording]):
    """A strict decoder would raise in the input thread, which ends the program."""
    assert ChatApp(ScriptedEngine).get_driver_class() is TerminalDriver
    out, into = os.pipe()
    os.write(into, START.encode() + b"caf\xe9 \x1b[1m!\r" + END.encode() + b"\xff.")
    driver = recording(out)
    driver.run_input_thread()
    assert driver.heard == ["paste caf\ufffd \x1b[1m!\r", "replacement_character", "full_stop"]
    os.close(out)
    os.close(into)


@pytest.mark.parametrize("recording", [RecordingDriver, RecordingInline])
def test_a_terminal_that_is_gone_ends_the_program(recording: type[Recording], monkeypatch: pytest.MonkeyPatch):
    """It is ready to be read for ever, and has nothing: the thread would read a core hot, and the screen wait on it."""
    signals: list[int] = []
    monkeypatch.setattr(terminal.os, "kill", lambda _, number: signals.append(number))
    out, into = os.pipe()
    os.write(into, b"x")
    os.close(into)
    driver = recording(out)
    driver.run_input_thread()
    assert (driver.heard, signals) == (["x"], [signal.SIGHUP])
    os.close(out)


class Gone(StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.EIO, text)

    def flush(self) -> None:
        self.write("")

    def fileno(self) -> int:
        return 2


@pytest.mark.parametrize("driver", [TerminalDriver, InlineDriver])
async def test_what_is_written_to_a_terminal_that_is_gone_raises_nothing(
    driver: type[TerminalDriver | InlineDriver], monkeypatch: pytest.MonkeyPatch
):
    """A driver's thread would end with the first error, and the chat, which is ending, wait for it for ever."""
    monkeypatch.setattr(sys, "__stderr__", Gone())
    written = driver(ChatApp(ScriptedEngine))._file
    written.write("x")
    written.flush()


class WritingDriver(TerminalDriver):
    """What a terminal would be sent."""

    def __init__(self) -> None:
        self.written = ""

    def write(self, data: str) -> None:
        self.written += data

    def flush(self) -> None:
        pass


def test_the_terminal_gets_a_title_and_its_old_one_back(monkeypatch: pytest.MonkeyPatch):
    """Kept when the chat begins, or goes on after it was suspended; given back before the screen is."""
    for mode in ("start", "stop"):
        monkeypatch.setattr(LinuxDriver, f"{mode}_application_mode", lambda self, mode=mode: self.write(f"<{mode}>"))
    driver = WritingDriver()
    driver.start_application_mode()
    driver.show_title("idle · What is a draft?")
    driver.stop_application_mode()
    driver.start_application_mode()
    titled = "\x1b]2;idle · What is a draft?\x07"
    assert driver.written == f"<start>\x1b[22;2t{titled}\x1b]2;\x07\x1b[23;2t<stop><start>\x1b[22;2t{titled}"


class TitledDriver(HeadlessDriver):
    titles: ClassVar[list[str]] = []

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        pass

    def show_title(self, title: str) -> None:
        self.titles.append(title)


class InlineHeadless(HeadlessDriver):
    """Inline, on no terminal."""

    @property
    def is_headless(self) -> bool:
        return False

    @property
    def is_inline(self) -> bool:
        return True

    def write(self, data: str) -> None:
        pass


async def test_inline_is_read_by_a_driver_of_ours():
    assert type(ChatApp(ScriptedEngine)._build_driver(False, inline=True, mouse=True, size=None)) is InlineDriver


async def test_inline_there_are_the_transcript_and_the_prompt_only():
    app = ChatApp(lambda: ScriptedEngine(HELLO))
    app.driver_class = InlineHeadless
    async with app.run_test(headless=False, size=(130, 40)) as pilot:
        stage = Stage(pilot, app, [])
        await stage.ready()
        await stage.sees("Ask anything…", "idle")
        await stage.write("hi")
        await stage.pilot.press("enter")
        await stage.sees("▌ hi", "Hello there, world. Bye.")
        assert app.screen._compositor.size.height == 24
        shown = [type(widget).__name__ for widget in app.chat.walk_children() if widget.size.height and widget.display]
        assert {"Header", "KeysLine", "Sidebar", "SpeedPanel"}.isdisjoint(shown)


async def test_inline_in_another_size_it_is_drawn_anew_and_not_for_the_size_before(monkeypatch: pytest.MonkeyPatch):
    """A terminal wraps what is too wide for it, and the rows that this takes would stay."""
    written: list[str] = []
    monkeypatch.setattr(InlineHeadless, "write", lambda _, data: written.append(data))
    app = ChatApp(lambda: ScriptedEngine(HELLO))
    app.driver_class = InlineHeadless
    async with app.run_test(headless=False, size=(100, 40)) as pilot:
        stage = Stage(pilot, app, [])
        await stage.ready()
        await stage.asks("hi", "Bye.")
        assert widest(written) == 100
        assert ANEW not in written
        for width in (70, 90):
            written.clear()
            await pilot.resize_terminal(width, 40)
            await stage.until(lambda: ANEW in written)
            await stage.until(lambda size=width: widest(written[written.index(ANEW) :]) == size)
            assert written.count(ANEW) == 1


def widest(written: list[str]) -> int:
    """Cells of the widest line that was drawn."""
    plain = re.sub("\x1b\\[[0-9;?]*[A-Za-z]", "", "\n".join(written))
    return max(map(cell_len, plain.split("\n")), default=0)


def test_inline_does_not_clear_as_soon_as_the_size_is_another():
    class Writing(InlineDriver):
        def __init__(self) -> None:
            self._file = StringIO()

    driver = Writing()
    driver.write("\x1b[2J")
    driver.write("text")
    assert driver._file.getvalue() == "text"


async def test_inline_the_page_of_keys_has_none_that_would_leave_the_terminal():
    app = ChatApp(lambda: ScriptedEngine(HELLO))
    async with app.run_test(size=(100, 40)) as pilot:
        await Stage(pilot, app, []).ready()
        assert {"Ctrl+Z", "Ctrl+G"} <= {keys for keys, _ in active_keys(app.chat)}
    app = ChatApp(lambda: ScriptedEngine(HELLO))
    app.driver_class = InlineHeadless
    async with app.run_test(headless=False, size=(100, 40)) as pilot:
        await Stage(pilot, app, []).ready()
        assert {"Ctrl+Z", "Ctrl+G"}.isdisjoint(keys for keys, _ in active_keys(app.chat))


@pytest.mark.heavy
def test_inline_leaves_what_is_on_the_screen():
    """Neither another screen nor a clear one."""
    terminal = Terminal([sys.executable, "-m", "localspec", "chat", "--inline", "--no-history"])
    try:
        terminal.wait("anything…", 120)
        terminal.type("\x11")
        terminal.wait("\x1b[?25h", 60)  # the cursor is back
        written = bytes(terminal._written)
    finally:
        terminal.close()
    assert b"\x1b[?1049h" not in written
    assert b"\x1b[2J" not in written


async def test_no_question_can_end_the_title_it_becomes():
    app = ChatApp(lambda: ScriptedEngine(HELLO))
    app.driver_class = TitledDriver
    async with app.run_test(headless=False) as pilot:
        stage = Stage(pilot, app, [])
        await stage.ready()
        app.chat.prompt.text = "a\x07\x1b]52;c;aGk=\x07\x9c\u202e[/nope]"
        await pilot.press("enter")
        await stage.sees("Bye.", "idle")
    assert "idle · localspec" in TitledDriver.titles
    assert "[/nope]" in TitledDriver.titles[-1]
    assert FORBIDDEN.isdisjoint("".join(TitledDriver.titles))


@pytest.mark.parametrize(
    ("is_terminal", "term", "named"),
    [(False, "xterm", "needs a terminal."), (True, "dumb", "TERM is dumb"), (True, None, "TERM is not set")],
)
def test_without_a_full_screen_the_chat_names_the_command_that_needs_none(
    is_terminal: bool, term: str | None, named: str, monkeypatch: pytest.MonkeyPatch
):
    """A dumb terminal would be sent hundreds of escapes that it shows as they are."""
    with monkeypatch.context() as patch:
        for stream in ("stdin", "stdout", "stderr"):
            patch.setattr(sys, stream, SimpleNamespace(isatty=lambda: is_terminal))
        patch.delenv("TERM", raising=False)
        if term is not None:
            patch.setenv("TERM", term)
        with pytest.raises(UsageError, match='localspec run guide "your question"') as refused:
            run(Tuning())
    assert named in refused.value.message
    assert refused.value.exit_code == 2
