"""Recorded answers forced on random weights: the same ids come, however they were drafted, and copies are drafted."""

from __future__ import annotations

import pytest

from benchmarks import copies
from benchmarks.recorded import REWRITE, Recorded, recorded
from localspec.engine.drafters.lookup import LookupText

pytestmark = pytest.mark.heavy

SHORT = Recorded((5, 6, 7, 8, 9, 10), (11, 12, 13, 14, 15, 16, 17, 18))


def test_an_answer_that_stands_elsewhere_is_written_from_there(monkeypatch: pytest.MonkeyPatch):
    """Every writer asserts that the recorded ids came."""
    plain, again = copies.Task("chat", SHORT), copies.Task("retry", SHORT, (LookupText("branch", "", SHORT.answer),))
    monkeypatch.setattr(copies, "tasks", lambda: [plain, again])
    shown: list[float] = []
    report = copies.measure("tiny", "int8", 1, shown.append)
    assert [line.split(" | ")[0] for line in report.splitlines()[4:]] == [
        "| chat",
        "| retry",
        "| geometric mean of the prompt kinds",
    ]
    assert shown[-1] == 1.0


def test_the_file_is_as_long_as_it_is_said_to_be():
    """Three edits of a file: most of its tokens stand in the question."""
    (text,) = recorded()[REWRITE]
    assert len(text.answer) > 350
    assert (
        len(set(zip(text.answer, text.answer[1:], strict=False)) - set(zip(text.prompt, text.prompt[1:], strict=False)))
        < 20
    )
