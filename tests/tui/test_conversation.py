"""The tree of messages in memory: what the engine is told is the branch that is shown, and the history has the same."""

from __future__ import annotations

import random

from localspec.core.requests import Message
from localspec.history import OWN, History, Writer, recall
from localspec.tui.chat.conversation import Conversation, Utterance
from localspec.tui.chat.recorder import HistoryRecorder
from localspec.tui.chat.saved_chat import conversation
from tests.support.chats import chat, reply, stats
from tests.support.scripted_engine import step


def turn(talk: Conversation, question: str, answer: str) -> tuple[Utterance, Utterance]:
    asked = talk.ask(question)
    return asked, answered(talk, asked, answer)


def answered(talk: Conversation, asked: Utterance, text: str) -> Utterance:
    said = talk.answer(asked, "guide")
    said.text = text
    return said


def texts(talk: Conversation) -> list[str]:
    return [said.text for said in talk.branch]


def told(talk: Conversation, question: Utterance) -> list[str]:
    return [message.content for message in talk.request(question).messages or ()]


def test_a_second_answer_stands_beside_the_first_and_each_has_its_own_continuation():
    talk = Conversation("Be brief.")
    asked, first = turn(talk, "one", "first")
    turn(talk, "two", "then")
    second = answered(talk, asked, "second")
    assert talk.version(first) == (1, 2)
    assert talk.version(second) == (2, 2)
    assert told(talk, talk.ask("other")) == ["Be brief.", "one", "second", "other"]
    talk.show(talk.beside(second, -1))
    assert texts(talk) == ["one", "first", "two", "then"]
    assert talk.beside(first, -1) is first
    talk.show(second)
    assert texts(talk) == ["one", "second", "other"]


def test_another_version_of_a_question_is_told_without_the_first():
    talk = Conversation()
    turn(talk, "one", "first")
    two, _ = turn(talk, "two", "second")
    talk.head = two.parent_id
    other = talk.ask("zwei")
    assert told(talk, other) == ["one", "first", "zwei"]
    assert talk.version(other) == (2, 2)
    talk.head = None
    assert told(talk, talk.ask("from the start")) == ["from the start"]


def test_a_question_without_an_answer_is_not_told():
    talk = Conversation()
    turn(talk, "lost", "")
    turn(talk, "one", "first")
    talk.ask("unanswered")
    assert told(talk, talk.ask("next")) == ["one", "first", "next"]


def test_what_is_taken_back_leaves_the_branch_it_was_asked_on():
    """Also where an older branch begins at the same answer: that one must not come up instead."""
    talk = Conversation()
    _, first = turn(talk, "one", "first")
    turn(talk, "two", "second")
    talk.head = first.id
    talk.take_back(talk.ask("no"))
    assert texts(talk) == ["one", "first"]


def test_a_deleted_message_takes_its_answers_along_on_every_branch():
    talk = Conversation()
    asked, first = turn(talk, "one", "first")
    two, _ = turn(talk, "two", "second")
    answered(talk, two, "other")
    talk.remove(two)
    assert (texts(talk), talk.head) == (["one", "first"], first.id)
    talk.remove(asked)
    assert (talk.branch, talk.head, len(talk.tree)) == ([], None, 0)


def test_a_chat_of_the_history_goes_on_with_all_its_branches():
    with History() as history:
        one, first, *_ = chat(history, "one", "first", "two", "second")
        reply(history, one, "other")
        history.set_head(one.chat_id, first.id)
    talk = conversation(recall(), None)
    assert texts(talk) == ["one", "first"]
    assert talk.version(talk.branch[1]) == (1, 2)
    talk.show(talk.beside(talk.branch[1], 1))
    asked = talk.ask("more")
    assert (told(talk, asked), asked.id >= OWN) == (["one", "other", "more"], True)
    talk.forget()
    assert talk.request(talk.ask("new")).messages == (Message("user", "new"),)


def test_whatever_is_done_the_history_has_the_same_tree():
    """Thirty chats of random steps, each opened again afterwards: texts, places and the branch that is shown."""
    for seed in range(30):
        rng, talk = random.Random(seed), Conversation()
        sink = Writer()
        recorder = HistoryRecorder(sink)
        recorder.start(lambda _: None)
        for number in range(12):
            take_step(rng, talk, recorder, f"{seed}.{number}")
        assert sink.close() is None
        if talk.tree.nodes:
            kept = conversation(recall(), None)
            assert shape(kept) == shape(talk), seed
            assert texts(kept) == texts(talk), seed
            with History() as history:
                history.delete(history.chats()[0].id)
        with History() as history:
            assert history.chats() == [], seed


def shape(talk: Conversation) -> list[list[str]]:
    return sorted([said.text for said in talk.tree.path(each)] for each in talk.tree.nodes)


def take_step(rng: random.Random, talk: Conversation, recorder: HistoryRecorder, text: str) -> None:
    """What the screen does for one key."""
    some = rng.choice(list(talk.tree.nodes.values())) if talk.tree.nodes else None
    kind = rng.choice(["say", "say", "say", "retry", "edit", "go", "show", "remove", "take back"])
    if kind == "say" or some is None:
        answer_kept(talk, recorder, ask_kept(talk, recorder, text), text)
    elif kind == "retry" and (question := talk.question(some)):
        answer_kept(talk, recorder, question, text)
    elif kind == "edit" and (question := talk.question(some)):
        talk.head = question.parent_id
        answer_kept(talk, recorder, ask_kept(talk, recorder, text), text)
    elif kind == "go":
        talk.head = rng.choice([some.id, None])
        recorder.show(talk.head)
    elif kind == "show":
        talk.show(talk.beside(some, rng.choice([-1, 1])))
        recorder.show(talk.head)
    elif kind == "remove":
        talk.remove(some)
        recorder.remove(some, talk.head)
    elif kind == "take back":
        asked = ask_kept(talk, recorder, text)
        talk.take_back(asked)
        recorder.remove(asked, talk.head)


def ask_kept(talk: Conversation, recorder: HistoryRecorder, text: str) -> Utterance:
    asked = talk.ask(text)
    recorder.ask(asked, stats())
    return asked


def answer_kept(talk: Conversation, recorder: HistoryRecorder, question: Utterance, text: str) -> None:
    recorder.answer(answered(talk, question, f"to {text}"))
    recorder.add(step(f"to {text}", accepted=0))
    recorder.end(stats(), "stop")
