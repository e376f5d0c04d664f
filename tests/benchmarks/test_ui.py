"""benchmarks.ui: the chat and `run` on one model that means nothing, seen from their terminals."""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import pytest

from benchmarks import timed_chat
from benchmarks.program import run
from benchmarks.terminal import Terminal
from benchmarks.timed_chat import Frames, TimedChat
from benchmarks.ui.__main__ import main
from benchmarks.ui.busy_hub import EVENTS_PER_SECOND, TOTAL, progress
from benchmarks.ui.chat_program import BUSY_HUB, keep_downloading
from benchmarks.ui.forced_model import QUESTION, open_forced, word
from benchmarks.ui.measure import ON_DISK, QUEUE, playing
from benchmarks.ui.report import Played, UiReport, percentile
from localspec.core import paths
from localspec.core.drain import drain
from localspec.core.errors import DoesNotFit, EngineError
from localspec.core.events import Done, Step
from localspec.core.requests import GenerateRequest, LoadRequest, Message
from localspec.history import History
from localspec.hub import process
from localspec.hub.queue import Download, DownloadQueue
from localspec.hub.records import AskPull, Go, PullRequest
from localspec.tui.screens.models import KEYS
from tests.support.chat_stage import HELLO, Stage
from tests.support.paced_hub import PacedHub
from tests.support.scripted_engine import ScriptedEngine
from tests.support.scripted_hub import a_plan

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(sys.platform == "win32", reason="terminals of Unix")]


def test_each_turn_is_compared_with_its_own_and_the_median_counts():
    runs = [Played(100, seconds, 0.0, seconds - 0.25) for seconds in (1.0, 2.0, 1.0)]
    chats = [Played(100, seconds, 0.1, seconds - 0.5, (1.0, 30.0), 40.0) for seconds in (1.25, 2.0, 2.0)]
    report = UiReport("tiny", "int8", 100, 3, {}, tuple(runs), tuple(chats), (5.0, 9.0), (400.0, 300.0, 500.0))
    assert [round(row.ratio, 3) for row in report.rows()] == [0.8, 1.0, 0.5]
    assert report.ratio == pytest.approx(0.8)
    assert [row.engine_ratio for row in report.rows()] == [1.0, pytest.approx(1.75 / 1.5), 0.5]
    assert (report.figures()["run_rest_seconds"], report.figures()["chat_rest_seconds"]) == (0.25, 0.5)
    assert report.figures()["first_paint_ms"] == 400.0
    assert (report.figures()["frame_max_ms"], report.figures()["longest_ms"]) == (30.0, 40.0)
    assert "| chat over run, median | ×0.800 | ≥ 0.95 |" in report.to_markdown()
    assert "| first paint, median | 400 ms | ≤ 500 ms |" in report.to_markdown()
    assert "| frame, p95 and max | 30 ms, 30 ms | |" in report.to_markdown()
    assert "| longest without a look for keys | 40 ms |  |" in report.to_markdown()
    assert "list of downloads" not in report.to_markdown()
    assert json.loads(report.to_json())["figures"]["echo_p95_ms"] == 9.0
    assert len(report.to_csv().splitlines()) == 4


def test_through_a_download_frames_have_a_limit_behind_its_list_too():
    """`changes` shows that the download was seen to go on."""
    chats = [Played(100, 2.0, 0.1, 1.5, (1.0, 30.0), 40.0, changes) for changes in (1, 3, 4)]
    report = UiReport(
        "tiny", "int8", 100, 3, {}, (Played(100, 2.0, 0.0, 1.5),) * 3, tuple(chats), (5.0,), (400.0,), downloading=True
    )
    lines = replace(report, watched=(Played(100, 2.0, 0.1, 1.5, (2.0, 60.0), 61.0), chats[0])).to_markdown()
    assert "| longest without a look for keys | 40 ms | ≤ 50 ms |" in lines
    assert "| changes of the download in the chat, a second | 1.5 | |" in lines
    assert "| behind the list of downloads, 4 frames: p95 and max | 45 ms, 60 ms | |" in lines
    assert "| the same: longest without a look for keys | 61 ms | ≤ 50 ms |" in lines


