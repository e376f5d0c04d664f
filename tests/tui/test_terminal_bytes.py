"""What a terminal is sent while strangers' texts are on the screen: no command, however many there are (F1, F2, F4)."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from textual.widget import Widget
from textual.widgets import OptionList

from localspec.core.events import Loading, ModelCard, SpecCard
from localspec.history import History, NewChat, StoredChat, recall
from localspec.tui.app import ChatApp
from localspec.tui.chat.recorder import HistoryRecorder
from localspec.tui.panels.chat_list import ChatRow
from localspec.tui.panels.header import Header
from localspec.tui.panels.stats_line import loading_words
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.question import Question
from tests.core.test_sanitize import FORBIDDEN, fuzzed
from tests.support.chat_stage import HELLO, Stage, kept_chat
from tests.support.scripted_engine import ScriptedEngine, answer, step
from tests.tui.test_chat_hostile import ATTACKS, OWN_SEQUENCES, CapturingDriver
from tests.tui.test_hostile_text_on_screens import OWN_TITLE, Everything, TitledDriver

pytestmark = pytest.mark.heavy

TALL = (200, 300)  # all of a handful is in sight, or it would not be drawn
HANDFUL = 100
COPIED = re.compile(r"\x1b\]52;[^\x07]*\x07")
BRACKETS = (
    *("[", "]", "[/", "/]", "[]", "[/]", "[[", "\\[", "\\", "[b", "[/nope]", "[b]", "[/b]", "[red on", "[$accent]"),
    *("[#ff0000]", "[@click=app.quit]", "[@click=app.quit()]x[/]", "[link='http://x']", "[link=", "[not b]", "[1]"),
    *("[=]", "[b i u]", "x", " ", '"', "'", "=", "(", ")", "$", "#", "@", "漢", "é"),
)


def bracketed(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return ["[" + "".join(rng.choices(BRACKETS, k=rng.randint(1, 15))) for _ in range(count)]


def handfuls(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[at : at + HANDFUL] for at in range(0, len(texts), HANDFUL))


def chats_in(rows: OptionList) -> int:
    """Headings are none."""
    return sum(isinstance(row, ChatRow) and not row.disabled for row in rows.options)


def cut_anywhere(text: str, rng: random.Random) -> list[str]:
    """As a model writes it: its tokens end where they like, in the middle of a command too."""
    cuts = sorted(rng.choices(range(len(text) + 1), k=len(text) // 4))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


class Screen:
    """An open chat on a tall terminal, and all that the terminal has been sent since the last look."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.chats = stage, list[StoredChat]()
        stage.chat.chats.store.chats = lambda limit: self.chats  # type: ignore[method-assign]  # noqa: ARG005

    def sent(self) -> str:
        written: list[str] = self.stage.app._driver.__dict__["written"]  # type: ignore[union-attr]
        told = "".join(written)
        written.clear()
        return told

    async def show(self, *shown: Widget) -> None:
        """These and nothing else, all in sight."""
        transcript = self.stage.chat.transcript
        await transcript.remove_children()
        await transcript.mount(*shown)
        for _ in range(3):
            await self.stage.pilot.pause()
        assert transcript.max_scroll_y == 0

    # --- the doors: each shows a handful

    async def question(self, texts: Sequence[str]) -> None:
        await self.show(Question("\n".join(texts)))

    async def note(self, texts: Sequence[str]) -> None:
        await self.show(*(Note("\n".join(texts[at::2]), level="error") for at in range(2)))

    async def markdown(self, texts: Sequence[str]) -> None:
        await self.answer(texts, "\n\n")

    async def tokens(self, texts: Sequence[str]) -> None:
        (await self.answer(texts, "\n")).view = "tokens"
        await self.stage.pilot.pause()
        await self.stage.pilot.pause()

    async def answer(self, texts: Sequence[str], between: str) -> Answer:
        shown, rng = Answer(texts[0]), random.Random(len(texts[0]))
        await self.show(shown)
        pieces = cut_anywhere(between.join(texts), rng)
        for at in range(0, len(pieces), 3):
            shown.add(step(*pieces[at : at + 3]))
            if not rng.randrange(200):
                await shown.flush()
        await shown.end()
        await self.stage.pilot.pause()
        return shown

    async def titles(self, texts: Sequence[str]) -> None:
        """Of chats in the sidebar; of the terminal too, one after the other."""
        self.chats = [
            StoredChat(f"{n}", text, "", "", "", None, None, 2, False, False, 2) for n, text in enumerate(texts)
        ]
        self.stage.chat.sidebar.read()
        rows = self.stage.chat.sidebar.list
        await self.stage.until(
            lambda: sum(isinstance(row, ChatRow) and not row.disabled for row in rows.options) == len(texts)
        )
        for text in texts:
            self.stage.app.title = text
        await self.stage.pilot.pause()

    async def names(self, texts: Sequence[str]) -> None:
        """Of models and drafters, and of what is loaded."""
        headers = [Header() for _ in texts]
        for shown, text in zip(headers, texts, strict=True):
            shown.show(ModelCard(text, text, text, 9, True), SpecCard("model", text, text))
        await self.show(*headers)
        self.stage.chat.status.give_hint(loading_words(Loading(texts[0], 1, 2)))
        await self.stage.pilot.pause()


