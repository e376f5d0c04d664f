"""What goes wrong under a chat: nothing written is lost, and what is said about it is true."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from localspec.core.events import Failure, Notice
from localspec.history import History, recall
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Note
from tests.support.chat_stage import HELLO, kept_chat, open_chat
from tests.support.scripted_engine import DIED, ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy


async def test_when_the_engine_dies_nothing_is_lost_and_a_reload_goes_on():
    first, second = ScriptedEngine(HELLO, paused=True), ScriptedEngine(HELLO)
    async with open_chat(first, second) as stage:
        await stage.begins("hi")
        await stage.send("next")
        await stage.sees("You · queued")
        await stage.write("half a thought")
        first.die()
        await stage.sees(
            "Hello there", "The engine's process is gone.", "Press Ctrl+R to load it again.", "half a thought"
        )
        assert len(first.requests) == 1
        await stage.pilot.press("ctrl+r")
        await stage.sees("Bye.", "idle", "half a thought")
        assert "oad it again" not in stage.seen  # advice that is no longer true
        assert [message.content for message in second.requests[0].messages or ()] == [
            "hi",
            "Hello there",
            "next",
        ]
        assert "Reload" not in stage.seen
    assert stage.app.return_code in {0, None}


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signal")
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
async def test_a_program_that_is_told_to_end_leaves_the_terminal_as_it_was_and_keeps_what_was_not_sent(
    name: str, code: int
):
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.write("half a thou")
        os.kill(os.getpid(), getattr(signal, name))
        await stage.until(lambda: not stage.app.is_running)
    assert stage.app.return_code == code
    with History() as history:
        (unsent,) = history.unsent(None)
    assert unsent.content == "half a thou"


async def test_a_failed_start_is_one_sentence_and_its_exit_code():
    refused = Failure("does_not_fit", "Not enough memory for big.", "Try: --quant int8", exit_code=5)
    async with open_chat(ScriptedEngine(opening=[refused]), ScriptedEngine(opening=[refused, DIED])) as stage:
        await stage.write("kept")
        await stage.sees(
            "Not enough memory for big. Try: /quant int8",
            "Not loaded: Ctrl+R tries again, Ctrl+O another model.",
            "kept",
        )
        await stage.pilot.press("enter")
        await stage.sees("Your message stays here.", "kept")
        await stage.pilot.press("ctrl+r")
        await stage.until(lambda: len(stage.chat.query(Note)) == 2 and stage.chat.state.phase == "gone")
        await stage.pilot.press("ctrl+q")
        await stage.until(lambda: not stage.app.is_running)
    assert stage.app.return_code == 5


async def test_an_error_in_an_answer_leaves_the_text_and_the_conversation():
    broken = [*HELLO[:2], Failure("engine", "The model produced invalid numbers.", "Try again.")]
    async with open_chat(ScriptedEngine(broken, HELLO)) as stage:
        await stage.send("hi")
        await stage.sees("Hello there", "The model produced invalid numbers. Try again.")
        await stage.send("again")
        await stage.sees("Bye.", "idle")
        assert [m.content for m in stage.engine.requests[1].messages or ()] == ["hi", "Hello there", "again"]


async def test_an_answer_that_fails_before_a_word_leaves_the_chat_alive():
    """A stream stopped before its task ran raised CancelledError into the screen, which then took no more keys."""
    overflow = Failure("context_overflow", "The prompt is 3,609 tokens.", "Shorten it.", 5)
    async with open_chat(ScriptedEngine([overflow], HELLO)) as stage:
        await stage.ready()
        await stage.send("too long " * 50)
        await stage.sees("The prompt is 3,609 tokens. Shorten it.", "idle")
        await stage.send("hi")
        await stage.sees("Hello there, world. Bye")


async def test_an_answer_without_a_word_says_so_also_when_it_is_opened_again():
    async with kept_chat(ScriptedEngine(answer(step("", accepted=0)), HELLO)) as stage:
        await stage.asks("hi", "(empty answer)", "1 tok", "idle")
        await stage.asks("again", "Bye.", "idle")
        assert stage.seen.count("(empty answer)") == 1
    async with kept_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.sees("(empty answer)", "Bye.")


async def test_an_answer_that_ends_in_the_tick_it_began_leaves_the_chat_alive():
    answer_widget = Answer("guide")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.chat.feedback.show(answer_widget)
        answer_widget.add(step("all at once", accepted=0))
        await answer_widget.fail("and over")
        await stage.sees("all at once", "and over")
        assert stage.chat.is_running


async def test_a_drafter_that_failed_is_no_longer_named_and_a_reload_brings_it_back():
    failed = Notice("warning", "drafter_failed", "The drafter failed (nan).", "Reload to try again.")
    first, second = ScriptedEngine([failed, *HELLO], paused=True), ScriptedEngine(HELLO)
    async with open_chat(first, second) as stage:
        first.permit(1)
        await stage.sees("⇐ guide-draft, auto")
        await stage.send("hi")
        first.permit(1)
        await stage.sees("The drafter failed (nan).", "int8 · the draft model failed · cpu")
        await stage.pilot.press("ctrl+r")  # not in mid-answer
        first.permit()
        await stage.sees("Bye.", "idle", "^R Reload")
        await stage.pilot.press("ctrl+r")
        await stage.sees("⇐ guide-draft, auto", "Bye.")
        await stage.until(lambda: stage.chat.state.phase == "idle" and "^R Reload" not in stage.seen)
        assert stage.engine is second


@pytest.mark.parametrize("through", ["the engine", "the history"])
async def test_what_arrives_while_the_app_ends_is_no_error(through: str):
    """Textual takes no more widgets then, and raises; `make chat`, left while it loads, ended in a traceback."""
    notice = Notice("info", "late", "A note that comes late.")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        feed = stage.chat.engine.feed
        assert feed is not None
        stage.app.exit()
        if through == "the engine":
            feed._push(notice)
            await stage.chat.engine.drain(feed)
        else:
            await stage.chat.feedback.inform(notice)
    assert stage.app.return_code in {0, None}
