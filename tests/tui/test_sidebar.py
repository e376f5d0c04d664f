"""The chats that were kept are at hand while one runs: seen, found, opened, renamed, deleted, whatever their state."""

from __future__ import annotations

import re
import sqlite3
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from localspec.core import paths
from localspec.core.requests import Message
from localspec.history import History, NewChat, SearchHit, StoredMessage, Writer, open_file, recall, writer
from localspec.history.records import TextPart
from localspec.tui.chat import recorder
from localspec.tui.chat.chat_store import NOT_KEPT, ChatStore
from localspec.tui.panels import chat_list, sidebar
from localspec.tui.panels.chat_list import ChatRow, Signs
from localspec.tui.panels.sidebar import NO_CHATS, NO_HITS
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Note
from tests.core.test_sanitize import FORBIDDEN
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.chats import chat, reply
from tests.support.scripted_engine import ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy

NARROW, OVER, WIDE = (60, 16), (100, 24), (150, 30)
SIZES = [NARROW, (80, 24), OVER, WIDE]
SHORT = answer(step("Bye", "."))
ATTACK = "[/nope]\x1b]52;c;aGk=\x07\x9b2J\u202e [@click=app.quit]x[/]"


@pytest.fixture(autouse=True)
def quick_to_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidebar, "TYPING_SECONDS", 0.01)
    monkeypatch.setattr(chat_list, "REST_SECONDS", 0)


def titles(stage: Stage) -> list[str]:
    """Of the rows that can be chosen, in order."""
    return [row.title for row in stage.chat.sidebar.list.options if isinstance(row, ChatRow) and not row.disabled]


def headings(stage: Stage) -> list[str]:
    return [str(row.prompt).strip() for row in stage.chat.sidebar.list.options if row.disabled]


def notes(stage: Stage) -> list[str]:
    return [str(note.content) for note in stage.chat.query(Note)]


def line(stage: Stage) -> str:
    return str(stage.chat.sidebar.line.content)


def said(stage: Stage) -> list[str]:
    return [message.text for message in stage.messages]


async def ask(stage: Stage, text: str) -> None:
    await stage.ready()
    answers = len(stage.chat.query(Answer))
    await stage.send(text)
    await stage.until(lambda: len(stage.chat.query(Answer)) == answers + 1 and stage.chat.state.phase == "idle")


async def show_chats(stage: Stage, *expected: str) -> None:
    """And be there with the cursor."""
    await stage.pilot.press("ctrl+b")
    await stage.until(lambda: titles(stage) == list(expected) and stage.chat.sidebar.list.has_focus)


def dated(chat_id: str, at: datetime) -> None:
    with History() as history:
        history._database.write(
            lambda db: db.execute("UPDATE conversation SET updated_at = ? WHERE id = ?", (at.isoformat(), chat_id))
        )


# --- where it is


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_chats_stand_beside_a_wide_chat_and_come_over_a_narrow_one_when_asked(size: tuple[int, int]):
    with History() as history:
        chat(history, "Trip notes")
    async with kept_chat(ScriptedEngine(HELLO), size=size) as stage:
        panel, prompt, transcript = stage.chat.sidebar, stage.chat.prompt, stage.chat.transcript
        await stage.sees("Ask anything.", "idle")
        if size == WIDE:
            await stage.sees("Today", "Trip notes")
        assert panel.display == (size == WIDE)
        assert prompt.has_focus
        await show_chats(stage, "Trip notes")
        await stage.sees("Today", "Trip notes", "Enter open")
        assert ("leaves it." in stage.seen) == (size != NARROW)
        assert transcript.region.overlaps(panel.region) == (size != WIDE)
        await stage.pilot.press("escape")
        await stage.until(lambda: prompt.has_focus and panel.display == (size == WIDE))
        await show_chats(stage, "Trip notes")
        await stage.pilot.press("ctrl+b")
        await stage.until(lambda: prompt.has_focus and not panel.display)


@pytest.mark.slow
async def test_what_the_user_hid_stays_hidden_and_an_overlay_does_not_come_by_itself():
    with History() as history:
        chat(history, "Trip notes")
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        panel = stage.chat.sidebar
        await stage.until(lambda: panel.display)
        await stage.pilot.resize_terminal(100, 24)
        await stage.until(lambda: not panel.display)
        await stage.pilot.resize_terminal(150, 30)
        await stage.until(lambda: panel.display)
        await stage.pilot.press("ctrl+b", "ctrl+b")
        await stage.until(lambda: not panel.display)
        await stage.pilot.resize_terminal(140, 30)
        await stage.pilot.pause()
        assert not panel.display


