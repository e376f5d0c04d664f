"""A chat leaves the history whole: to read, to keep, to train on."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest
from markdown_it import MarkdownIt

from localspec.history import FORMATS, Format, History, NewChat, OpenChat, StoredMessage, export
from localspec.history.export import closed
from localspec.history.provenance import edited_steps
from localspec.history.records import Attachment
from tests.support.chats import ROUNDS, WholeChat, WholeMessage, answer, chat, reply

MARKDOWN = """\
# A [/nope] tale

guide · {day}

## System

Be brief.

## You

Once?

## guide (stopped)

Drafts `it`.

*1 other branch is left out. To have all: export this chat as json*
"""


@pytest.fixture
def tale(history: History) -> OpenChat:
    question = history.begin(NewChat("guide", "A [/nope]\ntale", system="Be brief."), "Once?")
    reply(history, question, "another branch")
    written = reply(history, question, "")
    history.save(written.id, answer("Drafts `it`.", finish="cancelled"))
    return history.open(question.chat_id)


def test_markdown_is_the_branch_that_is_shown(history: History, tale: OpenChat):
    assert export(tale, history.steps, "md") == MARKDOWN.format(day=tale.chat.created_at[:10])


def test_markdown_has_what_was_attached_each_in_a_fence_of_its_own(history: History):
    """A long paste has no words beside it: the file would be empty."""
    files = (Attachment(path="notes.md", text="```\ncode\n```"), Attachment(text="a long paste"))
    told = history.begin(NewChat("guide", "Notes"), "Sum this.", attachments=files)
    written = export(history.open(told.chat_id), history.steps, "md")
    assert (
        "## You\n\nnotes.md:\n````\n```\ncode\n```\n````\n\nPasted text:\n```\na long paste\n```\n\nSum this."
        in written
    )


def test_json_has_every_branch_and_every_round(history: History, tale: OpenChat):
    whole = msgspec.json.decode(export(tale, history.steps, "json"), type=WholeChat)
    assert whole.chat == tale.chat
    assert [each.message for each in whole.messages] == list(tale.tree.nodes.values())
    assert [each.steps for each in whole.messages] == [(), (), ROUNDS]


def test_the_number_of_turns_left_out_keeps_the_key_that_programs_read(history: History, tale: OpenChat):
    """Its column too: a history of any version is read."""
    history.change(tale.chat.id, turns_left_out=2)
    chat = json.loads(export(history.open(tale.chat.id), history.steps, "json"))["chat"]
    assert (chat["untold"], "turns_left_out" in chat) == (2, False)


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


def test_a_chat_taken_back_to_its_beginning_is_exported_as_its_newest_branch(history: History, tale: OpenChat):
    """Its messages are all there: a file with a title alone looked as if they were lost."""
    whole = {kind: export(tale, history.steps, kind) for kind in FORMATS}
    history.set_head(tale.chat.id, None)
    again = history.open(tale.chat.id)
    assert again.branch == []
    for kind in ("md", "openai", "jsonl"):
        assert export(again, history.steps, kind) == whole[kind]  # type: ignore[arg-type]
    assert again.num_left_out == 1


def test_what_ends_elsewhere_is_counted_and_a_chat_without_branches_says_nothing(history: History):
    asked, first, _, third = chat(history, "one", "two", "three", "four")
    assert history.open(asked.chat_id).num_left_out == 0
    assert "left out" not in export(history.open(asked.chat_id), history.steps, "md")
    history.set_head(asked.chat_id, first.id)
    assert history.open(asked.chat_id).num_left_out == 1, "what followed is left out, too"
    for _ in range(2):
        reply(history, third, "more")
    history.set_head(asked.chat_id, third.id)
    assert export(history.open(asked.chat_id), history.steps, "md").endswith(
        "*2 other branches are left out. To have all: export this chat as json*\n"
    )


def test_an_edited_answer_is_exported_as_one(history: History):
    asked = chat(history, "Once?")[0]
    text = "I wrote this."
    edited = history.append(StoredMessage.unsaved(asked.chat_id, "assistant", text, asked.id, edited=len(text)))
    opened = history.open(asked.chat_id)
    assert "## Assistant (edited)\n\nI wrote this.\n" in export(opened, history.steps, "md")
    whole = msgspec.json.decode(export(opened, history.steps, "json"), type=WholeChat)
    assert (whole.messages[1].message, whole.messages[1].steps) == (edited, edited_steps(text))


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


FENCED = {
    "a fence": ("```python\ndef f():", "```"),
    "a longer fence": ("````md\n```\ninside\n```", "````"),
    "tildes": ("~~~\n```", "~~~"),
    "a fence that just began": ("Look:\n```", "```"),
    "half of its end": ("```\ncode\n``", "```"),
    "a fence after others": ("```\na\n```\n\n  ```sh\nls", "```"),
}
NOT_OPEN = {
    "a closed fence": "```\ncode\n```",
    "a fence in a list, which the next heading ends": "1. Do:\n   ```sh\n   ls",
    "a fence in a quote, likewise": "> ```\n> code",
    "a fence in a nested list": "- a\n  - b\n\n    ```\n    code",
    "a sentence about ``` fences": "Use ``` or ~~~ to fence.",
    "a fence as code": "    ```\n    code",
    "no fence": "plain",
}


def next_heading(markdown: str) -> str:
    """What a reader sees as the last heading."""
    tokens = MarkdownIt("commonmark").parse(markdown)
    return [after.content for head, after in pairwise(tokens) if head.type == "heading_open"][-1]


@pytest.mark.parametrize("text", [*(text for text, _ in FENCED.values()), *NOT_OPEN.values()])
def test_an_answer_that_stopped_in_a_code_fence_swallows_nothing(history: History, text: str):
    asked = chat(history, "How?", text, "And then?")[0]
    exported = export(history.open(asked.chat_id), history.steps, "md")
    assert next_heading(exported) == "You"
    assert exported.endswith("## You\n\nAnd then?\n")


@pytest.mark.parametrize(("text", "end"), FENCED.values(), ids=FENCED)
def test_an_open_fence_is_closed_as_it_was_opened(text: str, end: str):
    assert closed(text) == f"{text}\n{end}"


@pytest.mark.parametrize("text", NOT_OPEN.values(), ids=NOT_OPEN)
def test_a_text_without_an_open_fence_stays_as_it_is(text: str):
    assert closed(text) == text
