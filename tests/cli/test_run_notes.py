"""What `localspec run` says beside the answer: how it loads, to whoever watches, and a note about that once."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from localspec.cli import run
from localspec.cli.run import Output, open_quietly, references
from localspec.config import precedence
from localspec.config.tables import ChatTable, Config, LookupTable
from localspec.core import paths
from localspec.core.events import Loading, Notice
from localspec.core.requests import LoadRequest, SamplingOptions
from localspec.history import History
from tests.conftest import Program
from tests.support.chats import chat

NOTE = Notice(
    "info",
    "format",
    "The weights are stored as 8-bit numbers (int8, 139 MB): smaller and faster.",
    "Exact but slower: --quant fp32",
)
WARNING = Notice("warning", "device", "The GPU is not used.")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: LoadRequest) -> Iterator[Loading | Notice]:
        yield from (Loading("loading weights", 1, 2), NOTE, WARNING)

    monkeypatch.setattr(run, "load_events", load)
    monkeypatch.setattr("localspec.cli.progress.PATIENCE_SECONDS", 0.0)


def said(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, *, model: str = "small", verbose: bool = False) -> str:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stderr)
        open_quietly(LoadRequest(model), Output(verbose=verbose))
    return " ".join(stderr.getvalue().split())


def test_a_pipe_gets_neither_progress_nor_notes_but_warnings(monkeypatch: pytest.MonkeyPatch):
    assert said(monkeypatch, io.StringIO()) == "warning: The GPU is not used."


def test_a_terminal_gets_a_note_about_a_model_once(monkeypatch: pytest.MonkeyPatch):
    first = said(monkeypatch, Terminal())
    assert "loading weights" in first
    assert NOTE.message in first
    again = said(monkeypatch, Terminal())
    assert NOTE.message not in again
    assert WARNING.message in again
    assert NOTE.message in said(monkeypatch, Terminal(), model="another")


def test_verbose_says_all_of_it_each_time_and_in_a_pipe_too(monkeypatch: pytest.MonkeyPatch):
    for _ in range(2):
        told = said(monkeypatch, io.StringIO(), verbose=True)
        assert "loading weights 50 %" in told
        assert NOTE.message in told


ALLOWED = Config(lookup=LookupTable(kept_chats=True))


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        (ALLOWED, ["first"]),
        (Config(), []),
        (Config(lookup=ALLOWED.lookup, chat=ChatTable(history=False)), []),
    ],
)
def test_kept_chats_are_copied_from_only_where_the_user_allows_it(history: History, settings: Config, sent: list[str]):
    chat(history, "one", "first")
    assert [one.text for one in references(settings)] == sent


def test_where_there_is_no_history_none_is_made():
    assert references(ALLOWED) == ()
    assert not paths.history_file().exists()


def test_a_history_that_cannot_be_read_is_no_reason_not_to_answer():
    paths.history_file().parent.mkdir(parents=True, exist_ok=True)
    paths.history_file().mkdir()
    assert references(ALLOWED) == ()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, False),
        ({"draft": "off", "k": 4}, False),
        ({"k": 0}, False),
        ({"draft": "lookup"}, True),
        ({"k": 4}, True),
        ({"mode": "on"}, True),
    ],
)
def test_for_beams_no_drafter_is_loaded_and_who_asked_for_one_hears_it(
    asked: dict[str, Any], told: bool, capsys: pytest.CaptureFixture[str]
):
    load = run.without_drafts(LoadRequest("small", **asked), Output())
    assert (load.draft, load.k, load.mode) == ("off", "auto", "auto")
    assert ("Nothing is drafted while beams are searched." in capsys.readouterr().err) is told


def test_beams_take_the_penalty_of_files_and_all_that_a_flag_says():
    files = (
        precedence.SamplingSource("config.toml", SamplingOptions(temperature=0.7, top_p=0.9, repetition_penalty=1.1)),
    )
    assert run.sampling(SamplingOptions(), files, beams=1) == files[0].options
    assert run.sampling(SamplingOptions(top_k=3), files, beams=2) == SamplingOptions(top_k=3, repetition_penalty=1.1)


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("Name one colour.", "The model comes first: localspec run MODEL PROMPT"),
        ("gude", "did you mean 'guide'?"),
        ("./my model", "There is no folder or file ./my model. Use the built-in model"),
        ("my model.gguf", "my model.gguf"),
    ],
)
def test_a_prompt_in_the_place_of_the_model_is_answered_with_where_it_stands(model: str, hint: str, localspec: Program):
    code, out, err = localspec("run", model)
    assert (code, out, hint in err) == (3, "", True)
    assert ("comes first" in err) == ("comes first" in hint)
