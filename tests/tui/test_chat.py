"""Turns of the chat, driven by keys against an engine that replays events."""

from __future__ import annotations

import pytest
from textual import events

from localspec.core.events import Loading, Notice
from localspec.core.requests import Message
from localspec.tui.chat.conversation import Conversation
from localspec.tui.control import turns as turn
from localspec.tui.panels.prompt import Prompt
from localspec.tui.panels.stats_line import loading_words
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.question import Question
from tests.support.chat_stage import HELLO, open_chat
from tests.support.scripted_engine import READY, ScriptedEngine, answer, step


async def test_an_answer_streams_with_its_figures_and_ends_with_them():
    async with open_chat(ScriptedEngine(HELLO, paused=True)) as stage:
        await stage.sees("loading", "Ask anything.")
        stage.engine.permit(1)
        await stage.sees("idle", "localspec · guide · int8 ⇐ guide-draft, auto · cpu")
        await stage.send("hi")
        await stage.sees("You", "hi", "reading prompt")
        assert "Ask anything." not in stage.seen
        stage.engine.permit(1)
        await stage.sees("reading 12 of 12 tokens")
        stage.engine.permit(1)
        await stage.sees("Hello there", "80.0 tok/s   ×–", "generating ", "ctx 14/8,192 0 %")
        stage.engine.permit()
        await stage.sees(
            "Hello there, world. Bye.", "6 tokens · first token 0.21 s · 50 % of 6 drafted accepted", "×–", "idle"
        )
        assert [said.text for said in stage.chat.conversation.branch] == ["hi", "Hello there, world. Bye."]


async def test_the_speed_up_shows_once_there_are_ten_plain_rounds():
    script = answer(*(step(f"{i} ", accepted=0) for i in range(10)), *(step("a ", "b ", "c ") for _ in range(4)))
    async with open_chat(ScriptedEngine(script)) as stage:
        await stage.send("hi")
        await stage.sees("×1.47", "67 % of")


async def test_a_message_sent_while_the_model_loads_is_answered_when_it_is_ready():
    opening = [Loading("loading weights", 62, 100, eta_s=8.0), READY]
    async with open_chat(ScriptedEngine(HELLO, opening=opening, paused=True)) as stage:
        stage.engine.permit(1)
        await stage.sees("loading weights 62 % · eta 8 s")
        await stage.send("early")
        await stage.sees("You · queued", "early")
        await stage.pilot.press("escape")  # taken back, then sent again
        await stage.until(lambda: stage.chat.prompt.text == "early" and not stage.chat.query(Question))
        await stage.pilot.press("enter")
        assert not stage.engine.requests
        stage.engine.permit()
        await stage.sees("Bye.", "idle")
        assert "queued" not in stage.seen


def test_no_time_left_is_not_said():
    assert loading_words(Loading("loading weights", 100, 100, eta_s=0.2)) == "loading weights 100 %"
    assert loading_words(Loading("loading weights", 99, 100, eta_s=0.8)) == "loading weights 99 % · eta 1 s"


async def test_idle_never_means_that_a_question_is_half_asked(monkeypatch: pytest.MonkeyPatch):
    """Mounting an answer gives way to other messages; a phase still idle there let a second question start too."""
    phases: list[str] = []

    def note_phase(answer: Answer) -> None:
        assert isinstance(answer.screen, ChatScreen)
        phases.append(answer.screen.state.phase)

    monkeypatch.setattr(Answer, "on_mount", note_phase, raising=False)
    async with open_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        for count in (1, 2):
            await stage.send("hi")
            await stage.until(lambda count=count: len(phases) == count and stage.chat.state.phase == "idle")
    assert phases == ["reading", "reading"]