def test_chats_are_grouped_by_the_day_of_the_users_clock():
    today = date(2026, 3, 10)
    days = {0: "Today", -1: "Today", 1: "Yesterday", 2: "Previous 7 days", 7: "Previous 7 days", 8: "Older"}
    for ago, name in days.items():
        noon = datetime(2026, 3, 10, 12).astimezone() - timedelta(days=ago)
        assert chat_list.period(noon.astimezone(UTC).isoformat(), today) == name
    assert chat_list.period("no time", today) == "Older"


async def test_pinned_chats_stand_first_and_the_running_one_has_a_sign():
    with History() as history:
        pinned, old, new = (chat(history, name)[0].chat_id for name in ("pinned", "old", "new"))
        history.change(pinned, pinned=True)
    dated(old, datetime.now(UTC) - timedelta(days=40))
    past = recall(new)
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE, past=past) as stage:
        await stage.until(lambda: titles(stage) == ["pinned", "new", "old"])
        assert headings(stage) == ["Pinned", "Today", "Older"]
        await stage.sees("▸ new")
        assert stage.seen.count("▸") == 1
        await show_chats(stage, "pinned", "new", "old")
        await stage.pilot.press("up", "p")
        await stage.until(lambda: titles(stage) == ["new", "pinned", "old"])
        await stage.pilot.press("ctrl+n")
        await stage.until(lambda: "▸" not in stage.seen)


@pytest.mark.parametrize("size", [OVER, WIDE], ids=str)
async def test_the_cursor_starts_at_the_open_chat(size: tuple[int, int]):
    """Wherever it was left, and whatever is pinned: r and Delete act on what the user reads."""
    with History() as history:
        pinned, new = (chat(history, name, "Sure.")[0].chat_id for name in ("pinned", "new"))
        history.change(pinned, pinned=True)
    async with kept_chat(ScriptedEngine(HELLO), size=size, past=recall(new)) as stage:
        for _ in range(2):
            await show_chats(stage, "pinned", "new")
            await stage.until(lambda: (row := stage.chat.sidebar.list.row) and row.title == "new")
            await stage.pilot.press("up", "escape")
            await stage.until(lambda: stage.chat.prompt.has_focus)
        await show_chats(stage, "pinned", "new")
        await stage.pilot.press("delete")
        await stage.until(lambda: "delete “new”" in line(stage))
        await stage.pilot.press("slash", *"sure")
        await stage.until(lambda: titles(stage) and stage.chat.sidebar.list.row.message_id)  # type: ignore[union-attr]
        assert stage.chat.sidebar.list.row.title == titles(stage)[0], "of what was found the first"
        await stage.pilot.press("escape", "ctrl+n")
        await stage.until(lambda: stage.chat.prompt.has_focus)
        await show_chats(stage, "pinned", "new")
        await stage.until(lambda: (row := stage.chat.sidebar.list.row) and row.title == "pinned")


# --- opening


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_chosen_chat_goes_on_with_its_words_and_its_system_prompt(size: tuple[int, int]):
    with History() as history:
        first = history.begin(NewChat("guide", title="Rhymes", system="Rhyme."), "one")
        reply(history, first, "fun")
        chat(history, "two", "shoe")
    engine = ScriptedEngine(HELLO, SHORT)
    async with kept_chat(engine, size=size) as stage:
        await ask(stage, "here")
        await show_chats(stage, "here", "two", "Rhymes")
        await stage.pilot.press("end", "enter")
        await stage.until(lambda: said(stage) == ["one", "fun"])
        await stage.sees("Rhymes · begun 20", "fun")
        assert stage.chat.prompt.has_focus
        assert "tok/s" not in stage.seen.replace("– tok/s", "")
        await ask(stage, "three")
    expected = [("system", "Rhyme."), ("user", "one"), ("assistant", "fun"), ("user", "three")]
    assert engine.requests[1].messages == tuple(Message(*each) for each in expected)  # type: ignore[arg-type]
    assert [each.content for each in recall(first.chat_id).branch] == ["one", "fun", "three", "Bye."]


