"""The files by which `ps` and `stop` find servers: their user's alone, and of processes that are what they were."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from time import time

import msgspec
import psutil
import pytest

from localspec.core import paths
from localspec.serve import registry
from localspec.serve.registry import Running


def server(pid: int, started: float, **fields: float) -> Running:
    return Running(pid, started, "http://127.0.0.1:11535", "guide", **{"since": time(), **fields})


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.communicate()


def noted(child: subprocess.Popen[bytes]) -> Running:
    return server(child.pid, psutil.Process(child.pid).create_time())


def test_a_server_is_listed_while_it_runs():
    own = server(os.getpid(), registry.own_start())
    registry.write(own)
    assert registry.running() == [own]
    registry.remove(own.pid)
    assert registry.running() == []
    registry.remove(own.pid)


def test_only_its_user_reads_the_file():
    registry.write(server(os.getpid(), registry.own_start()))
    (file,) = paths.serving_dir().iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(paths.serving_dir().stat().st_mode) == 0o700


def test_a_file_that_others_could_write_is_not_believed():
    registry.write(server(os.getpid(), registry.own_start()))
    (file,) = paths.serving_dir().iterdir()
    file.chmod(0o666)
    assert registry.running() == []


def test_a_process_that_got_the_number_later_is_not_the_server(sleeper: subprocess.Popen[bytes]):
    other = msgspec.structs.replace(noted(sleeper), started=psutil.Process(sleeper.pid).create_time() - 60)
    registry.write(other)
    assert registry.running() == []
    assert not list(paths.serving_dir().iterdir())
    registry.stop(other)
    assert sleeper.poll() is None


def test_a_server_that_was_killed_is_not_listed(sleeper: subprocess.Popen[bytes]):
    registry.write(noted(sleeper))
    sleeper.kill()
    sleeper.wait()
    assert registry.running() == []


@pytest.mark.parametrize("pid", [0, -1, 1 << 40])
def test_a_number_that_no_server_has_is_signalled_to_nobody_else(pid: int):
    registry.stop(server(pid, 0.0))
    assert not registry.is_there(server(pid, 0.0))


@pytest.mark.parametrize("content", [b"", b"[]", b'{"pid": "1"}', b"\xff\xff", b"[" * 100_000])
def test_a_damaged_file_is_no_server(content: bytes):
    file = paths.serving_dir() / "7.json"
    file.touch(0o600)
    file.write_bytes(content)
    assert registry.running() == []


def test_stop_ends_the_process_and_waits_for_it(sleeper: subprocess.Popen[bytes]):
    registry.write(noted(sleeper))
    registry.stop(noted(sleeper))
    assert sleeper.wait() != 0
    assert registry.running() == []


def test_the_oldest_server_comes_first(sleeper: subprocess.Popen[bytes]):
    late, early = noted(sleeper), server(os.getpid(), registry.own_start(), since=5.0)
    registry.write(late)
    registry.write(early)
    assert [one.pid for one in registry.running()] == [early.pid, late.pid]