def test_a_frame_is_what_was_done_between_two_looks_for_keys_if_it_drew(monkeypatch: pytest.MonkeyPatch):
    """Waiting for keys is no part of it, however long."""
    now, spent, chat = 0.0, 0.0, TimedChat(ScriptedEngine)
    monkeypatch.setattr(timed_chat, "perf_counter", lambda: now)
    monkeypatch.setattr(timed_chat, "thread_time", lambda: spent)

    def select(_timeout: float | None) -> list[object]:
        nonlocal now
        now += 9.0
        return []

    look = chat.watching(select)
    for seconds, chat.drawn in [(0.5, True), (0.25, False), (0.125, True), (2.0, False)]:
        now, spent = now + seconds, spent + seconds / 2
        assert look(None) == []
    taken = chat.take_frames()
    assert taken == Frames([500.0, 125.0], [250.0, 62.5], [250.0, 2000.0])
    assert (taken.longest, chat.take_frames().longest) == (2000.0, 0.0)


async def test_what_is_drawn_is_counted_among_the_frames():
    engine = ScriptedEngine(HELLO)
    chat = TimedChat(lambda: engine)
    async with chat.run_test() as pilot:
        stage = Stage(pilot, chat, [])
        await stage.ready()
        chat.take_frames()
        await stage.asks("hi", "Bye.", "idle")
        await pilot.pause()
        taken = chat.take_frames()
    assert len(taken.wall) == len(taken.cpu) > 0
    assert taken.longest >= max(taken.wall)


def test_a_percentile_is_one_of_the_values():
    """Of a hundred the 95th is the 95th: a rank that is whole is not rounded up."""
    assert [percentile([3.0, 1.0, 2.0, 4.0], share) for share in (0.0, 0.5, 0.95, 1.0)] == [1.0, 2.0, 4.0, 4.0]
    assert percentile([float(value) for value in range(1, 101)], 0.95) == 95.0
    assert percentile([], 0.5) == 0.0


def test_a_terminal_hears_what_a_program_writes_and_says_when_it_never_does():
    terminal = Terminal([sys.executable, "-c", "print('to a tty', input(), __import__('os').isatty(1))"])
    try:
        terminal.type("typed\n")
        assert terminal.wait("to a tty typed True", 60) > terminal.began
        with pytest.raises(EngineError, match="never wrote 'more'"):
            terminal.wait("more", 60)
    finally:
        terminal.close()


def test_a_word_for_every_id():
    words = Counter(word(id) for id in range(32000))
    assert set(words.values()) == {1}


@pytest.mark.slow
def test_the_model_that_means_nothing_agrees_as_often_as_forced_and_always_says_the_same():
    model = drain(open_forced(LoadRequest.of("tiny", quant="int8", ctx=200))).first
    assert model.ready.model.sampling == {"temperature": 0.0}, "or the chat samples, and forced drafts are wrong"
    request = GenerateRequest(messages=(Message("user", QUESTION),))
    texts, accepted, drafted = set[str](), 0, 0
    for _ in range(2):
        events = list(model.answer(request))
        steps = [event for event in events if isinstance(event, Step)]
        texts.add("".join(step.text for step in steps))
        accepted, drafted = sum(s.accepted for s in steps), sum(s.accepted + len(s.rejected[:1]) for s in steps)
        assert isinstance(events[-1], Done)
        assert events[-1].stats.predicted_n == 200
    model.close()
    assert len(texts) == 1
    assert 0.7 < accepted / drafted < 0.9