async def test_an_answer_is_stopped_and_kept_when_another_chat_is_chosen_and_what_waits_comes_back():
    with History() as history:
        chat(history, "other", "answered")
    engine = ScriptedEngine(HELLO, SHORT, paused=True)
    async with kept_chat(engine, size=WIDE) as stage:
        await stage.begins("mine")
        await stage.send("waits")
        await stage.until(lambda: titles(stage) == ["mine", "other"])
        await show_chats(stage, "mine", "other")
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: said(stage) == ["other", "answered"])
        assert stage.chat.prompt.text == "", "it belongs to the chat that it was written in"
        engine.permit()
        await stage.ready()
        assert stage.chat.status.stats.predicted_n == 0
        (left,) = (found.id for found in stage.chat.chats.store.chats(9) if found.title == "mine")
        await stage.chat.chats.choose(left, None, "")
        await stage.until(lambda: stage.chat.prompt.text == "waits")
        await stage.pilot.press("enter")
        await stage.until(lambda: said(stage)[-2:] == ["waits", "Bye."] and stage.chat.state.phase == "idle")
    with History() as history:
        mine, other = (history.open(found.id).branch for found in history.chats())
    assert [each.content for each in other] == ["other", "answered"]
    assert [(each.content, each.status) for each in mine] == [
        ("mine", "done"),
        ("Hello there", "stopped"),
        ("waits", "done"),
        ("Bye.", "done"),
    ]


async def test_a_hostile_title_is_shown_everywhere_and_harmless():
    with History() as history:
        chat(history, ATTACK, f"{ATTACK} needle")
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        await stage.until(lambda: len(titles(stage)) == 1)
        await stage.pilot.press("ctrl+b", "delete")
        await stage.sees("[/nope]␛]52", "Press Del again")
        await stage.pilot.press("r")
        await stage.until(lambda: stage.chat.sidebar.name_field.has_focus)
        await stage.pilot.press("escape", "slash", *"needle")
        await stage.until(lambda: "Answer: " in stage.seen)
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.messages) == 2)
        assert FORBIDDEN.isdisjoint(stage.seen.replace("\n", ""))
        await stage.ready()
        await stage.pilot.press("ctrl+p", *"nope")
        await stage.until(lambda: "[/nope]␛]52" in screen_of(stage))
        await stage.pilot.press("escape")


def screen_of(stage: Stage) -> str:
    return "\n".join(strip.text for strip in stage.app.screen._compositor.render_strips())


# --- searching


def branches() -> tuple[str, int]:
    """A chat with two answers, the second shown; the hit is in the first."""
    with History() as history:
        question = chat(history, "Which fruit?", title="Fruit")[0]
        first = reply(history, question, "An apricot, surely.\n" + "Long.\n\n" * 60)
        follow = reply(history, first, "And then?")
        second = reply(history, question, "A plum.")
        history.set_head(question.chat_id, second.id)
    assert follow.id < second.id
    return question.chat_id, first.id


async def test_a_search_marks_what_it_found_and_opens_the_branch_with_the_message():
    chat_id, _ = branches()
    with History() as history:
        chat(history, "nothing here")
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        await stage.until(lambda: len(titles(stage)) == 2)
        await stage.pilot.press("ctrl+b", "slash", *"aprico")
        await stage.until(lambda: headings(stage) == ["Fruit"])
        await stage.sees("Answer: An apricot")
        (row,) = [row for row in stage.chat.sidebar.list.options if not row.disabled]
        marked = {row.prompt.plain[span.start : span.end] for span in row.prompt.spans if span.style == chat_list.MATCH}
        assert marked == {"apricot"}
        await stage.pilot.press("enter")
        await stage.until(lambda: len(stage.messages) == 3)
        assert said(stage)[2] == "And then?"
        answer = stage.messages[1]
        await stage.until(lambda: answer.has_class("-found"))
        await stage.until(lambda: "apricot, surely." in stage.seen)
        await stage.sees("Find aprico", "1 of 1 · n next N back")
    assert recall(chat_id).branch[-1].content == "And then?"


