"""The engine in a child process: it answers, stops, dies and is closed, and the parent always hears the end of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.events import AnyEvent, Done, Failure, Loading, Notice, Prefill, Ready, Step
from localspec.core.requests import EarlyExit, GenerateRequest, LoadRequest, Message, SamplingOptions
from localspec.loading.self_check import config
from localspec.runtime import failures, worker
from localspec.runtime.slots import Slots
from localspec.runtime.worker import EngineProcess
from tests.core.test_sanitize import FORBIDDEN
from tests.support import failing_gpu
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

GREEDY = SamplingOptions(temperature=0)
LONG = GenerateRequest(prompt="The quick brown fox", max_tokens=400, sampling=GREEDY)
SHORT = GenerateRequest(messages=(Message("user", "hello there"),), max_tokens=6, sampling=GREEDY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML)


@pytest.fixture
def request_of(folder: Path) -> Callable[..., LoadRequest]:
    """A load whose verdict is remembered, so that no child imports transformers."""
    key = config.fingerprint(json.loads((folder / "config.json").read_text()))
    paths.self_checks_file().write_text(json.dumps({key: 0.0}))

    def make(draft: str | EarlyExit = "early-exit:2", k: str = "2") -> LoadRequest:
        return LoadRequest.of(str(folder), draft=draft, k=k, threads=1)

    return make


@pytest.fixture
def engine(request_of: Callable[..., LoadRequest], warm_engines: None) -> Iterator[EngineProcess]:  # noqa: ARG001
    process = EngineProcess(request_of())
    process.start()
    yield process
    process.close()


def until(events: Iterator[AnyEvent], *kinds: type[AnyEvent]) -> list[AnyEvent]:
    """Events up to and with the first of these kinds, or all there are."""
    seen = []
    for event in events:
        seen.append(event)
        if isinstance(event, kinds):
            break
    return seen


def text_of(events: list[AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Step))


def test_it_loads_answers_cancels_and_lives_on_after_an_error(engine: EngineProcess):
    events = engine.events()
    *before, ready = until(events, Ready)
    assert isinstance(ready, Ready)
    assert {type(event) for event in before} == {Loading, Notice}  # exits nobody trained
    assert engine.pid not in (None, os.getpid())

    engine.ask(SHORT)
    first = until(events, Done)
    assert isinstance(first[0], Prefill)
    assert isinstance(first[-1], Done)
    assert first[-1].stats.predicted_n == 6

    engine.ask(SHORT)
    engine.cancel()  # before its first event
    cancelled = until(events, Done)[-1]
    assert isinstance(cancelled, Done)
    assert cancelled.finish_reason == "cancelled"

    engine.ask(SHORT)
    assert text_of(until(events, Done)) == text_of(first)

    engine.ask(LONG)
    until(events, Step)
    engine.cancel()
    stopped = until(events, Done)
    assert isinstance(stopped[-1], Done)
    assert stopped[-1].finish_reason in ("cancelled", "length")  # it may have been done by then

    engine.ask(GenerateRequest(prompt="x", sampling=SamplingOptions(temperature=-1)))
    assert until(events, Failure, Done) == [
        Failure("usage", "temperature -1.0 is out of range.", "Use a number from 0 to 100.", 2)
    ]
    engine.ask(GenerateRequest(prompt="a b " * 5000))
    (overflow,) = until(events, Failure, Done)
    assert isinstance(overflow, Failure)
    assert (overflow.code, overflow.exit_code) == ("context_overflow", 5)

    engine.ask(SHORT)
    assert text_of(until(events, Done)) == text_of(first)


def test_answers_asked_for_at_once_come_in_order_and_a_cancel_stops_the_last(engine: EngineProcess):
    events = engine.events()
    until(events, Ready)
    engine.ask(SHORT)
    engine.ask(SHORT)
    engine.ask(LONG)
    engine.cancel()
    reasons = [until(events, Done)[-1] for _ in range(3)]
    assert isinstance(reasons[2], Done)
    assert reasons[2].finish_reason == "cancelled"


def test_a_kill_in_an_answer_is_told_last_and_ends_the_events(engine: EngineProcess):
    events = engine.events()
    until(events, Ready)
    for _ in range(20):
        engine.ask(LONG)  # more than could be done before the kill
    until(events, Step)
    assert engine.pid
    os.kill(engine.pid, signal.SIGKILL)
    rest = list(events)
    assert isinstance(rest[-1], Failure)
    assert (rest[-1].code, rest[-1].exit_code) == ("engine_died", 1)
    assert rest[-1].hint
    assert sum(isinstance(event, Failure) for event in rest) == 1
    engine.ask(SHORT)  # says nothing, harms nobody
    engine.cancel()
    engine.close()


@pytest.mark.usefixtures("warm_engines")
def test_a_gpu_that_fails_in_an_answer_ends_the_engine_and_is_told_once(request_of: Callable[..., LoadRequest]):
    engine = EngineProcess(request_of(), failing_gpu.OPENER)
    engine.start()
    events = engine.events()
    until(events, Ready)
    engine.ask(LONG)
    engine.ask(SHORT)  # is never begun: nothing runs on that GPU any more
    rest = list(events)
    engine.close()
    assert text_of(rest)
    assert [event for event in rest if isinstance(event, Failure)] == [rest[-1]]
    assert isinstance(rest[-1], Failure)
    assert rest[-1].code == "engine_died"
    assert rest[-1].message == "The GPU failed while answering (CUDA error: device-side assert triggered)."
    assert not any(isinstance(event, Done) for event in rest)


def test_a_kill_while_loading_is_told(engine: EngineProcess):
    assert engine.pid
    os.kill(engine.pid, signal.SIGKILL)
    assert [event.code for event in engine.events() if isinstance(event, Failure)] == ["engine_died"]


def test_closing_twice_or_before_the_start_does_no_harm(request_of: Callable[..., LoadRequest]):
    never = EngineProcess(request_of())
    never.close()
    never.close()
    engine = EngineProcess(request_of())
    engine.start()
    pid = engine.pid
    engine.close()
    engine.close()
    assert pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(engine.events()) == []  # closed on purpose: nothing to tell


@pytest.mark.usefixtures("warm_engines")
def test_a_failed_start_says_why_with_its_exit_code(tmp_path: Path):
    engine = EngineProcess(LoadRequest(str(tmp_path / "nothing here")))
    engine.start()
    events = list(engine.events())
    engine.close()
    assert isinstance(events[0], Failure)
    assert (events[0].code, events[0].exit_code) == ("not_downloaded", 3)
    assert "nothing here" in events[0].message
    assert {event.code for event in events[1:] if isinstance(event, Failure)} <= {"engine_died"}


def printed(log: Path, program: str) -> str:
    """What stands in the log once a child has run this."""
    child = f"import os, sys\nfrom localspec.runtime.worker import quieten\nquieten({str(log)!r})\n{program}"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
    return log.read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full is Linux's")
def test_a_full_disk_of_the_log_stops_nothing():
    child = "import sys\nfrom localspec.runtime.worker import quieten\n"
    child += (
        "import os\nheard = os.dup(1)\nquieten('/dev/full')\nprint('lost')\nsys.stdout.flush()\nos.write(heard, b'on')"
    )
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, check=False)
    assert done.stdout == b"on"


def test_the_childs_prints_go_to_the_log(tmp_path: Path):
    program = """
