"""What comes in and goes out by the three standard streams, closed, broken or full as they may be. Knows no command."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper

from localspec.cli.sentence import print_sentence
from localspec.core.errors import FULL, DoesNotFit, UsageError


def mend_streams() -> None:
    """A stream that was closed is the null device, but stdout: what is written there must not be lost without a word.
    A character that an encoding lacks is a question mark."""
    for name, mode, access in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, access), mode, encoding="utf-8"))  # noqa: SIM115 - open to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def read_prompt(prompt: str | None) -> str:
    """Piped input, then the argument."""
    piped = "" if sys.stdin.isatty() else read_pipe()
    text = "\n\n".join(part for part in (piped.strip("\n"), prompt or "") if part)
    if not text.strip():
        raise UsageError("There is no prompt.", hint='Try: localspec run guide "What is speculative decoding?"')
    return text


def read_pipe() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as fault:
        raise UsageError("The piped input is not UTF-8 text.", hint="Convert it first, with iconv say.") from fault
    except OSError as fault:
        raise UsageError(
            f"The piped input cannot be read ({fault.strerror}).", hint="Give the prompt in quotes."
        ) from fault


def complain(sentence: str) -> None:
    print_sentence(f"error: {sentence}")


def tell_of(fault: OSError) -> int:
    """What went wrong with the output, or with some file; the exit code."""
    if fault.filename is None and fault.errno in FULL:
        complain(f"The disk has no room for the output ({fault.strerror}). Free some space.")
        return DoesNotFit.exit_code
    if fault.filename is None and fault.errno == errno.EBADF:
        complain("The output is closed, so nothing can be written there.")
    else:
        complain(f"{fault.filename or 'The output'} cannot be read or written ({fault.strerror or fault}).")
    return 1


def give_up_output() -> None:
    """What is still buffered goes nowhere; else Python would try again, and complain, at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