@pytest.mark.slow
async def test_who_leaves_a_search_finds_all_chats_there_again():
    branches()
    with History() as history:
        chat(history, "nothing here")
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        await stage.until(lambda: len(titles(stage)) == 2)
        await stage.pilot.press("ctrl+b", "slash", *"aprico")
        await stage.until(lambda: headings(stage) == ["Fruit"])
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.prompt.has_focus and len(titles(stage)) == 2)


@pytest.mark.slow
async def test_slash_search_opens_the_chats_with_the_search_made():
    branches()
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.send("/search plum")
        await stage.until(lambda: headings(stage) == ["Fruit"] and "A plum." in stage.seen)
        assert stage.chat.sidebar.search.has_focus
        await stage.pilot.press("end", *"ber", "home", "ctrl+d")
        await stage.until(lambda: line(stage) == NO_HITS)
        assert stage.chat.sidebar.search.value == "lumber"
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.prompt.has_focus)


@pytest.mark.slow
async def test_the_menu_leads_to_the_search_of_all_chats():
    branches()
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+p", *"search all")
        await stage.sees("/search [WORDS]", "search all chats")
        await stage.pilot.press("down", "enter")
        await stage.until(lambda: stage.chat.sidebar.search.has_focus)
        await stage.pilot.press(*"plum")
        await stage.until(lambda: headings(stage) == ["Fruit"] and "A plum." in stage.seen)


async def test_hits_of_an_older_search_never_replace_those_of_a_newer(monkeypatch: pytest.MonkeyPatch):
    branches()
    begun, go_on, late = Event(), Event(), Event()
    real = ChatStore.find

    def find(self: ChatStore, query: str) -> list[SearchHit]:
        if query != "plum":
            begun.set()
            go_on.wait(10)
        hits = real(self, query)
        if query != "plum":
            late.set()
        return hits

    monkeypatch.setattr(ChatStore, "find", find)
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.send("/search apricot")
        await stage.until(begun.is_set)
        stage.chat.sidebar.search.value = "plum"
        await stage.until(lambda: "A plum." in stage.seen)
        go_on.set()
        await stage.until(late.is_set)
        await stage.pilot.pause()
        assert "A plum." in stage.seen
        assert "apricot" not in stage.seen


@pytest.mark.slow
async def test_enter_opens_what_was_typed_and_not_what_is_drawn_still(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sidebar, "TYPING_SECONDS", 1000.0)
    branches()
    with History() as history:
        chat(history, "newest", "another")
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await show_chats(stage, "newest", "Fruit")
        await stage.pilot.press("slash", *"plum", "enter")
        await stage.until(lambda: said(stage) == ["Which fruit?", "A plum."])


def test_a_match_is_in_sight_however_much_stands_before_it():
    parts = (TextPart("so very much was said before the ", False), TextPart("hit", True), TextPart(" and after", False))
    hits = [SearchHit("id", "Title", 3, "user", "", parts)]
    _, row = chat_list.found(hits, signs=Signs())
    assert str(row.prompt) == "  You: …efore the hit and after"


# --- changing


async def test_delete_is_pressed_twice_on_the_same_chat():
    with History() as history:
        for name in ("one", "two", "three"):
            chat(history, name)
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await show_chats(stage, "three", "two", "one")
        await stage.pilot.press("delete")
        await stage.until(lambda: "delete “three”" in line(stage))
        await stage.pilot.press("down", "delete")
        await stage.until(lambda: "delete “two”" in line(stage))
        await stage.pilot.press("delete")
        await stage.until(lambda: titles(stage) == ["three", "one"])
        assert stage.chat.sidebar.list.row.title == "one"  # type: ignore[union-attr]
        await stage.pilot.press("delete", "delete")
        await stage.until(lambda: titles(stage) == ["three"])
    with History() as history:
        assert [found.title for found in history.chats()] == ["three"]


