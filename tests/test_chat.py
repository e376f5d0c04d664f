"""The chat, driven by keys against an engine that replays events. No model, no clock, no sleeping."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from textual import events
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot
from textual.widgets import HelpPanel, Input

from localspec.events import Failure, Loading, ModelCard, Notice, Ready, SpecCard
from localspec.requests import Message
from localspec.sanitize import clean
from localspec.tui import chat as chat_module
from localspec.tui.app import ChatApp
from localspec.tui.chat import ChatScreen
from localspec.tui.conversation import Conversation
from localspec.tui.message import Answer, Note, Question
from localspec.tui.prompt import Prompt
from localspec.tui.reply import parser
from tests.scripted_engine import DIED, READY, ScriptedEngine, answer, step
from tests.test_sanitize import FORBIDDEN, fuzzed

HELLO = answer(step("Hello", " there", accepted=1), step(", world", "."), step(" Bye", "."))


@dataclass
class Stage:
    """An open chat and the engines it made, the newest last."""

    pilot: Pilot[None]
    app: ChatApp
    engines: list[ScriptedEngine]

    @property
    def chat(self) -> ChatScreen:
        return self.app.chat

    @property
    def engine(self) -> ScriptedEngine:
        return self.engines[-1]

    @property
    def seen(self) -> str:
        """What is on the screen."""
        return "\n".join(strip.text for strip in self.chat._compositor.render_strips())

    async def until(self, predicate: Callable[[], object]) -> None:
        for _ in range(1000):
            if predicate():
                return
            await self.pilot.pause(0.01)
        raise AssertionError(f"never came true; the screen:\n{self.seen}")

    async def sees(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.seen for text in texts))

    async def write(self, text: str) -> None:
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        await self.write(text)
        await self.pilot.press("enter")

    async def ready(self) -> None:
        await self.until(lambda: self.chat.phase == "idle")


@asynccontextmanager
async def open_chat(
    *engines: ScriptedEngine, size: tuple[int, int] = (80, 24), system: str | None = None
) -> AsyncIterator[Stage]:
    """The given engines come in turn: the first at the start, the others at reloads."""
    waiting, made = list(engines), []

    def make_engine() -> ScriptedEngine:
        made.append(waiting.pop(0))
        return made[-1]

    app = ChatApp(make_engine, system)
    async with app.run_test(size=size) as pilot:
        yield Stage(pilot, app, made)
    assert all(engine.closed for engine in made), "the app left an engine running"


async def test_an_answer_streams_with_its_figures_and_ends_with_them():
    async with open_chat(ScriptedEngine(HELLO, paused=True)) as stage:
        await stage.sees("loading", "Ask anything.")
        stage.engine.permit(1)
        await stage.sees("idle", "localspec · guide · int8 ⇐ guide-draft k=auto · cpu")
        await stage.send("hi")
        await stage.sees("You", "hi", "reading prompt")
        assert "Ask anything." not in stage.seen
        stage.engine.permit(1)
        await stage.sees("reading prompt 12/12")
        stage.engine.permit(1)
        await stage.sees("Hello there", "generating   80.0 tok/s · ×– · 50 % accepted · 2.0 tok/step", "ctx 14/8,192")
        stage.engine.permit()
        await stage.sees("Hello there, world. Bye.", "×–", "ttft 0.21 s · 6 tok", "idle")
        assert stage.chat.conversation.history == [
            Message("user", "hi"),
            Message("assistant", "Hello there, world. Bye."),
        ]


async def test_the_speed_up_shows_once_there_are_three_plain_rounds():
    script = answer(*(step(f"{i} ", accepted=0) for i in range(3)), *(step("a ", "b ", "c ") for _ in range(4)))
    async with open_chat(ScriptedEngine(script)) as stage:
        await stage.send("hi")
        await stage.sees("×1.88", "67 % accepted", "tok/step")


async def test_a_message_sent_while_the_model_loads_is_answered_when_it_is_ready():
    opening = [Loading("weights", 62, 100, eta_s=8.0), READY]
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


async def test_idle_never_means_that_a_question_is_half_asked(monkeypatch: pytest.MonkeyPatch):
    """Mounting an answer gives way to other messages; a phase still idle there let a second question start too."""
    phases: list[str] = []

    def note_phase(answer: Answer) -> None:
        assert isinstance(answer.screen, ChatScreen)
        phases.append(answer.screen.phase)

    monkeypatch.setattr(Answer, "on_mount", note_phase, raising=False)
    async with open_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        for count in (1, 2):
            await stage.send("hi")
            await stage.until(lambda count=count: len(stage.chat.conversation.history) == 2 * count)
    assert phases == ["reading", "reading"]


async def test_while_it_answers_one_message_waits_and_a_second_stays_in_the_prompt():
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(3)
        await stage.send("one")
        await stage.sees("Hello there")
        await stage.send("two")
        await stage.sees("You · queued")
        await stage.send("three")
        await stage.sees(chat_module.WAITING)
        assert stage.chat.prompt.text == "three"
        engine.permit()
        await stage.until(lambda: len(engine.requests) == 2 and stage.chat.phase == "idle")
        assert [message.content for message in engine.requests[1].messages or ()][::2] == ["one", "two"]
        kinds = [type(widget) for widget in stage.chat.transcript.children]
        assert kinds == [Question, Answer, Question, Answer]


async def test_esc_stops_and_keeps_what_was_written_for_the_next_turn():
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(engine, system="Be brief.") as stage:
        engine.permit(3)
        await stage.send("hi")
        await stage.sees("Hello there")
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
    conversation.keep("unanswered", "")
    assert conversation.request("next").messages == (Message("user", "next"),)


@pytest.mark.parametrize("keys", [["ctrl+j"], ["alt+enter"], ["shift+enter"], ["backslash", "enter"]])
async def test_keys_that_break_the_line(keys: list[str]):
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.pilot.press("a", *keys, "b")
        assert stage.chat.prompt.text == "a\nb"
        assert not stage.chat.query(Question)


async def test_a_burst_of_typing_is_taken_in_the_order_it_was_typed():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        for key, character in [*((c, c) for c in "first"), ("enter", "\r"), *((c, c) for c in "next")]:
            stage.app.post_message(events.Key(key, character))
        await stage.sees("Bye.", "idle")
        assert stage.chat.conversation.history[0].content == "first"
        assert stage.chat.prompt.text == "next"


async def test_a_paste_never_sends_and_brings_no_control_bytes():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.write("a\r\nb\rc\n\x1b]52;c;aGk=\x07\u202e")
        assert stage.chat.prompt.text == "a\nb\nc\n␛]52;c;aGk="
        assert not stage.chat.query(Question)


async def test_a_paste_into_the_palette_is_as_clean():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+p")
        await stage.until(lambda: stage.app.screen is not stage.chat)
        await stage.write(ATTACK)
        await stage.until(lambda: stage.app.screen.query_one(Input).value == clean(ATTACK))


async def test_the_panel_of_keys_goes_with_esc():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        stage.app.action_show_help_panel()
        await stage.until(lambda: stage.chat.query(HelpPanel))
        await stage.pilot.press("escape")
        await stage.until(lambda: not stage.chat.query(HelpPanel))


async def test_the_welcome_fits_the_smallest_terminal():
    async with open_chat(ScriptedEngine(HELLO), size=(60, 16)) as stage:
        await stage.sees("Ask anything.", "scroll", "idle")


async def test_the_prompt_grows_to_ten_lines_and_up_recalls_the_last_message():
    async with open_chat(ScriptedEngine(HELLO), size=(80, 30)) as stage:
        prompt = stage.chat.prompt
        await stage.until(lambda: prompt.content_size.height == 1)
        await stage.write("\n".join(map(str, range(30))))
        await stage.until(lambda: prompt.content_size.height == 10)
        await stage.pilot.press("enter")
        await stage.until(lambda: prompt.content_size.height == 1)
        await stage.pilot.press("up")
        assert prompt.text == "\n".join(map(str, range(30)))


async def test_ctrl_c_stops_then_clears_then_quits_at_the_second_time(monkeypatch: pytest.MonkeyPatch):
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(3)
        await stage.send("hi")
        await stage.sees("Hello there")
        await stage.write("draft")
        await stage.pilot.press("ctrl+c")
        await stage.sees("stopped", "draft")
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.chat.prompt.text)
        monkeypatch.setattr(chat_module, "QUIT_SECONDS", 0.01)
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.chat.status.hint)  # too late for a second one
        monkeypatch.setattr(chat_module, "QUIT_SECONDS", 60)
        await stage.pilot.press("ctrl+c")
        await stage.sees("Press Ctrl+C again to quit.")
        await stage.pilot.press("ctrl+c")
        await stage.until(lambda: not stage.app.is_running)
    assert stage.app.return_code == 0


@pytest.mark.parametrize("key", ["ctrl+q", "ctrl+d"])
async def test_keys_that_quit(key: str):
    async with open_chat(ScriptedEngine()) as stage:
        await stage.ready()
        await stage.write("ab")
        await stage.pilot.press("home", "ctrl+d")
        assert stage.chat.prompt.text == "b"
        await stage.pilot.press("delete", key)
        await stage.until(lambda: not stage.app.is_running)


async def test_the_transcript_follows_until_the_user_scrolls_up():
    lines = answer(*(step(f"line {i}\n\n", accepted=0) for i in range(40)))
    engine = ScriptedEngine(lines, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(32)
        await stage.send("go")
        await stage.sees("line 29")
        await stage.pilot.press("pageup", "pageup")
        await stage.until(lambda: "line 29" not in stage.seen)
        engine.permit()
        await stage.sees("idle")
        assert "line 39" not in stage.seen
        await stage.pilot.press(*["pagedown"] * 5)
        await stage.sees("line 39", "tok/s")


async def test_when_the_engine_dies_nothing_is_lost_and_a_reload_goes_on():
    first, second = ScriptedEngine(HELLO, paused=True), ScriptedEngine(HELLO)
    async with open_chat(first, second) as stage:
        first.permit(3)
        await stage.send("hi")
        await stage.sees("Hello there")
        await stage.send("next")
        await stage.sees("You · queued")
        await stage.write("half a thought")
        first.die()
        await stage.sees("Hello there", "The engine's process is gone.", chat_module.DIED, "half a thought")
        assert len(first.requests) == 1
        await stage.pilot.press("ctrl+r")
        await stage.sees("Bye.", "idle", "half a thought")
        assert "oad it again" not in stage.seen  # advice that is no longer true
        assert [message.content for message in second.requests[0].messages or ()] == [
            "hi",
            "Hello there",
            "next",
        ]
        await stage.pilot.press("ctrl+r")  # nothing to reload
        assert len(stage.engines) == 2
    assert stage.app.return_code in {0, None}


async def test_a_failed_start_is_one_sentence_and_its_exit_code():
    refused = Failure("does_not_fit", "Not enough memory for big.", "Try: --quant int8", exit_code=5)
    async with open_chat(ScriptedEngine(opening=[refused]), ScriptedEngine(opening=[refused, DIED])) as stage:
        await stage.write("kept")
        await stage.sees("Not enough memory for big. Try: --quant int8", chat_module.NOT_LOADED, "kept")
        await stage.pilot.press("enter")
        await stage.sees("Your message stays here.", "kept")
        await stage.pilot.press("ctrl+r")
        await stage.until(lambda: len(stage.chat.query(Note)) == 2 and stage.chat.phase == "gone")
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


async def test_notices_are_one_line_each_before_the_answer_they_precede():
    notices = [Notice("warning", "pair", "No draft for [b]this[/b] model.", "Try: localspec pair")]
    async with open_chat(ScriptedEngine([*notices, *HELLO])) as stage:
        await stage.send("hi")
        await stage.sees("No draft for [b]this[/b] model. Try: localspec pair", "Bye.")
        assert [type(widget) for widget in stage.chat.transcript.children] == [Question, Note, Answer]


async def test_a_drafter_that_failed_is_no_longer_named_and_a_reload_brings_it_back():
    failed = Notice("warning", "drafter_failed", "The drafter failed (nan).", "Reload to try again.")
    first, second = ScriptedEngine([failed, *HELLO], paused=True), ScriptedEngine(HELLO)
    async with open_chat(first, second) as stage:
        first.permit(1)
        await stage.sees("⇐ guide-draft k=auto")
        await stage.send("hi")
        first.permit(1)
        await stage.sees("The drafter failed (nan).", "⇐ no draft: it failed · cpu")
        await stage.pilot.press("ctrl+r")  # not in mid-answer
        first.permit()
        await stage.sees("Bye.", "idle", "^R Reload")
        await stage.pilot.press("ctrl+r")
        await stage.sees("⇐ guide-draft k=auto", "Bye.")
        await stage.until(lambda: stage.chat.phase == "idle" and "^R Reload" not in stage.seen)
        assert stage.engine is second


@pytest.mark.parametrize("keys", [["ctrl+c", "ctrl+c"], ["ctrl+d"], ["ctrl+q"]])
async def test_who_leaves_while_the_model_loads_leaves_without_an_error(keys: list[str]):
    async with open_chat(ScriptedEngine(paused=True)) as stage:
        await stage.sees("loading")
        await stage.pilot.press(*keys)
        await stage.until(lambda: not stage.app.is_running)
    assert stage.app.return_code == 0


async def test_a_new_chat_forgets_the_old_one_even_while_it_is_being_answered():
    engine = ScriptedEngine(HELLO, HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(3)
        await stage.send("old")
        await stage.sees("Hello there")
        await stage.pilot.press("ctrl+n")
        await stage.sees("Ask anything.")
        engine.permit()
        await stage.sees(" idle")
        await stage.send("new")
        await stage.sees("Bye.", "idle")
        assert "old" not in stage.seen
        assert engine.requests[1].messages == (Message("user", "new"),)


async def test_a_terminal_too_small_says_so_and_growing_again_loses_nothing():
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        await stage.write("typed")
        await stage.pilot.resize_terminal(50, 10)
        await stage.sees("The terminal is 50×10; localspec needs")
        assert "Bye." not in stage.seen
        await stage.pilot.press("!")
        await stage.pilot.resize_terminal(60, 16)
        await stage.sees("Bye.", "typed!", "idle")


async def test_five_hundred_quick_steps_end_with_the_whole_text():
    words = [f"word{i} " for i in range(1500)]
    script = answer(*(step(*words[i : i + 3]) for i in range(0, 1500, 3)))
    async with open_chat(ScriptedEngine(script)) as stage:
        await stage.send("go")
        await stage.sees("1,500 tok", "word1499", "idle")
        shown = stage.chat.query_one(Answer)
        assert shown.text == "".join(words)
        assert shown._body.source == "".join(words)


async def test_it_runs_without_colour(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.send("hi")
        await stage.sees("You", "guide", "Bye.", "idle")


def test_every_key_has_a_name_of_its_own():
    names = [b.id for b in (*ChatScreen.BINDINGS, *ChatApp.BINDINGS, *Prompt.BINDINGS[-2:])]
    assert all(names)
    assert len(set(names)) == len(names)


# --- hostile text

ATTACK = "\x1b[2J\x9b2J[/no]"
ATTACKS = (
    "[/nope] [@click=app.quit]x[/] \x1b]52;c;aGk=\x07 \x1b[2J \x9b31m \x9d0;t\x9c \x1bP1$r\x1b\\ \x7f\u202e\u2066"
    "\U000e0041\x1b]8;;http://evil\x1b\\link [a](javascript:alert) ![i](http://evil/%1b%5d52) <http://evil/%1b%5b2J>"
    " &#x202e; &#x9b; <script>x</script>\ud800"
)
OWN_SEQUENCES = re.compile(  # colours and places, modes, the mouse pointer's shape
    r"\x1b(\[[\d;]*[mH]|\[[?<>][\d;$]*[a-z]|\]22;[a-z]+\x07)"
)


class CapturingDriver(HeadlessDriver):
    """What a terminal would be sent."""

    written: list[str]

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.__dict__.setdefault("written", []).append(data)


async def test_no_text_from_anywhere_reaches_the_terminal_as_a_command():
    """Escapes in a message, a reply, a model's name, a notice, an error: all are shown and none obeyed (F1, F2, F4)."""
    model, draft = ModelCard(ATTACK, ATTACK, ATTACK, 100, True), SpecCard("off", ATTACK, ATTACK, ATTACK)
    opening = [Loading(ATTACK, 1, 2), Ready(model, draft, READY.memory)]
    markdown = f"# {ATTACKS}\n\n- {ATTACKS}\n\n```{ATTACKS}\n{ATTACKS}\n```\n\n| {ATTACKS} |\n|---|\n| {ATTACKS} |\n"
    script = [
        *answer(step(*markdown))[:-1],
        Notice("info", ATTACKS, ATTACKS, ATTACKS),
        Failure("engine", ATTACKS, ATTACKS),
    ]
    engine = ScriptedEngine(script, opening=opening, paused=True)
    app = ChatApp(lambda: engine)
    app.driver_class = CapturingDriver
    async with app.run_test(size=(100, 60), headless=False) as pilot:
        stage = Stage(pilot, app, [])
        engine.permit(1)
        await stage.sees("50 %")
        engine.permit()
        await stage.sees("no draft")
        await app.chat.transcript.mount(Question(ATTACKS, queued=True))
        await stage.send(ATTACKS)
        await stage.until(lambda: app.chat.query(Note) and not app.chat.answer and app.chat.phase == "idle")
        await stage.sees("[/nope]", "␛")
        written = "".join(app._driver.__dict__["written"])
    left = OWN_SEQUENCES.sub("", written)
    assert "guide" not in left
    assert "[/nope]" in left
    assert FORBIDDEN.isdisjoint(left.replace("\r", "")), sorted(FORBIDDEN & set(left))


