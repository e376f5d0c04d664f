"""What the chat lets a look-up copy from: answers on other branches, their files, turns that were left out; and other
chats only where the user allows it."""

from __future__ import annotations

import pytest

from localspec.config.tables import Config, LookupTable
from localspec.core.requests import Message, Reference
from localspec.history import Attachment, History
from localspec.tui.chat.conversation import Conversation, Utterance
from localspec.tui.chat.copy_sources import elsewhere
from localspec.tui.control.tuning import Tuning
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.chats import chat
from tests.support.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.heavy

BYE = "Hello there, world. Bye."
A, B = Attachment("a.txt", text="the fox"), Attachment(None, text="the dog")


def turn(talk: Conversation, question: str, text: str, *files: Attachment) -> tuple[Utterance, Utterance]:
    asked = talk.ask(question, files)
    return asked, answered(talk, asked, text)


def answered(talk: Conversation, asked: Utterance, text: str) -> Utterance:
    said = talk.answer(asked, "guide")
    said.text = text
    return said


# --- of a conversation


def test_a_retry_copies_from_the_answer_before():
    talk = Conversation("Be brief.")
    turn(talk, "zero", "nought")
    asked, _ = turn(talk, "one", "first")
    answered(talk, asked, "")
    before = (Message("user", "zero"), Message("assistant", "nought"), Message("user", "one"))
    assert elsewhere(talk) == [Reference("branch", "one (1 of 2)", "first", before)]


def test_the_newest_branch_comes_first_and_what_is_shown_is_none():
    talk = Conversation()
    asked, first = turn(talk, "one", "first")
    turn(talk, "two", "then")
    answered(talk, asked, "second")
    assert [(one.name, one.text) for one in elsewhere(talk)] == [("two", "then"), ("one (1 of 2)", "first")]
    talk.show(first)
    assert [(one.name, one.text) for one in elsewhere(talk)] == [("one (2 of 2)", "second")]


def test_a_conversation_without_branches_has_nothing_elsewhere():
    talk = Conversation()
    turn(talk, "one", "first", A)
    talk.ask("two")
    assert elsewhere(talk) == []


def test_turns_that_were_left_out_of_the_context_are_copied_from_with_their_files():
    talk = Conversation()
    turn(talk, "one", "first", A, B)
    turn(talk, "two", "second")
    talk.ask("three")
    talk.turns_left_out = 1
    assert [(one.kind, one.name, one.text) for one in elsewhere(talk)] == [
        ("branch", "one", "first"),
        ("file", "a.txt", "the fox"),
        ("file", "Pasted text", "the dog"),
    ]


def test_a_file_that_the_model_is_sent_is_in_the_conversation_already():
    talk = Conversation()
    first, _ = turn(talk, "one", "first", A, B)
    talk.head = first.parent_id
    talk.ask("eins", (A,))
    assert [one.name for one in elsewhere(talk) if one.kind == "file"] == ["Pasted text"]


def test_a_removed_branch_is_copied_from_no_more():
    talk = Conversation()
    asked, first = turn(talk, "one", "first")
    answered(talk, asked, "second")
    talk.remove(first)
    assert elsewhere(talk) == []


# --- of the chat


async def asks(stage: Stage, text: str) -> tuple[Reference, ...]:
    """What is sent with this question."""
    count = len(stage.engine.requests)
    await stage.send(text)
    await stage.until(lambda: len(stage.engine.requests) > count)
    await stage.ready()
    return stage.engine.requests[-1].references


def allowing(*, kept_chats: bool) -> Tuning:
    return Tuning(Config(lookup=LookupTable(kept_chats=kept_chats)))


async def test_a_retry_in_the_chat_sends_the_old_answer():
    async with open_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        assert await asks(stage, "hi") == ()
        (sent,) = await asks(stage, "/retry")
        assert (sent.kind, sent.text, sent.before) == ("branch", BYE, (Message("user", "hi"),))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("allowed", [False, True])
async def test_kept_chats_are_copied_from_only_where_the_user_allows_it(history: History, allowed: bool):
    chat(history, "one", "first", title="A tale")
    async with kept_chat(ScriptedEngine(HELLO, HELLO), tuning=allowing(kept_chats=allowed)) as stage:
        sent = await asks(stage, "hi")
        assert [(one.kind, one.name, one.text) for one in sent] == [("chat", "A tale", "first")] * allowed
        await stage.until(lambda: stage.chat.chats.chat_id)
        assert len(await asks(stage, "and")) == allowed, "the running chat is none of them"


async def test_a_chat_that_was_deleted_meanwhile_is_copied_from_no_more(history: History):
    gone = chat(history, "one", "first")[0].chat_id
    async with kept_chat(ScriptedEngine(HELLO, HELLO), tuning=allowing(kept_chats=True)) as stage:
        assert await asks(stage, "hi")
        history.delete(gone)
        assert await asks(stage, "and") == ()


async def test_without_a_history_nothing_is_read(history: History):
    chat(history, "one", "first")
    async with open_chat(ScriptedEngine(HELLO), tuning=allowing(kept_chats=True)) as stage:
        assert await asks(stage, "hi") == ()