async def test_marked_chats_are_deleted_together_after_one_question_that_names_them():
    """Esc takes the marks away; the running chat, which is among them, is left first."""
    with History() as history:
        for name in ("one", "two", "three"):
            chat(history, name)
    async with kept_chat(ScriptedEngine(HELLO), size=OVER) as stage:
        await ask(stage, "hi")
        await stage.send("/rename The last one")
        await stage.hints("This chat is now called “The last one”.")
        await show_chats(stage, "The last one", "three", "two", "one")
        await stage.pilot.press("space")
        await stage.until(lambda: signs(stage) == ["✓", "", "", ""])
        assert stage.chat.sidebar.list.row.title == "three", "the cursor goes on"  # type: ignore[union-attr]
        await stage.pilot.press("escape")
        await stage.until(lambda: signs(stage) == ["▸", "", "", ""] and stage.chat.sidebar.display)
        await stage.pilot.press("space", "up", "up", "space")
        await stage.until(lambda: signs(stage) == ["✓", "✓", "", ""])
        await stage.pilot.press("delete")
        await stage.until(lambda: "again to delete 2 chats: " in line(stage))
        assert {"“three”", "“The last one”"} == set(re.findall("“.*?”", line(stage)))
        for key in ("d", "x", "down"):  # letters of a word are no answer
            await stage.pilot.press(key)
            await stage.until(lambda: "again" not in line(stage))
            await stage.until(lambda typed=key: typed in ("down", stage.chat.sidebar._drawn))
            stage.chat.sidebar.search.value = ""
            stage.chat.sidebar.list.focus()
            await stage.until(lambda: len(titles(stage)) == 4 and stage.chat.sidebar.list.has_focus)
            await stage.pilot.press("delete")
            await stage.until(lambda: "again to delete 2 chats" in line(stage))
        assert len(titles(stage)) == 4
        await stage.pilot.press("delete")
        await stage.sees("Deleted 2 chats.")
        await stage.until(lambda: titles(stage) == ["two", "one"])
    with History() as history:
        assert [found.title for found in history.chats()] == ["two", "one"]


def signs(stage: Stage) -> list[str]:
    """What stands before each chat."""
    rows = [row for row in stage.chat.sidebar.list.options if isinstance(row, ChatRow) and not row.disabled]
    return [str(row.prompt)[:2].strip() for row in rows]


async def test_the_running_chat_can_be_deleted_in_mid_answer_and_a_new_one_begins():
    engine = ScriptedEngine(HELLO, SHORT, paused=True)
    async with kept_chat(engine) as stage:
        await stage.begins("doomed")
        await show_chats(stage, "doomed")
        await stage.pilot.press("delete", "delete")
        await stage.until(lambda: titles(stage) == [] and line(stage) == NO_CHATS)
        engine.permit()
        await stage.pilot.press("escape")
        await stage.sees("Ask anything.")
        assert notes(stage) == []
        await ask(stage, "new")
        assert notes(stage) == []
        assert [each.content for each in engine.requests[1].messages or ()] == ["new"]
    with History() as history:
        assert [found.title for found in history.chats()] == ["new"]


async def test_a_chat_is_renamed_in_place_and_found_by_its_new_name():
    with History() as history:
        chat(history, "old name")
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await show_chats(stage, "old name")
        await stage.pilot.press("r")
        await stage.until(lambda: stage.chat.sidebar.name_field.has_focus)
        await stage.pilot.press("end", "x", "enter")
        await stage.until(lambda: titles(stage) == ["old namex"])
        await stage.pilot.press("slash", *"namex")
        await stage.until(lambda: stage.chat.sidebar._drawn == "namex")
        assert titles(stage) == ["old namex"]
    assert recall().chat.title == "old namex"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("title", ["so long a title that no row has room for it, " * 3 + "its end", ""])
async def test_a_title_that_is_not_changed_stays_whole(title: str):
    with History() as history:
        history.begin(NewChat("guide", title=title), "one")
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.pilot.press("ctrl+b")
        await stage.sees("so long a title" if title else "Untitled")
        await stage.until(lambda: stage.chat.sidebar.list.row)
        await stage.pilot.press("r")
        field = stage.chat.sidebar.name_field
        await stage.until(lambda: field.has_focus)
        assert field.value == title
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.chat.sidebar.list.has_focus)
    assert recall().chat.title == title


# --- a word, or a key


@pytest.mark.parametrize("word", ["garden", "recipes", "poem", "apple pie", "ppp"])
async def test_a_word_that_is_typed_over_the_list_is_searched_for_and_changes_nothing(
    word: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chat_list, "REST_SECONDS", 600)
    with History() as history:
        chat(history, "Trip notes", f"about {word}")
        chat(history, "other")
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        await show_chats(stage, "other", "Trip notes")
        await stage.pilot.press(*("space" if letter == " " else letter for letter in word), "enter")
        await stage.until(lambda: said(stage) == ["Trip notes", f"about {word}"])
        assert not stage.chat.sidebar.name_field.display
    with History() as history:
        assert [(found.title, found.pinned) for found in history.chats()] == [("other", False), ("Trip notes", False)]