DOORS: dict[str, Callable[[Screen, Sequence[str]], object]] = {
    "questions": Screen.question,
    "notes": Screen.note,
    "answers": Screen.markdown,
    "tokens": Screen.tokens,
    "titles": Screen.titles,
    "names": Screen.names,
}


@asynccontextmanager
async def tall_chat() -> AsyncIterator[Screen]:
    app = ChatApp(ScriptedEngine, recorder=HistoryRecorder(Everything()))
    app.driver_class = TitledDriver
    async with app.run_test(size=TALL, headless=False) as pilot:
        stage = Stage(pilot, app, [])
        await stage.ready()
        yield Screen(stage)


def harmless(sent: str) -> None:
    """Colours, places and titles taken out, there is no control byte left; nor has one come into a title."""
    assert FORBIDDEN.isdisjoint("".join(OWN_TITLE.findall(sent)))
    left = OWN_SEQUENCES.sub("", OWN_TITLE.sub("", sent)).replace("\r", "")
    assert FORBIDDEN.isdisjoint(left), sorted(FORBIDDEN & set(left))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [200, pytest.param(17_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("door", DOORS)
async def test_fuzzed_texts_in_sight_send_the_terminal_no_command(door: str, count: int):
    """Of 102,000 strings a sixth through each door, and a tenth as many full of brackets; no key copies any (F4)."""
    seen = 0
    async with tall_chat() as screen:
        for texts in handfuls(fuzzed(21, count) + bracketed(22, count // 10)):
            await DOORS[door](screen, texts)  # type: ignore[misc]
            sent = screen.sent()
            harmless(sent)
            seen += sent.count("nope")
        assert not screen.stage.app.clipboard
    assert seen, "nothing was drawn"
    print(f"\n{door}: {count + count // 10:,} strings")


# --- titles in brackets, in a history that a chat begins with


@pytest.mark.slow
@pytest.mark.parametrize(("count", "starts"), [(200, 2), pytest.param(10_000, 50, marks=pytest.mark.slow)])
async def test_chats_titled_in_brackets_are_listed_and_opened_at_the_next_start(count: int, starts: int):
    """F2: nothing that a title says keeps the program from beginning."""
    names = bracketed(23, count)
    with History() as history:
        ids = [history.begin(NewChat(name, title=name, system=name), name).chat_id for name in names]
    for chat_id in random.Random(24).sample(ids, starts):
        past = recall(chat_id)
        async with kept_chat(ScriptedEngine(HELLO), size=(150, 30), past=past) as stage:
            await stage.ready()
            assert [said.text for said in stage.messages] == [past.chat.title]
            await stage.asks("still there?", "Bye.", "idle")
    async with kept_chat(ScriptedEngine(HELLO), size=(150, 30)) as stage:
        await stage.pilot.press("ctrl+b")
        rows = stage.chat.sidebar.list
        await stage.until(lambda: rows.option_count)
        while chats_in(rows) < count:
            listed = rows.option_count
            await stage.pilot.press("end")
            await stage.until(lambda: rows.option_count != listed)  # noqa: B023
    print(f"\n{count:,} titles listed, {starts + 1} starts")


# --- the clipboard


async def test_the_terminal_s_clipboard_is_written_when_a_key_is_pressed_and_never_else(
    monkeypatch: pytest.MonkeyPatch,
):
    """F4: an answer that spells the command copies nothing; the user's own copy is one command, of clean text."""
    monkeypatch.setattr("localspec.tui.terminal.clipboard.put", lambda _: True)
    engine = ScriptedEngine(answer(step(*ATTACKS)))
    app = ChatApp(lambda: engine)
    app.driver_class = CapturingDriver
    async with app.run_test(size=(100, 40), headless=False) as pilot:
        stage = Stage(pilot, app, [])
        await stage.ready()
        await stage.send(ATTACKS)
        await stage.sees("[/nope]", "idle")
        written: list[str] = app._driver.__dict__["written"]  # type: ignore[union-attr]
        assert not COPIED.findall("".join(written))
        await stage.send("/copy")
        await stage.sees("Copied.")
        assert len(COPIED.findall("".join(written))) == 1
        assert FORBIDDEN.isdisjoint(app.clipboard)
