"""Several processes that would make the same file: one makes it, and nobody waits for one that is gone or stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.core import build_lock as module
from localspec.core.build_lock import making
from localspec.core.drain import drain

pytestmark = pytest.mark.skipif(module.fcntl is None, reason="there are no such locks")
MAKER = """
import sys
from pathlib import Path
from localspec.core.build_lock import making
with making(Path(sys.argv[1])) as one:
    list(one.wait())
    print("making", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which is making tmp_path / file."""
    command = [sys.executable, "-c", MAKER, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "making\n"
        yield process
        process.kill()


def test_nobody_waits_where_nobody_makes_it(tmp_path: Path):
    with making(tmp_path / "file") as one:
        assert list(one.wait()) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_maker_that_dies_is_waited_for_no_longer(end: int, maker: subprocess.Popen[str], tmp_path: Path):
    with making(tmp_path / "file") as one:
        waiting = one.wait()
        next(waiting)
        next(waiting)
        maker.send_signal(end)
        maker.wait()
        assert list(waiting) == []
        assert one.taken()
    assert list(tmp_path.iterdir()) == []


def test_a_maker_that_was_stopped_is_waited_for_only_so_long(
    maker: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))
    monkeypatch.setattr(module, "sleep", lambda _: None)
    os.kill(maker.pid, signal.SIGSTOP)
    with making(tmp_path / "file") as one:
        assert 0 < len(list(one.wait())) < 10  # and it ends
        assert not one.taken()
    assert (tmp_path / "file.lock").exists()  # it is the other's


def test_a_maker_that_shows_life_is_waited_for_as_long_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ten times as long as silence would be."""
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr(module, "monotonic", lambda: next(clock))
    monkeypatch.setattr(module, "sleep", lambda _: None)
    times = iter(range(1, 1000))
    monkeypatch.setattr(
        module.os, "utime", lambda file: os.truncate(file, next(times))
    )  # a sign that no clock is needed for
    monkeypatch.setattr(module.BuildLock, "_sign", lambda one: os.fstat(one._lock).st_size)

    def steps() -> Iterator[int]:
        yield from range(100)

    with making(tmp_path / "file") as maker, making(tmp_path / "file") as other:
        assert list(maker.wait()) == []
        waiting = other.wait()
        for _ in maker.alive(steps()):
            next(waiting)
    with pytest.raises(StopIteration):
        next(waiting)


def test_what_a_maker_gives_is_given_on(tmp_path: Path):
    def steps() -> Iterator[int]:
        yield 1
        return "made"

    with making(tmp_path / "file") as one:
        assert drain(one.alive(steps())) == "made"


@pytest.mark.parametrize("file", [None, Path("/dev/null/file"), Path("/proc/file")])
def test_where_there_is_no_lock_nobody_waits(file: Path | None):
    with making(file) as one, making(file) as other:
        assert [*one.wait(), *other.wait()] == []


def test_a_disk_without_locks_lets_everybody_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(module.fcntl, "flock", no_locks)
    with making(tmp_path / "file") as one, making(tmp_path / "file") as other:
        assert [*one.wait(), *other.wait()] == []
