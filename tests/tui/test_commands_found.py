"""Commands are found by what they do, in the palette and by whoever mistypes one."""

from __future__ import annotations

import pytest

from localspec.tui.control.command_search import relevance, unknown
from localspec.tui.control.commands import COMMANDS


def found(typed: str) -> list[str]:
    """The commands that the palette shows for what is typed, the best first."""
    scores = {command.name: relevance(command, typed) for command in COMMANDS.values()}
    return [name for name in sorted(scores, key=lambda name: -scores[name]) if scores[name]]


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("temperature", "set"),
        ("faster", "spec"),
        ("regenerate", "retry"),
        ("context", "fit"),
        ("system", "system"),
        ("export", "export"),
        ("theme", "theme"),
        ("colour", "theme"),
        ("download", "model"),
        ("quit", "bye"),
        ("shortcuts", "keys"),
        ("memory", "fit"),
        ("/tok", "tokens"),
        ("system prompt", "system"),
        ("benchm", "bench"),
    ],
)
def test_a_command_is_found_by_what_it_does(typed: str, first: str):
    assert found(typed)[0] == first


@pytest.mark.parametrize(("typed", "among"), [("delete", "chats"), ("rename", "chats"), ("quant", "model")])
def test_what_a_list_does_leads_to_it(typed: str, among: str):
    assert among in found(typed)


@pytest.mark.parametrize("typed", ["smol", "zzz", "tmprtr", ""])
def test_letters_here_and_there_are_no_word(typed: str):
    assert found(typed) == []


def test_every_command_has_words_for_what_it_does():
    assert all(command.keywords for command in COMMANDS.values())


@pytest.mark.parametrize("typed", ["qui", "quitt", "exi", "byee", "quant", "quot"])
def test_nobody_is_advised_to_leave_for_a_slip_of_the_finger(typed: str):
    _, advice = unknown(typed).split(".", 1)
    for leaving in ("/quit", "/exit", "/bye"):
        assert leaving not in advice


@pytest.mark.parametrize(
    ("typed", "advised"),
    [
        ("spek", "Did you mean /spec?"),
        ("themes", "Did you mean /theme?"),
        ("modle", "Did you mean /model?"),
        ("hlep", "Did you mean /help?"),
        ("temperature", "Try /set or /preset."),
        ("regenerate", "Try /retry."),
    ],
)
def test_the_command_that_was_meant_is_named(typed: str, advised: str):
    assert f"There is no command /{typed}. {advised} Type //" in unknown(typed)


@pytest.mark.parametrize("typed", ["nonsense", "hello", "path"])
def test_a_word_that_is_like_none_is_likened_to_none(typed: str):
    assert unknown(typed) == f"There is no command /{typed}. Type // to begin a message with a slash."
