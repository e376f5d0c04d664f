"""The program, started in no time and measured: each run is a fork of one process that has imported everything.

`python -m tests.attacks.warm_program` reads a line of JSON for each run and answers with one. All else is as users
have it: the words of a command line, a process, its exit code, what it prints.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from localspec.core.limits import address_space

TOP = Path(__file__).parents[2]
GUARD_BYTES = 3 << 30  # of address space beyond what it begins with: an attack must not fill the machine of a test
HANG_SECONDS = 120  # by the clock: of a run that takes no time of the processor, and never ends
GUARD_SECONDS = 30  # of the processor: it is ended then


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended. `seconds` are the processor's, `peak_bytes` the most that was resident in one process; both of
    all the processes that it started and waited for."""

    code: int
    out: str
    err: str
    seconds: float
    peak_bytes: int


class WarmProgram:
    """Runs `localspec` with some words, in an environment."""

    def __init__(self, folder: Path) -> None:
        """`folder` takes what is printed."""
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=TOP
        )

    def run(self, *words: str, environment: dict[str, str]) -> Ran:
        orders, answers = self._server.stdin, self._server.stdout
        assert orders is not None
        assert answers is not None
        order = {"words": words, "environment": environment, "folder": str(self._folder)}
        print(json.dumps(order), file=orders, flush=True)
        return Ran(**json.loads(answers.readline()))

    def close(self) -> None:
        self._server.communicate()


def main() -> None:
    import_everything()
    gc.freeze()  # else a fork's first collection would copy all of it
    for line in sys.stdin:
        order = json.loads(line)
        ran = run(order["words"], order["environment"], Path(order["folder"]))
        print(json.dumps(asdict(ran)), flush=True)


def import_everything() -> None:
    """And compile the engine, where no start has done so before."""
    from transformers.models.llama import modeling_llama  # noqa: F401 # what the self-check imports, in seconds

    from localspec.cli import run  # noqa: F401 # and below: what each run would import for a quarter of a second
    from localspec.cli.download import missing_model  # noqa: F401
    from localspec.engine.cpu import decoder, program  # noqa: F401
    from localspec.engine.cpu.isa import choose
    from localspec.history import references, store  # noqa: F401
    from localspec.loading import kernels  # noqa: F401
    from localspec.loading.self_check import config, cpu, formats  # noqa: F401
    from localspec.models import named_templates, sandbox  # noqa: F401
    from localspec.runtime import known_pairs, long_prompt, open  # noqa: F401
    from localspec.tui.chat import hints  # noqa: F401

    program.load(choose())


def run(words: list[str], environment: dict[str, str], folder: Path) -> Ran:
    out, err = folder / "out", folder / "err"
    child = os.fork()
    if child == 0:
        become_program(words, environment, out, err)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(HANG_SECONDS)
    _, status, used = os.wait4(child, 0)
    signal.alarm(0)
    return Ran(
        os.waitstatus_to_exitcode(status),
        out.read_text(errors="replace"),
        err.read_text(errors="replace"),
        used.ru_utime + used.ru_stime,
        used.ru_maxrss << 10,
    )


def become_program(words: list[str], environment: dict[str, str], out: Path, err: Path) -> NoReturn:
    os.environ.clear()
    os.environ.update(environment)
    for stream, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    sys.stdin, sys.argv = open(os.devnull, encoding="utf-8"), ["localspec", *words]  # noqa: SIM115
    limit(resource.RLIMIT_AS, (address_space() or 0) + GUARD_BYTES)
    limit(resource.RLIMIT_CPU, GUARD_SECONDS)
    from localspec.cli.main import main

    code = 1
    try:
        main()
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)  # tearing down all that is imported would take most of the time


def limit(what: int, most: int) -> None:
    resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


if __name__ == "__main__":
    main()
