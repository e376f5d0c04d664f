"""A window of a long chat: as many messages as a screen needs, and what is read stays where it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.events import MouseScrollUp

from localspec.history import History, OpenChat, StoredMessage, recall
from localspec.tui.transcript import transcript
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import More
from localspec.tui.transcript.question import Question
from tests.support.chat_stage import HELLO, Stage, open_chat
from tests.support.chats import MESSAGE, ROUNDS, chat
from tests.support.chats import answer as kept_answer
from tests.support.scripted_engine import ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy


def long_chat(messages: int) -> OpenChat:
    """A chat of so many, written at once; every answer is three lines high."""
    with History() as history:
        chat_id = chat(history, "said 0", title="long")[0].chat_id
        texts = [f"said {n}" + "\n\nand more" * (n % 2) for n in range(1, messages)]
        rows = [(n + 2, chat_id, n + 1, "user" if n % 2 else "assistant", text) for n, text in enumerate(texts)]
        insert = f"INSERT INTO message{MESSAGE} VALUES (?, ?, ?, ?, ?, 'done', '')"
        history._database.write(lambda db: db.executemany(insert, rows))
        history.set_head(chat_id, messages)
    return recall()


@asynccontextmanager
async def opened(messages: int, *, engine: ScriptedEngine | None = None) -> AsyncIterator[Stage]:
    """With the end of the chat in sight."""
    async with open_chat(engine or ScriptedEngine(), past=long_chat(messages)) as stage:
        await stage.ready()
        await stage.sees(f"said {messages - 1}")
        yield stage


def mounted(stage: Stage) -> list[int]:
    """The numbers of the messages that are widgets, top to bottom."""
    widgets = [child for child in stage.chat.transcript.children if isinstance(child, Question | Answer)]
    return [int(widget.text.split()[1]) for widget in widgets]


def row(stage: Stage, text: str) -> int | None:
    """Where it stands on the screen."""
    return next((n for n, line in enumerate(stage.seen.splitlines()) if text in line), None)


def top(stage: Stage) -> str:
    """The first message in sight that is named."""
    return next(line for line in stage.seen.splitlines()[2:] if "said" in line).split("▌")[-1].strip(" ▊▎")


async def settled(stage: Stage) -> None:
    """Nothing more is laid out: the same screen several times."""
    seen, same = "", 0

    def again() -> bool:
        nonlocal seen, same
        before, seen = seen, stage.seen
        same = same + 1 if seen == before else 0
        return same > 5

    await stage.until(again)


async def test_the_end_of_a_long_chat_is_mounted_and_says_how_much_is_before_it():
    async with opened(1000) as stage:
        assert mounted(stage) == list(range(980, 1000))
        assert [str(more.content) for more in stage.chat.query(More)] == ["▲ 980 earlier messages"]


async def test_at_the_top_earlier_messages_come_and_what_is_read_stays_where_it_is():
    async with opened(100) as stage:
        await settled(stage)
        scroll = stage.chat.transcript
        scroll.scroll_to(y=3, animate=False)
        await settled(stage)
        read = top(stage)
        at = row(stage, read)
        assert mounted(stage)[0] == 80
        scroll.scroll_to(y=0, animate=False)
        await stage.until(lambda: mounted(stage)[0] == 70)
        await settled(stage)
        assert row(stage, read) == (at or 0) + 3
        assert scroll.scroll_y > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["wheel", "pageup", "pointing"])
async def test_every_way_up_reaches_the_first_message(how: str):
    async with opened(35) as stage:
        for _ in range(200):
            if how == "wheel":
                scroll = stage.chat.transcript
                scroll.post_message(MouseScrollUp(scroll, 1, 1, 0, -1, 0, False, False, False))
                await stage.pilot.pause()
            else:
                await stage.pilot.press("pageup" if how == "pageup" else "alt+up")
            if mounted(stage)[0] == 0:
                break
        await stage.until(lambda: mounted(stage)[0] == 0 and not stage.chat.query(More))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["click", "pageup"])
async def test_where_all_that_is_mounted_is_in_sight_more_comes_too(how: str):
    async with open_chat(ScriptedEngine(), past=long_chat(45), size=(80, 150)) as stage:
        await stage.sees("▲ 25 earlier messages", "said 44")
        await (stage.pilot.press(how) if how == "pageup" else stage.pilot.click(stage.chat.query(More).first()))
        await stage.sees("▲ 15 earlier messages", "said 15")


async def test_messages_far_from_the_window_are_removed_and_come_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transcript, "MOST", 30)
    async with opened(100) as stage:
        scroll = stage.chat.transcript
        for first in (70, 60, 50):
            scroll.scroll_to(y=1, animate=False)
            await settled(stage)
            scroll.scroll_to(y=0, animate=False)
            await stage.until(lambda first=first: mounted(stage)[0] == first)
            await settled(stage)
        assert mounted(stage) == list(range(50, 80))
        assert "said 79" not in stage.seen
        for last in (89, 99):
            scroll.scroll_to(y=scroll.max_scroll_y - 1, animate=False)
            await settled(stage)
            read, at = top(stage), row(stage, top(stage))
            scroll.scroll_to(y=scroll.max_scroll_y, animate=False)
            await stage.until(lambda last=last: mounted(stage)[-1] == last)
            await settled(stage)
            assert row(stage, read) in {at, (at or 0) - 1}
        assert mounted(stage) == list(range(70, 100))
        assert not [more for more in stage.chat.query(More) if more.direction > 0]


@pytest.mark.slow
async def test_who_asks_from_far_above_is_brought_to_the_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transcript, "MOST", 20)
    async with opened(100, engine=ScriptedEngine(HELLO)) as stage:
        for _ in range(3):
            stage.chat.transcript.page(-1)
            stage.chat.transcript.scroll_to(y=0, animate=False)
            await settled(stage)
        await stage.until(lambda: mounted(stage)[-1] < 99)
        await stage.send("said 100")
        await stage.sees("Hello there, world. Bye.", "idle")
        assert [widget.text for widget in stage.chat.query(Question)][-1] == "said 100"
        assert stage.engine.requests[0].messages is not None
        assert len(stage.engine.requests[0].messages) == 101


@pytest.mark.slow
async def test_an_answer_that_is_being_written_stays_in_the_window(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transcript, "MOST", 20)
    engine = ScriptedEngine(HELLO, paused=True)
    engine.permit(1)
    async with opened(100, engine=engine) as stage:
        engine.permit(2)
        await stage.send("said 100")
        await stage.sees("Hello there")
        for _ in range(3):
            stage.chat.transcript.scroll_to(y=0, animate=False)
            await settled(stage)
        engine.permit()
        await stage.ready()
        assert stage.chat.query(Answer).last().text == "Hello there, world. Bye."
        stage.chat.transcript.scroll_end(animate=False)
        await stage.sees("Bye.")


@pytest.mark.slow
async def test_a_long_talk_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transcript, "MOST", 10)
    scripts = [answer(step(f"said {2 * n + 1}", accepted=0)) for n in range(8)]
    async with open_chat(ScriptedEngine(*scripts)) as stage:
        for number in range(8):
            await stage.send(f"said {2 * number}")
            await stage.until(
                lambda number=number: len(stage.engine.requests) == number + 1 and stage.chat.state.phase == "idle"
            )
        assert mounted(stage) == list(range(6, 16))
        await stage.sees("said 15")


async def test_what_grows_above_does_not_move_what_is_read():
    """Rounds found later make an answer higher; so does its token view."""
    async with opened(40) as stage:
        scroll = stage.chat.transcript
        scroll.scroll_to(y=scroll.max_scroll_y // 2, animate=False)
        await settled(stage)
        read, at = top(stage), row(stage, top(stage))
        first = next(child for child in scroll.children if isinstance(child, Answer))
        first.recall(ROUNDS * 40)
        first.view = "tokens"
        await stage.until(lambda: first.size.height > 6)
        await settled(stage)
        assert row(stage, read) == at


@pytest.mark.slow
async def test_rounds_are_read_for_what_is_mounted_and_for_nothing_else():
    with History() as history:
        for written in chat(history, *(f"said {n}" for n in range(100)))[1::2]:
            history.save(written.id, kept_answer(written.content))
    asked: list[int] = []
    async with open_chat(ScriptedEngine(), past=recall()) as stage:
        stage.chat.transcript._rounds = lambda message_id: asked.append(message_id) or ROUNDS  # type: ignore[func-returns-value]
        await stage.ready()
        stage.chat.transcript.scroll_home(animate=False)
        await stage.until(lambda: mounted(stage)[0] == 70)
        await stage.until(lambda: len(asked) >= 5)
        assert set(asked) <= set(range(71, 101))


async def test_the_last_words_are_there_before_the_rest_of_the_window(monkeypatch: pytest.MonkeyPatch):
    """A screen of them is all that one waits for; the others come above it, and what is read stays."""
    fill = transcript.Transcript.fill

    async def later(_: transcript.Transcript) -> None: ...

    monkeypatch.setattr(transcript.Transcript, "fill", later)
    async with opened(1000) as stage:
        assert mounted(stage) == [996, 997, 998, 999]
        await settled(stage)
        seen, before = stage.seen, row(stage, "said 999")
        await fill(stage.chat.transcript)
        await settled(stage)
        assert mounted(stage) == [*range(980, 1000)]
        assert row(stage, "said 999") == before, seen


async def test_a_sibling_far_above_is_shown_with_what_is_around_it():
    """Going from version to version at the top of a long chat mounts that place, not all that follows."""
    past = long_chat(200)
    with History() as history:
        history.append(StoredMessage.unsaved(past.chat.id, "assistant", "said 1 otherwise", past.branch[0].id))
    async with open_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.sees("said 1 otherwise")
        await stage.pilot.press("alt+up", "[")
        await stage.sees("▶ guide ", "‹1/2›")
        await stage.until(lambda: mounted(stage)[:3] == [0, 1, 2])
        assert len(mounted(stage)) <= transcript.SHOWN
        await stage.pilot.press("]")
        await stage.sees("said 1 otherwise", "▶ guide ", "‹2/2›")
