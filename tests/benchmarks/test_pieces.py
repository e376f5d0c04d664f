"""benchmarks.pieces: what is taken out of the chat is there, and the report counts frames as shares of a core."""

from __future__ import annotations

import re
import sys
from functools import partial

import pytest

from benchmarks.pieces.__main__ import NAMES, Report
from benchmarks.pieces.cuts import PARTS, PIECES, Instead, Without
from benchmarks.pieces.played import TEXTS
from benchmarks.program import run
from benchmarks.timed_chat import Watched
from localspec.tui.chat.repetition import Repetition

CUTS = [cut for cuts in (PIECES | PARTS).values() for cut in cuts]


def test_every_piece_can_be_named():
    assert set(NAMES) == {*PIECES, *PARTS, "all"}


def test_what_is_taken_out_is_there():
    for cut in CUTS:
        match cut:
            case Without():
                assert set(cut.names) <= vars(cut.owner).keys()
            case Instead():
                assert cut.name in vars(cut.owner)


def test_an_answer_that_repeats_itself_is_written_to_its_end():
    """The chat stops such an answer, and the frames after it would cost nothing."""
    tokens = re.findall(r"\S+\s*", TEXTS["code"])
    assert any(map(partial(Repetition().add, in_code=True), tokens))
    assert not any(map(partial(Watched().add, in_code=True), tokens))


def test_a_frame_of_25_ms_is_half_a_core():
    report = Report("long", 0, {"none": [[20.0, 30.0], [25.0]], "lists": [[50.0], [100.0]]})
    assert [(one["without"], one["share"], one["longest_ms"]) for one in report.rows()] == [
        ("none", 0.5, 27.5),
        ("lists", 1.5, 75.0),
    ]
    assert "| lists | 1.500 | 1.000 2.000 | 75.0 | 75.0 | 75.0 |" in report.to_markdown()
    assert len(report.to_csv().splitlines()) == 3


def test_a_piece_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from benchmarks.pieces.__main__ import main

    monkeypatch.setattr(sys, "argv", ["pieces", "wheels"])
    assert run(main) == 2
    assert "There is no piece 'wheels'." in capsys.readouterr().err
