"""What every test runs under: one thread, a state folder of its own, and no network."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from localspec.history import History

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

Program = Callable[..., tuple[int, str, str]]
LOOPBACK = ("127.0.0.1", "::1", "localhost")
WHOLE = re.compile(r"^pytestmark = .*\bheavy\b", re.MULTILINE)
NUMBERS = count()  # of the tests of this process
HALF_AN_HOUR = 1800  # a hang still fails; a full figure on a busy machine does not


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make quick` need not read what it leaves out whole; None is for all else to decide."""
    if "not heavy" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return True if WHOLE.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_to_slow(items)
    heavy = {item.path for item in items if item.get_closest_marker("heavy")}
    items.sort(key=lambda item: item.path not in heavy)  # what takes long begins first: no core waits for it at the end
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(HALF_AN_HOUR))


def leave_to_slow(items: list[pytest.Item]) -> None:
    """Of a test that is `sampled(n)`, `make test` runs every nth case, the first of them among those."""
    counted = Counter[str]()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is None or item.get_closest_marker("slow"):
            continue
        function = item.nodeid.partition("[")[0]
        if counted[function] % sampled.args[0]:
            item.add_marker(pytest.mark.slow)
        counted[function] += 1


def pytest_collection_finish() -> None:
    """Torch and its like stay to the end: no collection need walk through them, nor one come every 700 objects."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="module", autouse=True)
def what_is_loaded_stays() -> None:
    """The chat collects with every question, and would walk through all that the files before this one imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def folder_of_the_test(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not there until the test writes in it. Pytest's own makes one for each, numbered after all others, and removes
    them at the end of a later run: of ten thousand, in a minute and a half."""
    return tmp_path_factory.getbasetemp() / f"test-{next(NUMBERS)}"


@pytest.fixture
def tmp_path(folder_of_the_test: Path) -> Path:
    """As pytest's."""
    folder_of_the_test.mkdir(mode=0o700, exist_ok=True)  # where a fixture has kept a chat before
    return folder_of_the_test


@pytest.fixture(autouse=True)
def own_state_folder(folder_of_the_test: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Verdicts, calibration, logs, chats, settings and fetched models of a test are its own; children inherit them."""
    own = folder_of_the_test
    monkeypatch.setenv("LOCALSPEC_STATE_DIR", str(own / "state"))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(own / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(own / "config"))
    monkeypatch.setenv("HF_HUB_CACHE", str(own / "hub"))
    monkeypatch.setenv("HF_XET_CACHE", str(own / "xet"))  # hf_xet writes a log as soon as it is imported
    for variable in ("OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.setenv(variable, str(own / variable.lower()))
    monkeypatch.setattr("localspec.models.gguf.stores.home", lambda: own / "home")
    return own / "state"


@pytest.fixture
def one_state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one start has checked and measured, the next need not: all who ask for this have one folder."""
    monkeypatch.setenv("LOCALSPEC_STATE_DIR", str(tmp_path_factory.getbasetemp() / "one-state"))


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers takes seconds to import, and the engine's check a fifth of one with every load. test_self_check.py
    is about both."""
    monkeypatch.setattr("localspec.loading.kernels.verify_config", lambda _: None)
    monkeypatch.setattr("localspec.loading.self_check.cpu.verify_packed", lambda *_: None)


@pytest.fixture
def warm_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines in child processes have torch from the start. Elsewhere than on Linux a fork of it may not run."""
    if sys.platform == "linux":
        monkeypatch.setattr("localspec.runtime.worker.SPAWN", importlib.import_module("tests.support.warm").FORKS)


@pytest.fixture(autouse=True)
def warm_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are made in forks of one process: a new one would import for a seventh of a second with every model that
    is opened. Whoever is about the sandbox has a fixture of this name that leaves it alone."""
    if sys.platform == "linux":
        warm = importlib.import_module("tests.support.warm_sandbox")
        monkeypatch.setattr("localspec.models.sandbox.subprocess", warm)


@pytest.fixture
def warm_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hub's processes are forks of one: a new one would import for six tenths of a second."""
    if sys.platform == "linux":
        warm = importlib.import_module("tests.support.warm_hub")
        monkeypatch.setattr("localspec.hub.process.subprocess", warm)


@pytest.fixture(autouse=True)
def no_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests keeps what is on their clipboard."""
    monkeypatch.setenv("SSH_CONNECTION", "a test")
    for name in ("TMUX", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def history() -> Iterator[History]:
    """The history in the test's own folder, empty at first."""
    from localspec.history import History

    with History() as opened:
        yield opened


@pytest.fixture
def read_only() -> Iterator[pytest.MonkeyPatch]:
    """The disk with the history cannot be written, not even by root; until this is undone."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with pytest.MonkeyPatch.context() as disk:
        disk.setattr("localspec.history.open_file.os.open", refuse)
        disk.setattr("localspec.history.open_file.os.access", lambda *_: False)
        yield disk


@pytest.fixture
def localspec(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """The program in this process, given these words: its exit code, and what it prints where. Without stdin: as Python
    begins where that is closed."""
    from localspec.cli.main import main

    def program(*words: str | Path, stdin: bytes | None = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin)))
        monkeypatch.setattr(sys, "argv", ["localspec", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        sys.stdin.close()
        shown = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, shown.out, shown.err

    return program


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets reach this machine and nothing else (I1)."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex

    def guarded(real: Any) -> Any:
        def call(self: socket.socket, address: Any) -> Any:
            if self.family != getattr(socket, "AF_UNIX", None) and address[0] not in LOOPBACK:
                raise AssertionError(f"a test tried to reach the network: {address!r}")
            return real(self, address)

        return call

    monkeypatch.setattr(socket.socket, "connect", guarded(connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(connect_ex))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Opening a model chooses a count of threads for the whole process; every test begins with one."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