print("a library prints")
print("a warning", file=sys.stderr)
os.write(1, b"native code writes\\n")
os.system("echo a child of the child")
"""
    written = printed(tmp_path / "engine.log", program)
    for words in ("a library prints", "a warning", "native code writes", "a child of the child"):
        assert words in written


def test_what_a_crash_printed_is_there_after_the_next_start(tmp_path: Path):
    """The sentence that names the log is read with a reload behind it."""
    log = tmp_path / "engine.log"
    assert "ZeroDivisionError" in printed(log, "1 / 0")
    written = printed(log, "print('the next')")
    assert written.index("ZeroDivisionError") < written.index("the next")
    assert written.count("--- 2") == 2


def test_a_log_that_is_long_is_set_aside_at_the_next_start(tmp_path: Path):
    log, aside = tmp_path / "engine.log", tmp_path / "engine.log.1"
    for size in (worker.MOST_LOG_BYTES, worker.MOST_LOG_BYTES + 1):
        log.write_text("x" * size)
        written = printed(log, "print('the next')")
        assert "the next" in written
        assert aside.exists() == ("xx" not in written) == (size > worker.MOST_LOG_BYTES)
    assert aside.stat().st_size == worker.MOST_LOG_BYTES + 1


@pytest.mark.parametrize("count", [1000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_nothing_that_drives_a_terminal_comes_into_the_log(tmp_path: Path, count: int):
    """F1: printed, warned of, and raised."""
    program = f"""
