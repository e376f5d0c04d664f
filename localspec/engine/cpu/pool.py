"""Threads that run one compiled pass together: the caller leads, the others wait for a job, awake and then asleep.

Knows the table of a job's address, and nothing of what the job computes.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any, Final  # Any: ctypes' functions have no public type

import numpy as np

from localspec.core.errors import EngineError
from localspec.engine.cpu import layout as at
from localspec.engine.cpu.program import Program

RUN: Final = 0
SERVE: Final = 1
SUMMON: Final = 2
LINE: Final = 64  # bytes of a cache line
MOST_THREADS: Final = 64  # the workers to wake are the bits of one number


class Pool:
    """A pool of `threads`, the caller's included. `run` returns when all of them are done."""

    def __init__(self, program: Program, table: np.ndarray, threads: int) -> None:
        self.program, self.threads = program, threads
        self._table = table  # the job's, kept alive for as long as a worker may look at it
        self.job = table.ctypes.data
        self._memory = np.zeros(at.STATE + 64 * threads + LINE, np.uint8)
        self.sync = -(-self._memory.ctypes.data // LINE) * LINE
        self._nap, self._nap_time = system_nap()
        write(self.sync + at.THREADS, threads)
        write(self.sync + at.NAP, ctypes.cast(self._nap, ctypes.c_void_p).value or 0)
        write(self.sync + at.NAP_TIME, self._nap_time.ctypes.data)
        self._closing = False
        self._wake = [threading.Semaphore(0) for _ in range(threads)]
        self._workers = [threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(1, threads)]
        for worker in self._workers:
            worker.start()

    def run(self) -> None:
        """Runs the job on all threads; EngineError after an interrupt between two steps."""
        if self.torn:
            raise EngineError("The CPU engine was interrupted between two steps.", hint="Load the model again.")
        if self.threads > 1:
            self._summon()
        self.program(RUN, self.sync, self.job)

    @property
    def torn(self) -> bool:
        """True after an interrupt between summoning the workers and leading them: they wait for ever."""
        return read(self.sync + at.GO) != read(self.sync + at.FINISHED)

    def close(self) -> None:
        """Ends the workers; the pool cannot be used again."""
        if self._workers and not self.torn:
            self._closing = True
            write(self.job + at.ROWS, at.STOP)
            self._summon()
            for worker in self._workers:
                worker.join()
            self._workers = []

    def _summon(self) -> None:
        parked = self.program(SUMMON, self.sync, self.job)
        for thread in range(1, self.threads):
            if parked >> thread & 1:
                self._wake[thread].release()

    def _work(self, thread: int) -> None:
        seen = 0
        while True:
            seen = self.program(SERVE, self.sync, self.job, thread, seen)
            if self._closing:
                return
            self._wake[thread].acquire()


def read(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def write(address: int, value: int) -> None:
    ctypes.c_int64.from_address(address).value = value


def system_nap() -> tuple[Any, np.ndarray]:
    """The system's shortest sleep, some sixty microseconds, and its argument: seconds and nanoseconds."""
    if sys.platform == "win32":
        return ctypes.WinDLL("kernel32").SwitchToThread, np.zeros(2, np.int64)  # takes nothing: its naps are far longer
    return ctypes.CDLL(None).nanosleep, np.array([0, 1], np.int64)
