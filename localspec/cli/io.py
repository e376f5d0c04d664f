"""Standard input, output and error: text cleaned for a terminal, JSON escaped, streams that may be closed or full.

Knows no command and nothing about what is printed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import textwrap
from io import TextIOWrapper
from pathlib import Path
from shutil import get_terminal_size
from typing import Any  # Any: JSON

from localspec.core.errors import FULL, DoesNotFit, UsageError
from localspec.core.events import AnyEvent, Notice
from localspec.core.sanitize import TABLE, clean
from localspec.core.text_file import not_utf8

STREAM = Path("-")  # stdin, or stdout, where a file may be named
ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in TABLE if chr(code) not in "\t\n"} | {0x7F: "\\u007f"}
COMMAND = re.compile(r"(?<=[:.]) (?=localspec )")  # where the command of a sentence begins
NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def mend_streams() -> None:
    """Replaces a closed stream by the null device, but for stdout: what is written there must not be lost silently.
    A character that an encoding lacks becomes a question mark."""
    for name, mode, access in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, access), mode, encoding="utf-8"))  # noqa: SIM115 - open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def read_prompt(prompt: str | None) -> str:
    """The prompt: piped input, then the argument."""
    piped = "" if sys.stdin.isatty() else read_pipe()
    text = "\n\n".join(part for part in (piped.strip("\n"), prompt or "") if part)
    if not text.strip():
        raise UsageError("There is no prompt.", hint='Try: localspec run guide "What is speculative decoding?"')
    return text


def read_pipe() -> str:
    try:
        return read_piped(hint="Give the prompt in quotes.").decode("utf-8")
    except UnicodeDecodeError as fault:
        raise not_utf8("The piped input") from fault


def read_piped(*, hint: str) -> bytes:
    """All of stdin; UsageError with the hint where it cannot be read."""
    try:
        return sys.stdin.buffer.read()
    except OSError as fault:
        raise UsageError(f"The piped input cannot be read ({fault.strerror}).", hint=hint) from fault


def print_text(text: str) -> None:
    """Prints text from outside, cleaned for a terminal."""
    print(clean(text))


def print_unchanged(text: str) -> None:
    """Prints text as it is for the program that reads the pipe; cleaned for a terminal."""
    print(clean(text) if sys.stdout.isatty() else text, end="")


def print_note(text: str) -> None:
    """Prints a remark on stderr, beside the data: wrapped as print_fitted does on a terminal, whole in a pipe."""
    print(fitted_lines(clean(text), get_terminal_size().columns if sys.stderr.isatty() else None), file=sys.stderr)


def print_notice(notice: Notice) -> None:
    print_sentence(f"{notice.level}: {notice.message} {notice.hint}".rstrip())


def print_error(sentence: str) -> None:
    print_sentence(f"error: {sentence}")


def print_os_error(fault: OSError) -> int:
    """Prints why the output, or a file, failed; returns the exit code."""
    if fault.filename is None and fault.errno in FULL:
        print_error(f"The output cannot be written: the disk is full ({fault.strerror}). Free some space.")
        return DoesNotFit.exit_code
    if fault.filename is None and fault.errno == errno.EBADF:
        print_error("The output is closed, so nothing can be written to it.")
    else:
        print_error(f"{fault.filename or 'The output'} cannot be read or written ({fault.strerror or fault}).")
    return 1


def print_sentence(sentence: str) -> None:
    """Prints a sentence on stderr: wrapped between words on a terminal, one line in a pipe."""
    text = clean(sentence)
    print(wrapped(text, get_terminal_size().columns) if sys.stderr.isatty() else text, file=sys.stderr)


def columns_of_stdout() -> int | None:
    """The width of the terminal that stdout is; None for a pipe or a file."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def print_fitted(text: str) -> None:
    """Prints text whose lines are wrapped to the terminal; a pipe gets them whole."""
    print_text(fitted_lines(text, columns_of_stdout()))


def fitted_lines(text: str, width: int | None) -> str:
    return text if width is None else "\n".join(fitted(line, width) for line in text.splitlines())


def fitted(line: str, width: int) -> str:
    """A line within this width, wrapped at words below its indentation. A command at its end gets a line of its own,
    which is never broken: it is there to be copied."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    words, *command = COMMAND.split(line, maxsplit=1)
    lines = textwrap.wrap(words, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join([*lines, *(f"{indent}{one}" for one in command)])


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most `width` characters; a longer word, such as a path, stays whole."""
    lines = (textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) for line in text.splitlines())
    return "\n".join("\n".join(line) for line in lines)


def print_event(event: AnyEvent) -> None:
    """Prints an event as a line of JSON, at once."""
    from localspec.runtime.stats import to_dict  # here: --help does without

    print(as_json(to_dict(event)), flush=True)


def as_json(value: Any) -> str:
    """The value as one line of JSON."""
    return safe_json(json.dumps(value, ensure_ascii=False))


def safe_json(text: str) -> str:
    """JSON with every code point escaped that drives a terminal or that stdout cannot encode."""
    escaped = text.translate(ESCAPES)
    if (sys.stdout.encoding or "utf-8").lower() == "utf-8":
        return escaped
    return NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], escaped)


def discard_output() -> None:
    """Discards what is still buffered; else Python would try to write it again, and complain, when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