def test_the_download_that_a_chat_is_measured_with_is_one_for_the_real_queue(monkeypatch: pytest.MonkeyPatch):
    """Through the real pipe, decoder and throttle."""
    monkeypatch.setattr(process, "CHILD", BUSY_HUB)
    heard: list[Download] = []
    queue = DownloadQueue(heard.append)
    try:
        queue.add(PullRequest("org/model"))
        until = monotonic() + 60
        while not any(item.done for item in heard) and monotonic() < until:
            sleep(0.01)
    finally:
        queue.close()
    assert any(item.done and item.is_running for item in heard)


def test_every_report_of_that_download_changes_what_is_shown():
    """A percent more every second, other bytes and another rate each tenth: the screen has something to draw."""
    reports = [progress(step) for step in range(60 * EVENTS_PER_SECOND)]
    percents = [100 * one.done // TOTAL for one in reports[::EVENTS_PER_SECOND]]
    assert percents == list(range(60))
    for before, after in itertools.pairwise(reports):
        assert before.done < after.done
        assert before.bytes_per_second != after.bytes_per_second
        assert before.eta_s != after.eta_s


def test_a_download_is_never_complete_however_long_the_measurement_is(monkeypatch: pytest.MonkeyPatch):
    """Another takes its turn half-way."""
    PacedHub({AskPull: [[a_plan()]], Go: [[Event()]]}).install(monkeypatch)
    queue, numbers = DownloadQueue(lambda _: None), itertools.count()
    names = lambda: [item.request.repo for item in queue.items]  # noqa: E731
    try:
        keep_downloading(queue, numbers)
        keep_downloading(queue, numbers)
        assert names() == ["org/model-0"]
        queue.drop("org/model-0")
        queue.add(PullRequest("org/late"), done=5, total=10)
        keep_downloading(queue, numbers)
        assert names() == ["org/model-1"]
    finally:
        queue.close()


def test_what_it_waits_for_is_what_the_tabs_show():
    assert ON_DISK in KEYS["disk"]
    assert QUEUE in KEYS["downloads"]


@pytest.mark.slow
def test_both_are_played_in_turn_with_the_same_tokens(
    own_state_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = "--shape tiny -n 64 -r 2 -o json --downloading"
    monkeypatch.setattr(sys, "argv", ["benchmarks.ui", *words.split()])
    assert run(main) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["tokens"] for one in (*found["runs"], *found["chats"], *found["watched"])] == [64] * 6
    assert all(0 < one["engine_seconds"] < one["seconds"] for one in (*found["runs"], *found["chats"]))
    assert len(found["paints_ms"]) == 2
    own = [own_state_folder, paths.folder("data"), paths.folder("config")]
    assert [folder for folder in own if folder.exists()] == [], "the user's are left alone"


@pytest.mark.slow
def test_the_chat_that_is_measured_saves_what_is_said(tmp_path: Path):
    asked = ("benchmarks.ui.forced_model:open_forced", "tiny", "int8", "64")
    with playing("benchmarks.ui.chat_program", str(tmp_path), *asked) as chat:
        chat.terminal.type(QUESTION)
        chat.terminal.wait(QUESTION, 60)
        chat.terminal.type("\r")
        found = chat.next_figures(600)
        assert found.tokens == 64
        assert 0 < max(found.frames_ms) <= found.longest_ms
        chat.terminal.type("\x11")
        with pytest.raises(EngineError, match="ended"):
            chat.next_figures(60)
    with History(tmp_path / "DATA" / "history.db") as history:
        question, answered = history.open(history.latest().id).branch
    assert (question.content, answered.status) == (QUESTION, "length")
    assert answered.generation
    assert answered.generation.stats.predicted_n == 64


@pytest.mark.parametrize(
    "arguments", [["--format", "int8,int4"], ["--format", "fp32"], ["--agree", "0.8"], ["-r", "0"]]
)
def test_what_it_does_not_take_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_two_models_that_do_not_fit_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["benchmarks.ui"])
    monkeypatch.setattr("benchmarks.ui.measure.available_bytes", lambda: 1)
    assert run(main) == DoesNotFit.exit_code
    assert "Try: python -m benchmarks.ui --shape tiny" in capsys.readouterr().err
