"""`localspec chat MODEL --draft WRONG`: the chat opens without a drafter if the user agrees."""

from __future__ import annotations

import pytest

from localspec.core.requests import LoadRequest
from localspec.tui.control.tuning import Tuning
from tests.conftest import Program


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[LoadRequest]:
    """What the chat was opened with."""
    loads: list[LoadRequest] = []

    def run(tuned: Tuning, *_: object, **__: object) -> int:
        loads.append(tuned.load)
        return 0

    monkeypatch.setattr("localspec.tui.app.run", run)
    return loads


@pytest.mark.parametrize("draft", ["nosuch", "early-exit:x", "./missing.gguf"])
@pytest.mark.parametrize("agreed", [True, False])
def test_a_wrong_drafter_is_left_out_if_the_user_agrees(
    draft: str, agreed: bool, opened: list[LoadRequest], localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []
    monkeypatch.setattr("localspec.cli.questions.interactive", lambda: True)
    monkeypatch.setattr("localspec.cli.questions.answered", lambda one, **_: [asked.append(one), agreed][1])
    code, _, err = localspec("chat", "guide", "--draft", draft)
    assert asked == ["Load guide without a drafter?"]
    assert draft.rpartition(":")[2].rpartition("/")[2] in err
    assert (code == 0, [load.draft for load in opened]) == (agreed, ["off"] * agreed)


def test_without_a_terminal_a_wrong_drafter_is_an_error(opened: list[LoadRequest], localspec: Program):
    code, _, err = localspec("chat", "guide", "--draft", "nosuch")
    assert (code, opened) == (3, [])
    assert "There is no model 'nosuch'" in err


@pytest.mark.parametrize("wrong", [("nosuch",), ("guide", "--threads", "0")])
def test_what_is_wrong_without_a_drafter_too_is_an_error(
    wrong: tuple[str, ...], opened: list[LoadRequest], localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("localspec.cli.questions.interactive", lambda: True)
    code, _, err = localspec("chat", *wrong, "--draft", "nosuch")
    assert (code != 0, opened) == (True, [])
    assert "without a drafter" not in err
