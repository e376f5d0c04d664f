"""A terminal without a screen: a program runs in it, keys go in, what it writes comes out with the time it came."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from types import MappingProxyType

from localspec.core.errors import EngineError

COLUMNS, ROWS = 120, 40
READ_BYTES = 1 << 16


class Terminal:
    """Runs `command` until `close`. It never answers the queries that programs send to terminals."""

    def __init__(
        self, command: Sequence[str], *, pass_fds: Sequence[int] = (), env: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._written = bytearray()
        self._changed = threading.Condition()
        self._over = False
        self.began = monotonic()
        self._process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            pass_fds=pass_fds,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **env},
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait(self, text: str, seconds: float, *, since: int = 0) -> float:
        """Waits until the program has written this, after its first `since` bytes; returns when that was."""
        wanted = text.encode()
        with self._changed:
            found = self._changed.wait_for(lambda: self._over or self._written.find(wanted, since) >= 0, seconds)
            if not found or self._written.find(wanted, since) < 0:
                raise EngineError(f"The program never wrote {text!r}.", hint="Run it by hand to see why.")
        return monotonic()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        with self._changed:
            return len(self._written)

    def close(self) -> None:
        """End the program and whatever it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)  # its process has not been waited for, so the group is there
        self._process.wait()
        self._reader.join()
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, READ_BYTES)
            except OSError:  # Linux says so when the other end is closed
                data = b""
            with self._changed:
                self._written += data
                self._over = not data
                self._changed.notify_all()
            if not data:
                return