def test_no_markdown_can_spell_a_forbidden_code_point_or_a_link():
    """Fuzzed Markdown around entities, escapes and addresses: parsed tokens carry clean text and nothing to click."""
    rng = random.Random(4)
    spells = (
        "&#x202e;",
        "&#27;",
        "&#x9b;",
        "<http://a/%1b>",
        "[t](http://a/%9b)",
        "![i](/x%07)",
        "`",
        "**",
        "|\n",
        "# ",
    )
    for text in fuzzed(5, 500):
        pieces = [text, *rng.choices(spells, k=5)]
        rng.shuffle(pieces)
        for token in parser().parse("".join(pieces)):
            inline = token.children or []
            assert FORBIDDEN.isdisjoint("".join(child.content for child in inline)), ascii(pieces)
            assert not {"link_open", "image", "html_inline"} & {child.type for child in inline}
            assert token.type != "html_block"
            if token.type in {"fence", "code_block"}:
                assert FORBIDDEN.isdisjoint(token.content + token.info)


def test_a_link_shows_where_it_goes():
    text = "[docs](https://x.org/a) <https://y.org> https://z.org [evil](javascript:x)"
    inline = parser().parseInline(text)[0].children or []
    shown = "".join(child.content for child in inline)
    assert shown == "docs (https://x.org/a) https://y.org https://z.org [evil](javascript:x)"


async def test_an_answer_that_fails_before_a_word_leaves_the_chat_alive():
    """A stream stopped before its task ran raised CancelledError into the screen, which then took no more keys."""
    overflow = Failure("context_overflow", "The prompt is 3,609 tokens.", "Shorten it.", 5)
    async with open_chat(ScriptedEngine([overflow], HELLO)) as stage:
        await stage.ready()
        await stage.send("too long " * 50)
        await stage.sees("The prompt is 3,609 tokens. Shorten it.", "idle")
        await stage.send("hi")
        await stage.sees("Hello there, world. Bye")


async def test_an_answer_that_ends_in_the_tick_it_began_leaves_the_chat_alive():
    answer_widget = Answer("guide")
    async with open_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.chat.show(answer_widget)
        answer_widget.add("all at once")
        await answer_widget.fail("and over")
        await stage.sees("all at once", "and over")
        assert stage.chat.is_running
