"""A chat leaves the history whole: to read, to keep, to train on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from localspec.history import FORMATS, Format, History, NewChat, OpenChat, export
from localspec.history.export import WholeChat, WholeMessage
from tests.history_made_here import ROUNDS, answer, chat, reply

MARKDOWN = """\
# A [/nope] tale

guide · {day}

## System

Be brief.

## You

Once?

## guide (stopped)

Drafts `it`.
"""


@pytest.fixture
def history() -> Iterator[History]:
    with History() as opened:
        yield opened


@pytest.fixture
def tale(history: History) -> OpenChat:
    question = history.begin(NewChat("guide", "A [/nope]\ntale", system="Be brief."), "Once?")
    reply(history, question, "another branch")
    written = reply(history, question, "")
    history.save(written.id, answer("Drafts `it`.", finish="cancelled"))
    return history.open(question.chat_id)


def test_markdown_is_the_branch_that_is_shown(history: History, tale: OpenChat):
    assert export(tale, history.steps, "md") == MARKDOWN.format(day=tale.chat.created_at[:10])


def test_json_has_every_branch_and_every_round(history: History, tale: OpenChat):
    whole = msgspec.json.decode(export(tale, history.steps, "json"), type=WholeChat)
    assert whole.chat == tale.chat
    assert [each.message for each in whole.messages] == list(tale.tree.nodes.values())
    assert [each.steps for each in whole.messages] == [(), (), ROUNDS]


def test_a_line_of_jsonl_is_a_message_of_json(history: History, tale: OpenChat):
    lines = export(tale, history.steps, "jsonl").splitlines()
    whole = msgspec.json.decode(export(tale, history.steps, "json"), type=WholeChat)
    assert tuple(msgspec.json.decode(line, type=WholeMessage) for line in lines) == whole.messages


def test_openai_is_what_the_model_was_told_in_one_line(history: History, tale: OpenChat):
    (line,) = export(tale, history.steps, "openai").splitlines()
    assert json.loads(line) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Once?"},
            {"role": "assistant", "content": "Drafts `it`."},
        ]
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_a_chat_without_anything_is_still_a_file(history: History, kind: Format):
    question = chat(history, "gone", title=" ")[0]
    history.delete_message(question.id)
    text = export(history.open(question.chat_id), history.steps, kind)
    assert text == "" or text.endswith("\n")


@pytest.mark.parametrize(("kind", "lines"), [("jsonl", 2), ("openai", 1)])
def test_no_text_breaks_a_line_of_the_file(history: History, kind: Format, lines: int):
    question = chat(history, "a\u2028b\r\nc\0\x1b[31m", "\n\n")[0]
    text = export(history.open(question.chat_id), history.steps, kind)
    assert text.count("\n") == lines
    assert len(text.encode().splitlines()) == lines