async def test_while_it_answers_one_message_waits_and_a_second_stays_in_the_prompt():
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("one")
        await stage.send("two")
        await stage.sees("You · queued")
        await stage.send("three")
        await stage.sees(turn.WAITING)
        assert stage.chat.prompt.text == "three"
        engine.permit()
        await stage.until(lambda: len(engine.requests) == 2 and stage.chat.state.phase == "idle")
        assert [message.content for message in engine.requests[1].messages or ()][::2] == ["one", "two"]
        kinds = [type(widget) for widget in stage.chat.transcript.children]
        assert kinds == [Question, Answer, Question, Answer]


@pytest.mark.slow
async def test_lines_sent_in_a_burst_that_come_back_stay_in_their_order():
    """A paste in a terminal that does not say that it is one."""
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("one")
        for line in ("two", "//three", "/tokens", "four", "/nope", "five", "/tokens"):
            for character in line:
                stage.app.post_message(events.Key("slash" if character == "/" else character, character))
            stage.app.post_message(events.Key("enter", "\r"))
        await stage.until(lambda: stage.chat.prompt.text == "//three\nfour\n/nope\nfive")
        assert stage.chat.state.queued is not None
        assert stage.chat.state.queued.text == "two"
        engine.permit()
        await stage.until(lambda: len(engine.requests) == 2 and stage.chat.state.phase == "idle")


async def test_esc_stops_and_keeps_what_was_written_for_the_next_turn():
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(engine, system="Be brief.") as stage:
        await stage.begins("hi")
        await stage.pilot.press("escape")
        await stage.sees("Hello there", "stopped · ", " 2 tok")
        engine.permit()
        await stage.send("go on")
        await stage.sees("idle", "Bye.")
        assert engine.requests[1].messages == (
            Message("system", "Be brief."),
            Message("user", "hi"),
            Message("assistant", "Hello there"),
            Message("user", "go on"),
        )


def test_a_question_that_got_no_answer_is_not_sent_again():
    conversation = Conversation()
    conversation.answer(conversation.ask("unanswered"), "guide")
    assert conversation.request(conversation.ask("next")).messages == (Message("user", "next"),)


async def test_notices_are_one_line_each_before_the_answer_they_precede():
    notices = [Notice("warning", "pair", "No draft for [b]this[/b] model.", "Try: localspec pair")]
    async with open_chat(ScriptedEngine([*notices, *HELLO])) as stage:
        await stage.send("hi")
        await stage.sees("No draft for [b]this[/b] model. Try: localspec pair", "Bye.")
        assert [type(widget) for widget in stage.chat.transcript.children] == [Question, Note, Answer]


async def test_a_new_chat_forgets_the_old_one_even_while_it_is_being_answered():
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("old")
        await stage.pilot.press("ctrl+n")
        await stage.sees("Ask anything.")
        engine.permit()
        await stage.sees(" idle")
        await stage.send("new")
        await stage.sees("Bye.", "idle")
        assert "old" not in stage.seen
        assert engine.requests[1].messages == (Message("user", "new"),)


async def test_five_hundred_quick_steps_end_with_the_whole_text():
    words = [f"word{i} " for i in range(1500)]
    script = answer(*(step(*words[i : i + 3]) for i in range(0, 1500, 3)))
    async with open_chat(ScriptedEngine(script)) as stage:
        await stage.send("go")
        await stage.sees("1,500 tok", "word1499", "idle")
        shown = stage.chat.query_one(Answer)
        assert shown.text == "".join(words)
        assert shown._body.source == "".join(words)


async def test_a_question_sent_before_the_answer_has_begun_stands_below_it():
    """Two messages in one burst: the second waits, and the first keeps its answer."""
    engine = ScriptedEngine(HELLO, HELLO)
    async with open_chat(engine) as stage:
        await stage.ready()
        stage.chat.post_message(Prompt.Sent("first"))
        stage.chat.post_message(Prompt.Sent("second"))
        await stage.until(lambda: len(engine.requests) == 2 and stage.chat.state.phase == "idle")
        shown = [type(widget) for widget in stage.chat.transcript.children]
        assert shown == [Question, Answer, Question, Answer]
        assert [widget.text for widget in stage.chat.query(Question)] == ["first", "second"]
