"""A question that does not fit with what was said before it: the user decides, and what he decides is seen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from textual import events

from localspec.config.tables import ChatTable, Config
from localspec.config.tables import OverflowPolicy as Policy
from localspec.core.events import Done, Failure, Prefill
from localspec.core.requests import Message
from localspec.history import History, recall
from localspec.tui.chat.conversation import Utterance
from localspec.tui.control.failures import FULL as FILLS
from localspec.tui.control.failures import TO_GO_ON
from localspec.tui.control.full_context import ASKS_AGAIN, NO_SPACE
from localspec.tui.control.tuning import Tuning
from localspec.tui.screens.overflow import Overflow
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import OutOfContext
from localspec.tui.transcript.question import Question
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.scripted_engine import ScriptedEngine, answer, step, totals

pytestmark = pytest.mark.heavy

FULL = Failure("context_overflow", "The prompt is 3,609 tokens [/nope].", "Shorten it.", 5, turns_over=2)
ONE_OVER = Failure("context_overflow", "The prompt is 512 tokens and the context holds 512.", "Shorten it.", 5, 1)
SAID = "Hello there, world. Bye."
TOLD = "no longer in the context"


async def overflowing(stage: Stage, turns: int = 3) -> None:
    """So many turns, then a question that does not fit."""
    for count in range(turns):
        await stage.send(f"question {count}")
        await stage.until(lambda count=count: len(stage.turns) == 2 * count + 2)
    await stage.send("too much")


async def asked(stage: Stage, turns: int = 0) -> None:
    """What to do; after so many turns, if any, and a question that does not fit."""
    if turns:
        await overflowing(stage, turns)
    await stage.until(lambda: isinstance(stage.app.screen, Overflow))
    await stage.until(lambda: "Cancel, and don't ask again" in seen(stage))


def seen(stage: Stage) -> str:
    return "\n".join(strip.text for strip in stage.app.screen._compositor.render_strips())


def told(engine: ScriptedEngine) -> list[str]:
    return [message.content for message in engine.requests[-1].messages or ()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("keys", [["d"], ["down", "down", "enter"]])
async def test_the_oldest_turns_are_dropped_and_grey_and_the_system_stays(keys: list[str]):
    engine = ScriptedEngine(HELLO, HELLO, HELLO, [FULL], HELLO, [FULL], HELLO)
    async with open_chat(engine, system="Be brief.", size=(80, 40)) as stage:
        await asked(stage, turns=3)
        assert "3,609 tokens [/nope]" in seen(stage)
        assert "Drop the oldest 2 turns, and don't ask again in this chat" in seen(stage)
        await stage.pilot.press(*keys)
        await stage.until(lambda: stage.chat.state.phase == "idle" and len(stage.turns) == 8)
        assert engine.requests[-1].messages == (
            Message("system", "Be brief."),
            Message("user", "question 2"),
            Message("assistant", SAID),
            Message("user", "too much"),
        )
        grey = [widget.has_class("-left-out") for widget in stage.chat.transcript.query("Question, Answer")]
        assert grey == [True] * 4 + [False] * 4
        await stage.sees(TOLD)
        lines = [line for line in stage.seen.splitlines() if "question" in line or TOLD in line]
        assert ["question 2" in line for line in lines] == [False] * (len(lines) - 1) + [True]
        assert TOLD in lines[-2]
        # what was chosen holds for the chat
        await stage.send("more")
        await stage.until(lambda: len(stage.turns) == 10)
        assert told(engine) == ["Be brief.", "more"], "two more turns were dropped, unasked"
        assert len(stage.chat.query(OutOfContext)) == 1
        assert stage.app.screen is stage.chat


async def test_the_oldest_turns_are_dropped_once():
    engine = ScriptedEngine(HELLO, [ONE_OVER], HELLO, [ONE_OVER])
    async with open_chat(engine) as stage:
        await asked(stage, turns=1)
        assert "Drop the oldest turn " in seen(stage)
        await stage.pilot.press("o")
        await stage.until(lambda: stage.chat.state.phase == "idle" and len(stage.turns) == 4)
        assert told(engine) == ["too much"]
        assert stage.chat.conversation.when_full is None
        await stage.send("more")
        await asked(stage)
        await stage.pilot.press("escape")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("typed", ["n", "d", "s", "enter", "escape"])
async def test_what_was_being_typed_when_it_appeared_is_no_answer(typed: str, monkeypatch: pytest.MonkeyPatch):
    async with open_chat(ScriptedEngine(HELLO, [FULL], HELLO)) as stage:
        monkeypatch.setattr("localspec.tui.screens.overflow.REST_SECONDS", 60)
        await asked(stage, turns=1)
        await stage.pilot.press("a", typed)
        await stage.pilot.pause()
        assert isinstance(stage.app.screen, Overflow), "what was typed chose nothing"
        monkeypatch.setattr("localspec.tui.screens.overflow.REST_SECONDS", 0)
        await stage.pilot.press("down")
        monkeypatch.setattr("localspec.tui.screens.overflow.REST_SECONDS", 60)
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.turns) == 4)  # after a rest, one key may follow another at once
        assert told(stage.engine) == ["too much"]


@pytest.mark.parametrize("typed", ["no", "do", "so", "dn"])
async def test_a_letter_that_another_follows_at_once_is_no_answer(typed: str, monkeypatch: pytest.MonkeyPatch):
    """Whoever looks up only after a pause in a sentence has not answered with its next word."""
    async with open_chat(ScriptedEngine(HELLO, [FULL], HELLO)) as stage:
        monkeypatch.setattr("localspec.tui.screens.overflow.ALONE_SECONDS", 60)
        await asked(stage, turns=1)
        await stage.pilot.press(*typed)
        await stage.pilot.pause()
        monkeypatch.setattr("localspec.tui.screens.overflow.ALONE_SECONDS", 0)
        await stage.pilot.press("x")  # which is no choice
        await stage.pilot.pause()
        assert isinstance(stage.app.screen, Overflow), "what was typed chose nothing"
        await stage.pilot.press("d")
        await stage.until(lambda: len(stage.turns) == 4)
        assert told(stage.engine) == ["too much"]


async def test_keys_that_waited_while_the_screen_came_are_no_answer(monkeypatch: pytest.MonkeyPatch):
    """They are older than it, and between two of them there may have been a pause."""
    async with open_chat(ScriptedEngine(HELLO, [FULL], HELLO)) as stage:
        monkeypatch.setattr("localspec.tui.screens.overflow.REST_SECONDS", 1)
        await asked(stage, turns=1)
        for key, age in (("a", 9.0), ("n", 5.0)):
            event = events.Key(key, key)
            event.time -= age
            stage.app.post_message(event)
        await stage.pilot.pause(0.1)
        assert isinstance(stage.app.screen, Overflow)
        await stage.pilot.press("escape")


@pytest.mark.slow
async def test_what_was_dropped_is_said():
    engine = ScriptedEngine(HELLO, HELLO, HELLO, [FULL], HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(1 + 3 * len(HELLO) + 1)
        await asked(stage, turns=3)
        await stage.pilot.press("d")
        await stage.hints("Dropped the oldest 2 turns: no longer in the context.")
        engine.permit(len(HELLO))
        await stage.ready()


async def test_a_new_chat_takes_the_question_along():
    engine = ScriptedEngine(HELLO, HELLO, HELLO, [FULL], HELLO)
    async with open_chat(engine) as stage:
        await asked(stage, turns=3)
        await stage.pilot.press("n")
        await stage.until(lambda: len(engine.requests) == 5 and stage.chat.state.phase == "idle")
        assert told(engine) == ["too much"]
        assert [widget.text for widget in stage.chat.query(Question)] == ["too much"]
        await stage.sees("Bye.", "idle")


async def test_a_question_that_was_answered_before_stays_when_it_is_asked_in_a_new_chat():
    engine = ScriptedEngine(HELLO, HELLO, [FULL], HELLO)
    async with kept_chat(engine) as stage:
        for number in range(2):
            await stage.send(f"question {number}")
            await stage.until(lambda asked=number: len(stage.turns) == 2 * asked + 2)
        await stage.ready()
        await stage.pilot.press("ctrl+r")
        await asked(stage)
        await stage.pilot.press("n")
        await stage.until(lambda: len(engine.requests) == 4 and stage.chat.state.phase == "idle")
    with History(reading=True) as history:
        lengths = sorted(len(history.open(chat.id).tree) for chat in history.chats())
    assert lengths == [2, 4]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("key", "asks_again"), [("s", False), ("escape", True), ("enter", True)])
async def test_stopping_here_leaves_the_question_unanswered(key: str, asks_again: bool):
    engine = ScriptedEngine(HELLO, HELLO, HELLO, [FULL], [FULL], HELLO)
    async with open_chat(engine) as stage:
        await asked(stage, turns=3)
        await stage.pilot.press(key)
        await stage.sees("3,609 tokens [/nope]. Shorten it.", "idle")
        assert stage.app.screen is stage.chat
        await stage.send("again")
        if asks_again:
            await asked(stage)
            await stage.pilot.press("d")
        await stage.until(lambda: stage.chat.state.phase == "idle" and len(engine.requests) == 5 + asks_again)
        assert len(stage.turns) == 6 + 2 * asks_again


@pytest.mark.parametrize(("key", "past"), [("s", "stop"), ("d", "drop-oldest")])
async def test_that_it_is_not_asked_again_says_how_to_take_that_back_and_is_taken_back(
    key: str, past: Policy, monkeypatch: pytest.MonkeyPatch
):
    engine = ScriptedEngine(HELLO, HELLO, HELLO, [FULL], *([HELLO] if key == "d" else []), [FULL])
    async with kept_chat(engine, size=(100, 40)) as stage:
        await asked(stage, turns=3)
        hinted = list[str]()
        monkeypatch.setattr(stage.chat.feedback, "hint", lambda text, *_: hinted.append(text))
        await stage.pilot.press(key)
        await stage.until(lambda: any(ASKS_AGAIN in text for text in hinted))
        await stage.ready()
        assert stage.chat.conversation.when_full == past
        monkeypatch.delattr(stage.chat.feedback, "hint")
        await stage.send("/set context_overflow=never")
        await stage.hints("context_overflow is ask, drop-oldest or stop.")
        stage.chat.prompt.clear()
        await stage.send("/set context_overflow=ask")
        await stage.until(lambda: stage.chat.conversation.when_full is None)
        await stage.send("again")
        await stage.until(lambda: stage.app.screen is not stage.chat)
        await stage.pilot.press("escape")
    assert recall().chat.when_full is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("policy", ["drop-oldest", "stop"])
async def test_what_is_set_for_all_chats_is_not_asked(policy: Policy):
    engine = ScriptedEngine(HELLO, HELLO, HELLO, [FULL], HELLO)
    tuning = Tuning(Config(chat=ChatTable(context_overflow=policy)))
    async with open_chat(engine, size=(80, 40), tuning=tuning) as stage:
        await overflowing(stage)
        await stage.until(
            lambda: stage.chat.state.phase == "idle" and len(engine.requests) == (5 if policy == "drop-oldest" else 4)
        )
        assert (TOLD in stage.seen) == (policy == "drop-oldest")
        assert ("3,609 tokens" in stage.seen) == (policy == "stop")


@pytest.mark.slow
async def test_a_chat_that_is_opened_again_tells_the_model_the_same_and_does_as_was_chosen():
    engine = ScriptedEngine(HELLO, HELLO, HELLO, [FULL], HELLO)
    async with kept_chat(engine) as stage:
        await asked(stage, turns=3)
        await stage.pilot.press("d")
        await stage.until(lambda: stage.chat.state.phase == "idle" and len(stage.turns) == 8)
    past = recall()
    assert (past.chat.when_full, past.chat.turns_left_out) == ("drop-oldest", 2)
    engine = ScriptedEngine(HELLO, [FULL], HELLO, HELLO)
    async with kept_chat(engine, past=past, size=(80, 60)) as stage:
        await stage.ready()
        await stage.sees(TOLD)
        grey = [widget.has_class("-left-out") for widget in stage.chat.transcript.query("Question, Answer")]
        assert grey == [True] * 4 + [False] * 4
        await stage.send("more")
        await stage.until(lambda: len(stage.turns) == 10)
        assert told(engine) == ["question 2", SAID, "too much", SAID, "more"]
        await stage.send("and more")
        await stage.until(lambda: len(stage.turns) == 12)
        assert told(engine) == ["more", SAID, "and more"], "nobody was asked"
        await stage.send("/new")
        await stage.sees("Ask anything.")
        await stage.send("else")
        await stage.until(lambda: len(stage.turns) == 2)
        assert told(engine) == ["else"]
    assert (recall(past.chat.id).chat.turns_left_out, recall().chat.turns_left_out) == (4, 0)


@pytest.mark.slow
async def test_that_it_stops_is_kept_with_the_chat_too():
    async with kept_chat(ScriptedEngine(HELLO, HELLO, HELLO, [FULL])) as stage:
        await asked(stage, turns=3)
        await stage.pilot.press("s")
        await stage.sees("3,609 tokens [/nope]. Shorten it.", "idle")
    async with kept_chat(ScriptedEngine([FULL]), past=recall()) as stage:
        await stage.sees("had no answer", "In this chat, a message that does not", "context_overflow=ask", "idle")
        await stage.send("again")
        await stage.sees("3,609 tokens [/nope]. Shorten it.", "idle")
        assert stage.app.screen is stage.chat


@pytest.mark.slow
async def test_a_stop_while_the_oldest_turns_are_dropped_stops_the_answer():
    engine = ScriptedEngine(HELLO, HELLO, HELLO, [FULL], HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(1 + 3 * len(HELLO) + 1)
        await asked(stage, turns=3)
        grey = stage.chat.transcript.grey

        async def and_stop(left_out: Sequence[Utterance]) -> None:
            await grey(left_out)
            stage.chat.turns.stop()

        stage.chat.transcript.grey = and_stop  # type: ignore[method-assign]
        await stage.pilot.press("d")
        await stage.sees("stopped")
        assert len(stage.turns) == 6


@pytest.mark.slow
async def test_an_engine_that_dies_while_it_is_asked_ends_the_turn():
    engine = ScriptedEngine(HELLO, HELLO, HELLO, [FULL])
    async with open_chat(engine) as stage:
        await asked(stage, turns=3)
        engine.die()
        await stage.until(lambda: stage.chat.state.phase == "gone")
        await stage.pilot.press("d")
        await stage.until(lambda: stage.app.screen is stage.chat)
        await stage.sees("The engine stopped. Press Ctrl+R")
        assert len(engine.requests) == 4
        assert all(answer.text for answer in list(stage.chat.query(Answer))[:3])


# --- an answer that goes on


CUT = [Prefill(12, 12, 0), step("Once", " upon")]
FILLED = [*CUT, Done("context", totals(CUT, "context"))]
MORE = answer(step(" a", " time"), step("."))


async def cut(stage: Stage) -> None:
    """An earlier turn, then an answer that the context cut, which is to go on."""
    await stage.send("earlier")
    await stage.until(lambda: len(stage.turns) == 2)
    await stage.ready()
    await stage.send("a tale")
    await stage.sees("Once upon", "the context is full")
    await stage.ready()
    await stage.pilot.press("alt+c")


async def test_an_answer_that_has_no_room_goes_on_without_the_oldest_turns():
    engine = ScriptedEngine(HELLO, FILLED, [ONE_OVER], MORE)
    async with open_chat(engine, size=(80, 40), system="Be brief.") as stage:
        await cut(stage)
        await asked(stage)
        assert NO_SPACE in seen(stage)
        await stage.pilot.press("d")
        await stage.sees("Once upon a time.", "idle")
        assert engine.requests[-1].continues
        assert told(engine) == ["Be brief.", "a tale", "Once upon"]
        grey = [widget.has_class("-left-out") for widget in stage.chat.transcript.query("Question, Answer")]
        assert grey == [True, True, False, False]
        assert stage.chat.conversation.branch[-1].text == "Once upon a time."


async def test_where_it_was_chosen_nobody_is_asked_before_an_answer_goes_on():
    engine = ScriptedEngine(HELLO, FILLED, [ONE_OVER], MORE)
    tuning = Tuning(Config(chat=ChatTable(context_overflow="drop-oldest")))
    async with open_chat(engine, size=(80, 40), tuning=tuning) as stage:
        await cut(stage)
        await stage.sees("Once upon a time.", "idle")
        assert told(engine) == ["a tale", "Once upon"]


@pytest.mark.parametrize("key", ["escape", "s"])
async def test_an_answer_that_does_not_go_on_stays_as_it_was(key: str):
    async with kept_chat(ScriptedEngine(HELLO, FILLED, [ONE_OVER]), size=(100, 40)) as stage:
        await cut(stage)
        before = recall().branch[-1]
        await asked(stage)
        await stage.pilot.press(key)
        await stage.sees(ASKS_AGAIN if key == "s" else TO_GO_ON)
        await stage.ready()
        await stage.sees("Once upon", "the context is full")
        assert not stage.chat.query(".-failed")
    assert recall().branch[-1] == before


async def test_a_new_chat_asks_again_for_an_answer_that_has_no_room():
    engine = ScriptedEngine(HELLO, FILLED, [ONE_OVER], MORE)
    async with kept_chat(engine) as stage:
        await cut(stage)
        before = recall()
        await asked(stage)
        await stage.pilot.press("n")
        await stage.until(lambda: len(engine.requests) == 4 and stage.chat.state.phase == "idle")
        assert told(engine) == ["a tale"]
    assert recall(before.chat.id).branch == before.branch


async def test_an_answer_that_fills_the_context_itself_names_the_way_out():
    alone = msgspec.structs.replace(ONE_OVER, turns_over=0, hint="Shorten it, or raise --ctx, up to 8192.")
    async with kept_chat(ScriptedEngine(HELLO, FILLED, [alone]), size=(80, 40)) as stage:
        await cut(stage)
        await stage.sees(FILLS, "--ctx N", "Once upon")
        await stage.ready()
        assert stage.app.screen is stage.chat
        assert not stage.chat.query(".-failed")


async def test_it_fits_in_the_smallest_terminal():
    async with open_chat(ScriptedEngine(HELLO, [FULL], HELLO), size=(60, 16)) as stage:
        await asked(stage, turns=1)
        for words in ("Cancel, and don't ask again", "Drop the oldest", "New chat", "Esc  Cancel"):
            assert words in seen(stage)
        await stage.pilot.press("escape")