async def test_what_was_searched_for_before_makes_room_for_the_word_that_is_typed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chat_list, "REST_SECONDS", 600)
    with History() as history:
        chat(history, "Trip notes")
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        panel = stage.chat.sidebar
        await show_chats(stage, "Trip notes")
        for word in ("trip", "plum"):
            await stage.pilot.press(*word)
            await stage.until(lambda sought=word: panel._drawn == panel.search.value == sought)
            panel.list.focus()
            await stage.until(lambda: panel.list.has_focus)


async def test_a_letter_that_is_a_key_acts_before_any_other_key_and_says_what_it_did(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chat_list, "REST_SECONDS", 600)
    with History() as history:
        chat(history, "old name")
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        await show_chats(stage, "old name")
        await stage.pilot.press("p", "down")
        await stage.until(lambda: headings(stage) == ["Pinned"] and line(stage) == "Pinned: “old name”")
        await stage.pilot.press("up")
        await stage.until(lambda: "pin" in line(stage) and "“" not in line(stage))
        await stage.pilot.press("p", "down")
        await stage.until(lambda: headings(stage) == ["Today"] and line(stage) == "No longer pinned: “old name”")
        await stage.pilot.press("r", "end")
        await stage.until(lambda: stage.chat.sidebar.name_field.has_focus)
        await stage.pilot.press("end", "x", "enter")
        await stage.until(lambda: titles(stage) == ["old namex"] and line(stage) == "Was: “old name”")
        assert stage.chat.sidebar.search.value == ""


async def test_a_letter_whose_list_is_left_does_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chat_list, "REST_SECONDS", 600)
    with History() as history:
        chat(history, "Trip notes")
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        await show_chats(stage, "Trip notes")
        await stage.pilot.press("p")
        await stage.until(lambda: stage.chat.sidebar.list._waits)
        stage.chat.prompt.focus()
        await stage.until(lambda: not stage.chat.sidebar.list._waits)
    assert not recall().chat.pinned


# --- others, and trouble


@pytest.mark.slow
async def test_what_another_program_does_is_seen_when_the_chats_are_shown_again():
    async with kept_chat(ScriptedEngine(HELLO)) as one, kept_chat(ScriptedEngine(HELLO)) as two:
        await ask(one, "mine")
        await show_chats(one, "mine")
        await ask(two, "theirs")
        await one.pilot.press("escape")
        await show_chats(one, "theirs", "mine")
        with History() as history:
            history.delete(history.chats()[0].id)
        await one.pilot.press("up", "enter")  # from its own chat to theirs
        await one.until(lambda: notes(one))
        assert "There is no chat" in notes(one)[0]
        assert said(one)[0] == "mine"
        await show_chats(one, "mine")


async def test_a_damaged_history_is_one_note_and_the_chats_begin_again():
    paths.history_file().write_bytes(b"\x00\xff rubbish" * 1000)
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        await stage.until(lambda: notes(stage) and line(stage) == NO_CHATS)
        await ask(stage, "hi")
        await stage.until(lambda: titles(stage) == ["hi"])
        (note,) = notes(stage)
        assert "was damaged and is now" in note


async def test_a_history_that_fails_meanwhile_is_a_sentence_among_the_chats():
    with History() as history:
        chat(history, "kept")
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.pilot.press("ctrl+b")
        await stage.until(lambda: titles(stage))
        stage.chat.sidebar.store._history._database._db.close()  # type: ignore[union-attr]
        await stage.pilot.press("p")
        await stage.until(lambda: line(stage).startswith("The history"))
        await stage.pilot.press("slash", "x")
        await stage.until(lambda: titles(stage) == [] and line(stage).startswith("The history"))
        assert stage.app.is_running


