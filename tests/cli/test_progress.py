"""Progress on stderr: every stage is told of, and nothing that takes under a second."""

from __future__ import annotations

import io

import pytest

from localspec.cli.progress import ProgressBar, bar_line
from localspec.core.events import Loading, Notice
from localspec.tui.panels.stats_line import loading_words

CHECK = Loading("checking the configuration", 0, 1, "steps")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every start takes long enough to be told of."""
    monkeypatch.setattr("localspec.cli.progress.PATIENCE_SECONDS", 0.0)


def show(*events: Loading) -> None:
    with ProgressBar() as progress:
        for event in events:
            progress.show(event)


def weights(stage: str) -> list[Loading]:
    return [Loading(stage, done, 40) for done in range(41)]


@pytest.mark.usefixtures("patient")
def test_a_second_stage_is_told_of_as_the_first_was(capsys: pytest.CaptureFixture[str]):
    show(*weights("loading weights"), CHECK, *weights("writing weights to disk"))
    tenths = range(0, 101, 10)
    stages = ("loading weights", "writing weights to disk")
    first, second = ([f"{stage} {tenth} %" for tenth in tenths] for stage in stages)
    assert capsys.readouterr().err.splitlines() == [*first, CHECK.stage, *second]


def test_a_quick_start_prints_nothing(capsys: pytest.CaptureFixture[str]):
    show(CHECK, *weights("loading weights"))
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("patient")
def test_a_terminal_has_one_line_that_is_wiped_at_the_end(monkeypatch: pytest.MonkeyPatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    show(CHECK, Loading("loading weights", 1, 2, eta_s=3.2))
    shown = screen.getvalue()
    assert "\n" not in shown
    assert shown.split("\r\033[K") == ["", CHECK.stage, f"loading weights {'█' * 15}{'░' * 15} 50% 3 s left", ""]


@pytest.mark.usefixtures("patient")
def test_a_notice_wipes_the_bar_and_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with ProgressBar() as progress:
        progress.show(CHECK)
        progress.say(Notice("info", "format", "Loaded in int8."))
        assert screen.getvalue() == f"\r\033[K{CHECK.stage}\r\033[Kinfo: Loaded in int8.\n"


def test_no_time_left_is_not_said():
    assert bar_line(Loading("loading weights", 100, 100, eta_s=0.2)) == f"loading weights {'█' * 30} 100%"


def test_the_chat_says_the_same_words():
    assert loading_words(CHECK) == CHECK.stage
    assert loading_words(Loading("loading weights", 1, 2, eta_s=3.2)) == "loading weights 50 % · eta 3 s"


MEASURING = Loading("plain, early exit 2", 50, 100, "percent", 3.2)


@pytest.mark.usefixtures("patient")
def test_a_measurement_is_told_of_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What it would not have room for on a terminal is cut: a line that wraps could not be wiped."""
    show(MEASURING)
    assert capsys.readouterr().err == "measuring 50 % · plain, early exit 2\n"
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    show(MEASURING, Loading("long " * 40, 50, 100, "percent"))
    (_, shown, cut, _) = screen.getvalue().split("\r\033[K")
    assert shown == f"measuring {'█' * 15}{'░' * 15} 50% 3 s left · plain, early exit 2"
    assert len(cut) < 80
