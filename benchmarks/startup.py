"""Times what a user waits for at a start: help, first token, first paint. Prints a Markdown table of medians.

    .venv/bin/python -m benchmarks.startup

Every run is a process of its own. "first ever" has empty folders, so the configuration is checked against
transformers and the CPU engine is compiled; "cold" is any later start. First paint is the first whole screen, down to
its last line, on a pseudo-terminal.
"""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.program import Arguments, at_least, run

LOCALSPEC = str(Path(sys.executable).with_name("localspec"))
RUN = [LOCALSPEC, "run", "guide", "What is speculative decoding?"]
REPEATS = 5


def until_output(command: Sequence[str], wanted: bytes, environment: dict[str, str]) -> float:
    """Seconds from the start of a program on a terminal of 100 x 30 until it has written `wanted`."""
    screen = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    started = perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], list(command), environment | screen)
    seen = b""
    while wanted not in seen and select.select([terminal], [], [], 60)[0]:
        seen += os.read(terminal, 65536)
    seconds = perf_counter() - started
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(terminal)
    return seconds


def first_byte(command: Sequence[str], environment: dict[str, str]) -> float:
    """Seconds until the first byte of the answer is on stdout."""
    started = perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as program:
        assert program.stdout is not None
        program.stdout.read(1)
        seconds = perf_counter() - started
        program.stdout.read()
    return seconds


def medians(measure: Callable[[], float], repeats: int) -> str:
    times = [measure() for _ in range(repeats)]
    return f"{median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"


def main(words: Sequence[str]) -> None:
    parser = Arguments("startup", __doc__)
    parser.add_argument("-r", "--repeats", type=at_least(1), default=REPEATS, metavar="N", help="runs of each")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as kept:
        warm = {**os.environ, "LOCALSPEC_STATE_DIR": kept}

        def first_ever() -> float:
            with tempfile.TemporaryDirectory() as fresh:
                folders = {"LOCALSPEC_STATE_DIR": f"{fresh}/state", "LOCALSPEC_CACHE_DIR": f"{fresh}/cache"}
                return first_byte(RUN, {**os.environ, **folders})

        first_byte(RUN, warm)
        rows = {
            "`localspec --help`": lambda: first_byte([LOCALSPEC, "--help"], warm),
            "`localspec run`, first token, first ever": first_ever,
            "`localspec run`, first token, cold": lambda: first_byte(RUN, warm),
            "`localspec chat`, first paint": lambda: until_output([LOCALSPEC, "chat"], b"Send", warm),
        }
        print("| start | median (range) |\n|---|---|")
        for name, measure in rows.items():
            print(f"| {name} | {medians(measure, given.repeats)} |", flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
