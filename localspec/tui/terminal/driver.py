"""Reads the terminal's input as messages: Textual's own reading, with pastes taken out before its parser sees them.

That parser leaves a paste at an ESC inside it, and the rest then runs as keys: a newline would send. Knows no widgets.
"""

from __future__ import annotations

import os
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from contextlib import suppress
from selectors import EVENT_READ, SelectSelector
from signal import SIGHUP
from threading import Event
from time import monotonic
from typing import Any, TextIO  # Any: what Textual makes a driver with

from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.linux_inline_driver import LinuxInlineDriver
from textual.events import CursorPosition, Key, Paste
from textual.message import Message

POLL_SECONDS = 0.1  # as Textual: how late an Esc alone, or the end of the program, may be noticed
READ_BYTES = 1 << 16
PASTE_SILENCE_SECONDS = 3.0  # a paste whose end never comes must not keep the keyboard for ever
OVERLAP = len(BRACKETED_PASTE_START) - 1  # so much of a mark may stand in what came before
CLEAR = "\x1b[2J"
TITLE, KEEP_TITLE, OLD_TITLE = "\x1b]2;{}\x07", "\x1b[22;2t", "\x1b[23;2t"
OLD_KEYS = {  # from terminals without the kitty protocol; Textual reads an Enter, which sends, and control characters
    "\x1b\r": "alt+enter",
    "\x1b[25~": "f13",
    "\x1b[26~": "f14",
    "\x1b[28~": "f15",
    "\x1b[29~": "f16",
}
MODIFIERS = ("shift", "alt", "alt+shift", "ctrl", "ctrl+shift", "alt+ctrl", "alt+ctrl+shift")  # xterm's 2 to 8


class TerminalParser(XTermParser):
    """One Paste for all that stands between the marks, however it was cut into reads."""

    def __init__(self, debug: bool = False) -> None:
        self._before = ""  # the end of the keys that came last
        self._pasted: str | None = None  # so far, while a paste is open
        self._heard = 0.0
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        self._heard = monotonic()
        if not data:
            yield from self._end_paste()
            yield from map(heard, super().feed(data))
        while data:
            if self._pasted is None:
                keys, data = self._keys_of(data)
                yield from map(heard, super().feed(keys))
            else:
                data, ended = self._paste_of(self._pasted, data)
                yield from self._end_paste() if ended else ()

    def tick(self) -> Iterable[Message]:
        if monotonic() - self._heard > PASTE_SILENCE_SECONDS:
            yield from self._end_paste()
        yield from super().tick()

    def _keys_of(self, data: str) -> tuple[str, str]:
        """The data up to the mark that opens a paste, and the rest."""
        keys, mark, _ = (self._before + data).partition(BRACKETED_PASTE_START)
        length = len(keys + mark) - len(self._before)
        self._before = "" if mark else keys[-OVERLAP:]
        self._pasted = "" if mark else None
        return data[:length], data[length:]

    def _paste_of(self, pasted: str, data: str) -> tuple[str, bool]:
        """The text after the mark that closes the paste, and whether the mark has come."""
        whole = pasted + data
        end = whole.find(BRACKETED_PASTE_END, max(0, len(pasted) - OVERLAP))
        self._pasted = whole if end < 0 else whole[:end]
        return ("", False) if end < 0 else (whole[end + len(BRACKETED_PASTE_END) :], True)

    def _end_paste(self) -> Iterable[Message]:
        if self._pasted is not None:
            pasted, self._pasted = self._pasted, None
            for _ in super().feed(BRACKETED_PASTE_END):  # closes the paste that Textual saw open, an empty one
                pass
            yield Paste(pasted)

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[Key]:
        key = OLD_KEYS.get(sequence)
        return [Key(key, None)] if key else super()._sequence_to_key_events(sequence, alt)


def heard(message: Message) -> Message:
    """xterm and tmux send F3 with a modifier in the bytes that tell where the cursor is, which is never asked where
    these could be the answer: in the first row, beside its first column."""
    if isinstance(message, CursorPosition) and message.y == 0 and 0 < message.x <= len(MODIFIERS):
        return Key(f"{MODIFIERS[message.x - 1]}+f3", None)
    return message


class Lasting:
    """A terminal that may be gone: a chat that is ending then still writes to it, and must not wait or fail there."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.fileno = file.fileno

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux and macOS, reading through the parser above; bytes that are not UTF-8 do no harm.

    It gives the terminal a title, and gives back the one there was.
    """

    _title = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file = Lasting(self._file)  # type: ignore[arg-type, assignment]

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self.write(KEEP_TITLE)
        self.show_title(self._title)

    def stop_application_mode(self) -> None:
        self.write(TITLE.format("") + OLD_TITLE)  # empty first: a terminal that keeps none then shows its own
        super().stop_application_mode()

    def show_title(self, title: str) -> None:
        """`title` is clean."""
        self._title = title
        if title:
            self.write(TITLE.format(title))
            self.flush()

    def run_input_thread(self) -> None:
        for message in terminal_messages(self.fileno, self.exit_event, debug=self._debug):
            self.process_message(message)


class InlineDriver(LinuxInlineDriver):
    """The driver of a chat below the shell's last line; the terminal's title is left alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._file = Lasting(self._file)  # type: ignore[arg-type, assignment]

    def write(self, data: str) -> None:
        """Textual clears as soon as the size is another, and may still draw for the one before: TerminalApp does it
        later."""
        if data != CLEAR:
            super().write(data)

    def run_input_thread(self) -> None:
        for message in terminal_messages(self.fileno, self.exit_event, debug=self._debug):
            if isinstance(message, CursorPosition):
                self.cursor_origin = message.x, message.y
            else:
                self.process_message(message)


def terminal_messages(fileno: int, over: Event, *, debug: bool) -> Iterator[Message]:
    """Yields keys, pastes and mouse events until `over` is set. A terminal that is gone hangs the program up, as its
    SIGHUP does: not every terminal sends one."""
    parser, decode = TerminalParser(debug), getincrementaldecoder("utf-8")("replace").decode
    with SelectSelector() as selector:
        selector.register(fileno, EVENT_READ)
        while not over.is_set():
            text = ""
            if selector.select(POLL_SECONDS):
                if not (read := read_from(fileno)):
                    return hang_up()
                text = decode(read)
            yield from (*(parser.feed(text) if text else ()), *parser.tick())


def read_from(terminal: int) -> bytes:
    """What the terminal has; nothing where it is gone."""
    with suppress(OSError):  # EIO, on Linux
        return os.read(terminal, READ_BYTES)
    return b""


def hang_up() -> None:
    """Ends the chat, as a terminal that is closed does."""
    os.kill(os.getpid(), SIGHUP)
