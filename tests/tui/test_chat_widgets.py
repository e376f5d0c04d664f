"""Token view, ribbon and speed panel in the chat: what keys and widths show and hide."""

from __future__ import annotations

import re
from asyncio import TimerHandle
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from textual.message_pump import MessagePump

from localspec.core.events import AnyEvent, Proposal, Step, Token
from localspec.tui.app import ChatApp
from localspec.tui.control import engine_link
from localspec.tui.markdown import pace as pace_module
from localspec.tui.terminal.timer import once
from localspec.tui.transcript.answer import Answer
from tests.core.test_sanitize import FORBIDDEN
from tests.support.chat_stage import HELLO, Stage, open_chat
from tests.support.scripted_engine import ScriptedEngine, answer, step
from tests.tui.test_chat_hostile import ATTACKS, OWN_SEQUENCES, CapturingDriver

pytestmark = pytest.mark.heavy

BONUS = Step(
    kind="draft",
    tokens=(Token(1, "**so", "draft", pos=0), Token(2, " far**", "bonus")),
    drafted=1,
    accepted=1,
    draft_ms=5,
    verify_ms=20,
)
MIXED = answer(step("Once", " upon", " a"), BONUS, step(" end", accepted=0))
AS_TOKENS = "Once upon a**so far** end"


async def told(stage: Stage) -> None:
    await stage.send("hi")
    await stage.sees("idle", " tok")


def looks(stage: Stage, text: str) -> set[str]:
    """The attributes with which a text is drawn, colours aside."""
    return {
        name
        for strip in stage.chat._compositor.render_strips()
        for segment in strip
        if segment.text.strip() == text and segment.style is not None
        for name in ("bold", "italic", "underline", "strike")
        if getattr(segment.style, name)
    }


async def test_f3_shows_the_tokens_and_the_markdown_again():
    async with open_chat(ScriptedEngine(MIXED)) as stage:
        await told(stage)
        assert "**" not in stage.seen
        assert "bonus" not in stage.seen
        await stage.pilot.press("f3")
        await stage.sees(AS_TOKENS, "draft look-up bonus fix plain «edited»")
        await stage.pilot.press("f3")
        await stage.until(lambda: "md [tok]" not in stage.seen and "Once upon aso far end" in stage.seen)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("key", ["shift+f3", "f15"])
async def test_rejected_proposals_show_on_request(key: str):
    """xterm and its kin say F15 for Shift+F3."""
    async with open_chat(ScriptedEngine(MIXED)) as stage:
        await told(stage)
        await stage.pilot.press(key)
        await stage.sees("Once upon a‹x›**so far** end")
        await stage.pilot.press(key)
        await stage.sees(AS_TOKENS)
        await stage.pilot.press(key, "f3")
        await stage.until(lambda: "md [tok]" not in stage.seen)


@pytest.mark.slow
async def test_probabilities_are_asked_for_while_rejected_proposals_are_in_sight():
    told_odds = [
        msgspec.structs.replace(one, rejected=tuple(Proposal(7, "x", 0.61, 0.22) for _ in one.rejected))
        if isinstance(one, Step)
        else one
        for one in MIXED
    ]
    async with open_chat(ScriptedEngine(MIXED, told_odds, MIXED)) as stage:
        await told(stage)
        await stage.pilot.press("shift+f3")
        await stage.sees("‹x›", " .6/.2›", "Token probabilities are recorded from the next answer on.")
        await stage.send("two")
        await stage.sees("a‹x .61/.22›**so", "idle")
        await stage.pilot.press("shift+f3")
        await stage.send("three")
        await stage.until(lambda: len(stage.engine.requests) == 3 and stage.chat.state.phase == "idle")
        assert [request.draft_probabilities for request in stage.engine.requests] == [False, True, False]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("no_color", [False, True])
async def test_marks_survive_without_colour(no_color: bool, monkeypatch: pytest.MonkeyPatch):
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat(ScriptedEngine(MIXED)) as stage:
        await told(stage)
        await stage.pilot.press("shift+f3")
        await stage.sees("‹x›")
        assert looks(stage, "far**") == {"bold"}
        assert looks(stage, "a") == {"underline"}
        assert looks(stage, "‹x›") == {"strike"}
        assert looks(stage, "Once") == {"italic"}
        assert looks(stage, "end") == set()