async def test_a_locked_history_is_a_sentence_and_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    with History() as history:
        chat(history, "kept")
    monkeypatch.setattr(open_file, "OPENING_SECONDS", 0.02)
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        await stage.until(lambda: stage.chat.recorder._sink._history)  # type: ignore[union-attr]
        other = sqlite3.connect(f"{paths.history_file()}.lock", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        await stage.pilot.press("ctrl+b")
        await stage.sees("Another program keeps the")
        other.close()
        await stage.pilot.press("escape")
        await show_chats(stage, "kept")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [NARROW, WIDE], ids=str)
async def test_without_a_history_there_is_a_sentence_and_no_file(size: tuple[int, int], tmp_path: Path):
    async with open_chat(ScriptedEngine(HELLO), size=size) as stage:
        await ask(stage, "hi")
        assert not stage.chat.sidebar.display
        await stage.pilot.press("ctrl+b")
        await stage.until(lambda: line(stage) == NOT_KEPT)
        await stage.pilot.press("escape", "ctrl+p")
        await stage.until(lambda: stage.app.screen is not stage.chat)
        await stage.pilot.press(*"zzz", "escape")
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
async def test_who_cannot_wait_for_the_history_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recorder, "SETTLED_SECONDS", 0.05)
    async with kept_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        await ask(stage, "doomed")
        await show_chats(stage, "doomed")
        monkeypatch.setattr(stage.chat.recorder, "locate", lambda _: None)
        await stage.pilot.press("delete", "delete")
        await stage.until(lambda: line(stage).startswith("The history cannot be written at present"))
        assert titles(stage) == ["doomed"]


# --- many


@pytest.mark.slow
async def test_a_thousand_chats_come_by_pages_and_the_last_can_be_opened():
    with History() as history:
        begun = [f"2020-01-01T00:{number // 60:02}:{number % 60:02}Z" for number in range(1000)]
        rows = [(f"chat{number:06}", f"Chat {number}", at) for number, at in enumerate(begun)]
        insert = "INSERT INTO conversation(id, title, created_at, updated_at, model_key) VALUES (?, ?, '', ?, 'guide')"
        history._database.write(lambda db: db.executemany(insert, rows))
        history.append(StoredMessage.unsaved("chat000000", "user", "the first of all"))
    dated("chat000000", datetime(2019, 1, 1, tzinfo=UTC))
    async with kept_chat(ScriptedEngine(HELLO), size=WIDE) as stage:
        await stage.until(lambda: len(titles(stage)) == 200)
        await stage.sees("Older", "Chat 999")
        await stage.pilot.press("ctrl+b")
        for pages in range(2, 6):
            await stage.pilot.press("end")
            await stage.until(lambda pages=pages: len(titles(stage)) == 200 * pages)
        await stage.pilot.press("end", "enter")
        await stage.until(lambda: said(stage) == ["the first of all"])
        await stage.pilot.press("ctrl+p", *"chat 501")
        await stage.until(lambda: "Open this chat" in screen_of(stage))
        await stage.pilot.press("enter")
        await stage.until(lambda: stage.app.screen is stage.chat and "Chat 501 · begun" in stage.seen)


# --- a history that cannot be written


@pytest.mark.slow
async def test_a_read_only_history_is_listed_searched_and_gone_on_with(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    """That nothing is kept is a notice, and what changes a chat is refused; until the disk can be written again."""
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.02)
    with History() as history:
        chat(history, "Who drafts?", "The drafter.", title="First")
        chat(history, "Who checks?", "The target.", title="Second")
    disk = request.getfixturevalue("read_only")
    past = recall()
    sink = Writer(chat=past.chat)
    async with open_chat(ScriptedEngine(), size=WIDE, past=past, sink=sink) as stage:
        await stage.until(lambda: "Who checks?" in said(stage) and titles(stage) == ["Second", "First"])
        await stage.until(lambda: sum("read-only" in note for note in notes(stage)) == 1)
        await stage.pilot.press("ctrl+b", "p")
        await stage.until(lambda: "read-only" in line(stage))
        await stage.pilot.press("slash", *"drafter", "enter")
        await stage.until(lambda: said(stage) == ["Who drafts?", "The drafter."])
        disk.undo()
        await stage.until(lambda: not sink.in_trouble)
        with History() as history:
            chat(history, "Who stops?", title="Third")
        stage.chat.sidebar.search.value = ""
        await stage.until(lambda: titles(stage) == ["Third", "Second", "First"])
