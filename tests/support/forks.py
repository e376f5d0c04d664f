"""Processes that start in no time: forks of one process in which all that they import is imported already.

All else is as users have it: a process of its own, a pipe, a kill. Knows nothing of what they do.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from multiprocessing import forkserver, reduction
from multiprocessing.connection import wait
from typing import Any, Protocol

PIPE, DEVNULL, TimeoutExpired = subprocess.PIPE, subprocess.DEVNULL, subprocess.TimeoutExpired


class Server(forkserver.ForkServer):
    """One for a test's process and the engines that it starts: they are given its address."""

    def __init__(self, *modules: str) -> None:
        super().__init__()
        self.set_forkserver_preload(list(modules))

    def ensure_running(self) -> None:
        if self._forkserver_pid is not None or self._forkserver_address is None:
            super().ensure_running()

    @property
    def address(self) -> str:
        self.ensure_running()
        return self._forkserver_address

    def join(self, address: str) -> None:
        """Uses that of another process, which ends it."""
        self._forkserver_address = address
        self._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)


class Program(Protocol):
    """What a fork does; it is sent there pickled."""

    def main(self, *fds: int) -> None: ...


class Fork:
    """In place of subprocess.Popen, for a program with pipes to its standard input and from its standard output."""

    def __init__(self, server: Server, program: Program, environment: dict[str, str], *fds: int) -> None:
        orders, stdin = os.pipe()
        stdout, answers = os.pipe()
        self._ended, parcel = server.connect_to_new_process([orders, answers, *fds])
        packed = io.BytesIO()
        for part in ({}, Start(program, environment)):
            reduction.dump(part, packed)
        with open(parcel, "wb") as sent:
            sent.write(packed.getbuffer())
        for end in (orders, answers):
            os.close(end)
        self.pid = forkserver.read_signed(self._ended)
        self.stdin, self.stdout = open(stdin, "wb"), open(stdout, "rb")  # noqa: SIM115 - whoever started it closes them
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._seen(0)

    def wait(self, timeout: float | None = None) -> int:
        found = self._seen(timeout)
        if found is None:
            raise TimeoutExpired("a fork", timeout or 0)
        return found

    def _seen(self, timeout: float | None) -> int | None:
        if self.returncode is None and wait([self._ended], timeout):
            self.returncode = forkserver.read_signed(self._ended)
            os.close(self._ended)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Start:
    """What the server's new process runs."""

    def __init__(self, program: Program, environment: dict[str, str]) -> None:
        self.program, self.environment = program, environment

    def _bootstrap(self, _parent: Any) -> int:
        orders, answers, *others = forkserver._forkserver._inherited_fds  # type: ignore[attr-defined]
        os.environ.clear()
        os.environ.update(self.environment)
        os.dup2(orders, 0)
        os.dup2(answers, 1)
        for end in (orders, answers):
            os.close(end)
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - the server has closed its own
        self.program.main(*others)
        return 0
