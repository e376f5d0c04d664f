"""Text from anywhere, shown by the chat and obeyed by nothing."""

from __future__ import annotations

import random
import re

import pytest
from textual.drivers.headless_driver import HeadlessDriver

from localspec.core.events import Failure, Loading, ModelCard, Notice, Ready, SpecCard
from localspec.history import Attachment, Generation, OpenChat, StoredChat, StoredMessage, Tree
from localspec.tui.app import ChatApp
from localspec.tui.markdown.parser import parser
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.question import Question
from tests.core.test_sanitize import FORBIDDEN, fuzzed
from tests.support.chat_stage import HELLO, Stage
from tests.support.scripted_engine import READY, ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy

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


def hostile_past() -> OpenChat:
    """A chat from a history that somebody else wrote."""
    made = Generation(ATTACKS, stats=HELLO[-1].stats)  # type: ignore[union-attr]
    said = (
        StoredMessage(1, ATTACKS, None, "user", ATTACKS, "done", ATTACKS),
        StoredMessage(2, ATTACKS, 1, "assistant", ATTACKS, "stopped", ATTACKS, generation=made),
        StoredMessage(3, ATTACKS, 2, "assistant", ATTACKS, "done", ATTACKS),
    )
    chat = StoredChat(ATTACKS, ATTACKS, ATTACKS, ATTACKS, ATTACKS, ATTACKS, ATTACKS, 3, False, 3)
    return OpenChat(chat, Tree(said))


async def test_no_text_from_anywhere_reaches_the_terminal_as_a_command():
    """In messages, replies, a model's name, notices, errors, an old chat: all is shown, nothing obeyed (F1, F2, F4)."""
    model, draft = ModelCard(ATTACK, ATTACK, ATTACK, 100, True), SpecCard("off", ATTACK, ATTACK, ATTACK)
    opening = [Loading(ATTACK, 1, 2), Ready(model, draft, READY.memory)]
    thought = f"<think>{ATTACKS}</think>\n\n"
    markdown = (
        thought + f"# {ATTACKS}\n\n- {ATTACKS}\n\n```{ATTACKS}\n{ATTACKS}\n```\n\n| {ATTACKS} |\n|---|\n| {ATTACKS} |\n"
    )
    script = [
        *answer(step(*markdown))[:-1],
        Notice("info", ATTACKS, ATTACKS, ATTACKS),
        Failure("engine", ATTACKS, ATTACKS),
    ]
    engine = ScriptedEngine(script, opening=opening, paused=True)
    app = ChatApp(lambda: engine, past=hostile_past())
    app.driver_class = CapturingDriver
    async with app.run_test(size=(100, 60), headless=False) as pilot:
        stage = Stage(pilot, app, [])
        engine.permit(1)
        await stage.sees("50 %")
        engine.permit()
        await stage.sees("no draft")
        attached = (Attachment(ATTACKS, text=ATTACKS),)
        await app.chat.transcript.mount(Question(ATTACKS, attachments=attached))
        app.chat.prompt.pills.add(*attached)
        await stage.send(ATTACKS)
        await stage.until(
            lambda: len(app.chat.query(Note)) == 3 and not app.chat.state.answer and app.chat.state.phase == "idle"
        )
        await stage.sees("[/nope]", "␛")
        written = "".join(app._driver.__dict__["written"])
        assert not app.clipboard, "only a key copies"
    left = OWN_SEQUENCES.sub("", written)
    assert "guide" not in left.replace("goes on with guide", "")
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
