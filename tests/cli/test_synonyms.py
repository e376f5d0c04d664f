"""Commands of other programs are answered with ours: nobody who comes from one looks for the word."""

from __future__ import annotations

import pytest

from localspec.cli.main import cli
from localspec.cli.synonyms import ELSEWHERE, SYNONYMS
from tests.conftest import Program


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("list", "localspec ls"),
        ("models", "localspec ls"),
        ("list-models", "localspec ls"),
        ("server", "localspec serve"),
        ("search", "Ctrl+O"),
        ("compare", "There is no command 'compare'. In the chat: F6; for a model: localspec bench guide"),
        ("download", "localspec pull MODEL"),
        ("create", "localspec chat ./FILE.gguf"),
        ("start", "localspec chat"),
        ("LIST", "localspec ls"),
    ],
)
def test_a_command_of_another_program_is_answered_with_ours(typed: str, ours: str, localspec: Program):
    code, out, err = localspec(typed, "whatever")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert ours in err
    assert "No such command" not in err


@pytest.mark.parametrize("typed", [("get", "sampling.temperature"), ("list",)])
def test_config_is_read_with_show(typed: tuple[str, ...], localspec: Program):
    code, out, err = localspec("config", *typed)
    assert (code, out) == (2, "")
    assert err.endswith(f"There is no command 'config {typed[0]}'. Try: localspec config show\n")


def test_no_word_that_is_a_command_of_ours_stands_there():
    assert not {*SYNONYMS, *ELSEWHERE} & {*cli.commands}


def test_every_command_that_is_named_exists():
    for sentence in (*SYNONYMS.values(), *ELSEWHERE.values()):
        for _, said in (part.split("localspec ", 1) for part in [sentence] if "localspec " in part):
            name = said.split()[0].rstrip(",.")
            assert name in cli.commands or name.startswith("--"), sentence


def test_what_follows_a_command_of_ours_is_not_answered_so(localspec: Program):
    code, _, err = localspec("history", "list")
    assert code == 2
    assert "No such command 'list'" in err