import warnings
from tests.core.test_sanitize import fuzzed
for number, text in enumerate(fuzzed(7, {count})):
    print(text, file=(sys.stdout, sys.stderr)[number % 2])
warnings.warn(chr(27) + "[31m a warning")
raise ValueError(chr(27) + "[2J the end")
"""
    written = printed(tmp_path / "engine.log", program)
    assert FORBIDDEN.isdisjoint(written), sorted(FORBIDDEN & set(written))
    assert "␛[31m a warning" in written
    assert "␛[2J the end" in written


PARENT = """
import sys
from localspec.core.events import Done, Ready
from localspec.core.requests import GenerateRequest, LoadRequest
from localspec.runtime.worker import EngineProcess

engine = EngineProcess(LoadRequest.of({folder!r}, draft="off", threads=1))
engine.start()
for event in engine.events():
    if isinstance(event, Ready):
        engine.ask(GenerateRequest(prompt="hello", max_tokens=3))
    if isinstance(event, Done):
        break
engine.close()
heavy = {{"torch", "transformers", "textual", "tokenizers", "safetensors"}} & set(sys.modules)
assert not heavy, heavy
"""


def test_the_parent_imports_nothing_heavy_and_hears_nothing_on_its_terminal(
    folder: Path, request_of: Callable[..., LoadRequest]
):
    request_of()
    program = PARENT.format(folder=str(folder))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert paths.engine_log().exists()


class Faulty:
    """As much of a Model as a slot needs."""

    decoders, is_answering = (), False

    def answer(self, *_: object) -> Iterator[AnyEvent]:
        yield Prefill(1, 2, 0)
        raise IndexError("index out of range in self")


def test_a_foreign_error_in_an_answer_is_told_and_its_details_go_to_the_log(capsys: pytest.CaptureFixture[str]):
    events: list[AnyEvent] = []
    slots = Slots(Faulty())  # type: ignore[arg-type]
    slots.start(SHORT, events.append)
    slots.step()
    assert events == [
        Prefill(1, 2, 0),
        Failure("engine", "The engine failed (IndexError).", f"Details are in {paths.engine_log()}.", 1),
    ]
    assert "index out of range" in capsys.readouterr().err
    assert slots.has_free


@pytest.mark.usefixtures("warm_engines")
def test_with_no_folder_for_the_log_it_prints_nowhere_and_runs(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_STATE_DIR", "/dev/null/x")
    assert failures.log_file() == os.devnull
    with pytest.raises(UsageError, match=r"/dev/null/x.*LOCALSPEC_STATE_DIR"):
        paths.engine_log()
    engine = EngineProcess(LoadRequest.of(str(folder), draft="off", threads=1), "tests.support.warm:open_verified")
    engine.start()
    assert isinstance(until(engine.events(), Ready, Failure)[-1], Ready)
    engine.close()