async def test_tokens_stream_and_the_next_answer_keeps_the_view():
    engine = ScriptedEngine(HELLO, MIXED, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("one")
        await stage.pilot.press("f3")
        await stage.sees("md [tok]", "Hello there")
        engine.permit()
        await stage.sees("Hello there, world. Bye.", "idle")
        await stage.send("two")
        await stage.sees(AS_TOKENS, "idle")
        assert [shown.text for shown in stage.chat.query(Answer)] == [
            "Hello there, world. Bye.",
            "Once upon a**so far** end",
        ]


@pytest.mark.slow
async def test_keys_and_the_prompt_do_not_disturb_each_other():
    async with open_chat(ScriptedEngine(MIXED), size=(120, 30)) as stage:
        await told(stage)
        await stage.pilot.press("a", "f3", "b", "f2", "c", "shift+f3", "d")
        assert stage.chat.prompt.text == "abcd"
        assert stage.chat.transcript.view == "rejects"


async def test_the_ribbon_stands_under_an_answer_that_was_drafted_for():
    engine = ScriptedEngine(answer(step("p", accepted=0)), MIXED)
    async with open_chat(engine) as stage:
        await told(stage)
        assert "round" not in stage.seen
        await stage.send("again")
        await stage.sees("▆█· 3 rounds", "idle")


async def test_the_ribbon_of_a_long_answer_stays_on_its_line():
    rounds = [step("a ", "b ", accepted=None) for _ in range(500)]
    async with open_chat(ScriptedEngine(answer(*rounds)), size=(80, 24)) as stage:
        await told(stage)
        await stage.sees("500 rounds, 10 a cell")
        line = next(line for line in stage.seen.splitlines() if "500 rounds" in line)
        assert len(line) <= 80


async def test_a_new_chat_leaves_the_panel_where_it_lies_and_empties_it():
    async with open_chat(ScriptedEngine(HELLO), size=(100, 30)) as stage:
        await told(stage)
        await stage.pilot.press("f2", "f2")
        await stage.sees("1st token")
        await stage.pilot.press("ctrl+n")
        await stage.until(lambda: not stage.chat.query(Answer) and "1st token" not in stage.seen)
        await stage.sees("– tok/s")
        assert stage.chat.speed.display


async def test_the_panel_is_there_from_140_columns_on_in_four_lines_then_whole_then_hidden():
    async with open_chat(ScriptedEngine(HELLO), size=(140, 30)) as stage:
        await told(stage)
        await stage.sees("Speed", "80.0 tok/s", "accepted 50 % (3/6)", "18/8.2k")
        assert "memory" not in stage.seen
        await stage.pilot.resize_terminal(139, 30)
        await stage.until(lambda: "accepted 50" not in stage.seen)
        await stage.pilot.resize_terminal(140, 30)
        await stage.sees("accepted 50 % (3/6)")
        await stage.pilot.press("f2")
        await stage.sees("accepted 50 % (3/6)", "1st token", "memory   124 MB")
        await stage.pilot.press("f2")
        await stage.until(lambda: "accepted 50" not in stage.seen)
        await stage.pilot.press("f2")
        await stage.sees("accepted 50 % (3/6)")
        assert "1st token" not in stage.seen


async def test_below_140_columns_f2_lays_it_over_the_chat_and_esc_takes_it_away():
    async with open_chat(ScriptedEngine(HELLO), size=(80, 24)) as stage:
        await told(stage)
        width = stage.chat.transcript.size.width
        for keys in (["f2", "f2"], ["escape"]):
            await stage.pilot.press("f2")
            await stage.sees("accepted 50 % (3/6)", "Hello there")
            assert stage.chat.transcript.size.width == width, "an overlay moves no text"
            await stage.pilot.press(*keys)
            await stage.until(lambda: "accepted 50" not in stage.seen)


async def test_below_80_columns_f2_says_what_is_missing():
    async with open_chat(ScriptedEngine(HELLO), size=(79, 24)) as stage:
        await told(stage)
        await stage.pilot.press("f2")
        await stage.sees("The speed panel needs 80 columns.")
        assert "context  " not in stage.seen


class Frames:
    """Those that the screen asks for, on a clock that goes only from one to the next."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.waits: list[float] = []
        self.drawn = 0
        flush = Answer.flush

        async def counted(shown: Answer) -> None:
            self.drawn += 1
            await flush(shown)

        patch.setattr(pace_module, "monotonic", lambda: self.now)
        patch.setattr(pace_module, "thread_time", lambda: 0.0)
        patch.setattr(engine_link, "once", self.ask)
        patch.setattr(Answer, "flush", counted)

    def ask(self, pump: MessagePump, seconds: float, call: Callable[[], object]) -> TimerHandle:
        self.waits.append(seconds)
        self.call = partial(pump.call_next, call)
        return once(pump, 3600, call)

    async def pass_one(self, stage: Stage) -> None:
        asked = len(self.waits)
        self.now += self.waits[-1]
        self.call()
        await stage.until(lambda: len(self.waits) > asked)


PROSE = [step("a ", "b ")] * 500
CODE = [step("```py\n", accepted=0), *[step("x = 1\n", accepted=0)] * 499]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("rounds", "most"), [(PROSE, 20), (CODE, 4)], ids=["prose", "code"])
async def test_an_answer_is_drawn_so_often_a_second_at_most(
    rounds: list[Step], most: int, monkeypatch: pytest.MonkeyPatch
):
    """However fast rounds come, here 400 a second: what draws them is a frame, and inside of code not every one."""
    frames, played = Frames(monkeypatch), list[AnyEvent]()
    engine = ScriptedEngine(answer(*rounds), paused=True, before=played.append)
    async with open_chat(engine) as stage:
        engine.permit(2)
        await stage.send("go")
        await stage.until(lambda: len(played) == 3)  # model and prompt have arrived
        began = frames.now
        for _ in range(25):
            arrived = len(played)
            engine.permit(20)
            await stage.until(lambda: len(played) == arrived + 20)  # noqa: B023
            await frames.pass_one(stage)
        seconds = frames.now - began
        assert min(frames.waits) >= 0.05
        assert most * seconds / 2 <= frames.drawn <= most * seconds + 1
        engine.permit()


async def test_an_answer_from_a_history_shows_its_rounds():
    told_before, without_rounds = Answer("guide"), Answer("guide")
    told_before.rounds.extend(event for event in MIXED if isinstance(event, Step))
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.chat.feedback.show(without_rounds)
        await stage.chat.feedback.show(told_before)
        await stage.sees("▆█· 3 rounds")
        await stage.pilot.press("f3")
        await stage.sees(AS_TOKENS)
        assert without_rounds._body.display, "Markdown is what there is"


async def test_hostile_tokens_reach_the_terminal_as_text_only():
    """Control bytes, bidi overrides and markup in committed and rejected tokens, in both views and in the panel."""
    hostile = Step(
        kind="draft",
        tokens=(Token(1, ATTACKS, "draft", pos=0), Token(2, ATTACKS, "fix")),
        drafted=2,
        accepted=1,
        rejected=(Proposal(3, ATTACKS),),
    )
    script: list[AnyEvent] = answer(hostile)
    engine = ScriptedEngine(script)
    app = ChatApp(lambda: engine)
    app.driver_class = CapturingDriver
    async with app.run_test(size=(120, 60), headless=False) as pilot:
        stage = Stage(pilot, app, [])
        await told(stage)
        await pilot.press("shift+f3")
        await stage.sees("[/nope] [@click=app.quit]x[/] ␛]52;c;aGk=", "‹[/nope]")
        written = "".join(app._driver.__dict__["written"])
    left = OWN_SEQUENCES.sub("", written)
    assert FORBIDDEN.isdisjoint(left.replace("\r", "")), sorted(FORBIDDEN & set(left))
    assert not re.search(r"\x1b\]8;", written)
