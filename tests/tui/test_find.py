"""Words are found in the chat that is open, also where it is not in sight; and the chat becomes a file."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from time import monotonic

import msgspec
import pytest
from textual.app import App, ComposeResult

from localspec.core import whole_file
from localspec.history import Attachment, History, NewChat, Writer, recall
from localspec.tui.chat.recorder import SETTLED_SECONDS
from localspec.tui.chat.word_matches import pattern
from localspec.tui.control import export_file
from localspec.tui.control.chats import NOTHING_TO_EXPORT
from localspec.tui.panels.lines import Lines
from localspec.tui.transcript.markers import Note
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.chats import WholeChat, WholeMessage, chat
from tests.support.scripted_engine import ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy

SHORT = answer(step("Bye", "."))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def count(stage: Stage) -> str:
    """What the line says, without the keys that go on."""
    return str(stage.chat.find.count.content).removesuffix(" · → opens it").removesuffix(" · n next N back")


def marked(stage: Stage, reverse: bool | None = None) -> list[str]:
    """The marked words on the screen, or those that are chosen (or not)."""
    return [
        segment.text
        for strip in stage.app.screen._compositor.render_strips()
        for segment in strip
        if segment.style is not None and segment.style.bold and (segment.style.underline or segment.style.reverse)
        if reverse is None or bool(segment.style.reverse) == reverse
    ]


def rows_reversed(stage: Stage) -> list[str]:
    """What stands in the attachment before the chosen hit."""
    lines = stage.app.screen.query_one(Lines)
    strips = [list(lines.render_line(y)) for y in range(lines.size.height)]
    return [
        "".join(part.text for part in strip[:index]).lstrip()
        for strip in strips
        for index, part in enumerate(strip)
        if part.style is not None and part.style.reverse and part.style.bold
    ]


def found(stage: Stage) -> list[str]:
    return [message.text for message in stage.messages if message.has_class("-found")]


# --- finding


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (100, 24), (150, 30)], ids=str)
async def test_every_match_is_brought_into_sight_one_after_the_other(size: tuple[int, int]):
    with History() as history:
        texts = [f"said {number}\n\n{'more ' * 60}" for number in range(30)]
        texts[3] += " the NEEDLE"
        texts[25] += " a needle"
        chat(history, *texts, title="Hay")
    async with kept_chat(ScriptedEngine(HELLO), size=size, past=recall()) as stage:
        await stage.until(lambda: len(stage.messages) == 20)
        await stage.pilot.press("ctrl+f")
        await stage.pilot.press(*"needle")
        await stage.until(lambda: count(stage) == "2 found")
        await stage.pilot.press("enter")
        await stage.until(lambda: count(stage) == "1 of 2" and found(stage) == [texts[3]])
        await stage.sees("said 3", "1 of 2")
        assert len(stage.messages) == 30
        await stage.pilot.press("enter")
        await stage.until(lambda: count(stage) == "2 of 2" and found(stage) == [texts[25]])
        await stage.sees("said 25")
        for key in ("shift+enter", "up"):
            await stage.pilot.press(key)
        await stage.until(lambda: count(stage) == "2 of 2 · from the end" and found(stage) == [texts[25]])
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.prompt.has_focus and not stage.chat.find.display)
        await stage.until(lambda: found(stage) == marked(stage) == [])


async def test_words_of_a_long_paste_are_found_in_its_message():
    paste = Attachment(None, "text/plain", None, "hay " * 1000 + "needle")
    with History() as history:
        history.begin(NewChat("guide", title="Hay"), "Read this", attachments=(paste,))
    async with kept_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.until(lambda: stage.messages)
        await stage.pilot.press("ctrl+f", *"NEEDLE", "enter")
        await stage.until(lambda: count(stage) == "1 of 1 · in pasted text" and found(stage) == ["Read this"])


async def test_a_file_with_a_hit_opens_at_it_and_its_hits_are_walked_through():
    files = [Attachment("none.txt", text="hay"), Attachment(None, text="hay\n" * 200 + "A Needle\n" * 2 + "hay\n" * 9)]
    with History() as history:
        history.begin(NewChat("guide", title="Hay"), "A needle?", attachments=tuple(files))
    async with kept_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.until(lambda: stage.messages)
        await stage.pilot.press("ctrl+f", *"needle", "enter")
        await stage.until(lambda: count(stage) == "1 of 2")
        await stage.pilot.press("n")
        await stage.until(lambda: count(stage) == "2 of 2 · in pasted text")
        await stage.pilot.press("right")
        await stage.sees("pasted text (2 of 2)", "hit 1 of 2 · n next N back", "201  A Needle", "202  A Needle")
        assert (marked(stage), rows_reversed(stage)) == (["Needle", "Needle"], ["201  A "])
        await stage.pilot.press("n")
        await stage.sees("hit 2 of 2")
        assert (marked(stage), rows_reversed(stage)) == (["Needle", "Needle"], ["202  A "])
        await stage.pilot.press("n", "N")
        await stage.sees("hit 2 of 2")
        await stage.pilot.press("left")
        await stage.sees("none.txt (1 of 2)", "1 line · 3 characters")
        await stage.pilot.press("n", "escape")
        await stage.until(lambda: stage.app.screen is stage.chat)


async def test_where_the_hit_is_in_no_file_nothing_opens():
    with History() as history:
        history.begin(NewChat("guide", title="Hay"), "a hive")
    async with kept_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.until(lambda: stage.messages)
        await stage.pilot.press("ctrl+f", *"hi", "enter", "right", "v")
        await stage.until(lambda: stage.chat.find.words.value == "hiv")
        assert stage.app.screen is stage.chat


async def test_a_hit_that_is_wrapped_is_marked_in_each_of_its_rows():
    class Reader(App[None]):
        def compose(self) -> ComposeResult:
            yield Lines("one wörds two\twords\nlast", pattern("words two words last"))

    app = Reader()
    async with app.run_test(size=(15, 9)) as pilot:
        lines = app.query_one(Lines)
        lines.walk(1)
        await pilot.pause()
        assert len(lines.hits) == 1
        rows = [[*lines._marks(row)] for row in range(len(lines._rows))]
        texts = [text for _, text in lines._rows]
        cut = [[text[start - 3 : end - 3] for start, end, _ in spans] for text, spans in zip(texts, rows, strict=True)]
        assert "".join(part for parts in cut for part in parts) == "wörds two   wordslast"


@pytest.mark.slow
async def test_esc_leaves_the_search_and_not_the_answer_that_grows():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine) as stage:
        await stage.begins("hi")
        await stage.pilot.press("ctrl+f", *"WORLD")
        await stage.until(lambda: count(stage) == "0 found")
        await stage.pilot.press("enter", "escape")
        assert stage.chat.state.phase == "generating"
        engine.permit()
        await stage.sees("Bye.", "idle")
        await stage.pilot.press("ctrl+f", "enter")
        await stage.until(lambda: count(stage) == "1 of 1")
        assert found(stage) == ["Hello there, world. Bye."]


TEXT = """# A fly

I **fly** here.

- the Fly
- a *fly*-wheel

| fly | x |
|---|---|
| a | FLY |

```text
fly(1)
```

<think>fly</think>"""


async def test_hits_are_marked_wherever_they_stand_and_walked_through_round_and_round():
    with History() as history:
        chat(history, "Why fly?", TEXT, title="Hay")
    async with kept_chat(ScriptedEngine(HELLO), size=(80, 40), past=recall()) as stage:
        await stage.until(lambda: len(stage.messages) == 2)
        await stage.pilot.press("ctrl+f", *"FLÝ")
        await stage.until(lambda: count(stage) == "9 found" and len(marked(stage)) == 8)
        assert {word.lower() for word in marked(stage)} == {"fly"}
        await stage.pilot.press("enter")
        await stage.until(lambda: count(stage) == "1 of 9" and len(marked(stage, reverse=True)) == 1)
        await stage.pilot.press("n", "n")
        await stage.until(lambda: count(stage) == "3 of 9")
        await stage.pilot.press("N")
        await stage.until(lambda: count(stage) == "2 of 9" and found(stage) == [TEXT])
        await stage.pilot.press("N", "N")
        await stage.until(lambda: count(stage) == "9 of 9 · from the end" and len(marked(stage)) == 9)
        await stage.pilot.press("n")
        await stage.until(lambda: count(stage) == "1 of 9 · from the top")
        await stage.pilot.press("(", "backspace", "w")  # the words are written on
        await stage.until(lambda: count(stage) == "0 found" and stage.chat.find.words.value == "FLÝw")
        assert marked(stage) == []
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.prompt.has_focus)
        await stage.pilot.press("n")
        assert stage.chat.prompt.text == "n"


async def test_a_hit_far_down_in_a_long_answer_is_in_sight_where_it_stands():
    lines = [f"line {number}" for number in range(400)]
    lines[350] += " needle"
    with History() as history:
        chat(history, "hay", "\n\n".join(lines), *(f"said {number}" for number in range(40)), title="Hay")
    async with kept_chat(ScriptedEngine(HELLO), past=recall()) as stage:
        await stage.until(lambda: len(stage.messages) == 20)
        await stage.pilot.press("ctrl+f", *"needle", "enter")
        await stage.until(lambda: marked(stage, reverse=True) == ["needle"])
        await stage.sees("line 350 needle", "1 of 1")
        await stage.chat.chats.finding.reveal(stage.chat.conversation.branch[20])
        assert len(stage.messages) > 30, "the last message of the window cannot be scrolled to the top"
        await stage.until(lambda: "║ said 18" in "".join(stage.seen.splitlines()[:5]))


# --- a search in all chats


async def test_a_search_opens_the_chat_at_the_hit_and_goes_on_from_there():
    with History() as history:
        far = "first line\n" + "more\n" * 60 + "a lighthouse at the end"
        answers = ["\n\n".join(f"paragraph {number} {'word ' * 40}" for number in range(12)) for _ in range(3)]
        chat(history, far, answers[0], "and?", answers[1] + "\n\nno lighthouse", "so?", answers[2], title="Sea")
        chat(history, "hi", "there", title="New")
    async with kept_chat(ScriptedEngine(HELLO), past=recall()) as stage:
        await stage.until(lambda: len(stage.messages) == 2)
        await stage.send("/search the lighthouse")
        await stage.sees("Sea")
        await stage.pilot.press("enter")
        await stage.until(lambda: count(stage) == "1 of 2" and marked(stage, reverse=True) == ["lighthouse"])
        await stage.sees("a lighthouse at the end")
        assert stage.chat.find.words.value == "lighthouse"
        await stage.pilot.press("n")
        await stage.until(lambda: count(stage) == "2 of 2")
        await stage.sees("no lighthouse")
        await stage.pilot.press("ctrl+n")
        await stage.until(lambda: not stage.messages and not stage.chat.find.display)
        assert stage.chat.chats.finding.marks is None


# --- exporting


async def ask(stage: Stage, text: str) -> None:
    await stage.ready()
    asked = len(stage.messages)
    await stage.send(text)
    await stage.until(lambda: len(stage.messages) == asked + 2 and stage.chat.state.phase == "idle")


async def export(stage: Stage, arguments: str) -> str:
    """What the chat says of it."""
    notes = len(stage.chat.query(Note))
    await stage.send(f"/export {arguments}")
    await stage.until(lambda: len(stage.chat.query(Note)) == notes + 1)
    return str(stage.chat.query(Note).last().content)


async def refused(stage: Stage, arguments: str) -> str:
    """The same, where the command comes back to be mended."""
    said = await export(stage, arguments)
    assert stage.chat.prompt.text == f"/export {arguments}"
    await stage.pilot.press("ctrl+c")
    return said


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [(60, 16), (150, 30)], ids=str)
async def test_a_chat_becomes_a_file_named_after_it_and_no_file_is_written_over(
    own_folder: Path, size: tuple[int, int]
):
    async with kept_chat(ScriptedEngine(HELLO, SHORT, SHORT), size=size) as stage:
        await ask(stage, "What [/nope] is\ta draft?")
        for name in ("chat-what-nope-is-a-draft.md", "chat-what-nope-is-a-draft-2.md"):
            assert await export(stage, "md") == f"This chat is now in {own_folder / name}"
        await ask(stage, "And?")
        assert await export(stage, "") == f"This chat is now in {own_folder / 'chat-what-nope-is-a-draft-3.md'}"
        (own_folder / "notes").mkdir()
        assert str(own_folder / "notes" / "chat-what-nope-is-a-draft.json") in await export(stage, "json notes")
        assert str(own_folder / "my chat.txt") in await export(stage, "JSONL my chat.txt")
        await stage.pilot.press("alt+z", "alt+z", "escape", "alt+e")
        await stage.sees("There is no message to edit.")
        assert await export(stage, "md taken-back.md") == f"This chat is now in {own_folder / 'taken-back.md'}"
        await ask(stage, "Instead?")
        said = await export(stage, "md other.md")
        assert said.endswith("other.md\n1 other branch is left out. To have all: /export json")
    first, last = ((own_folder / f"chat-what-nope-is-a-draft{n}.md").read_text() for n in ("", "-3"))
    assert first.startswith("# What [/nope] is a draft?\n")
    assert "Hello there, world. Bye." in first
    assert "And?" not in first
    assert "And?" in last
    assert (own_folder / "taken-back.md").read_text() == last, "it was a title alone, as if nothing were left"
    assert "*1 other branch is left out." in (own_folder / "other.md").read_text()
    whole = json.loads((own_folder / "notes" / "chat-what-nope-is-a-draft.json").read_text())
    assert len(whole["messages"]) == len((own_folder / "my chat.txt").read_text().splitlines()) == 4


async def test_an_answer_is_exported_as_far_as_it_has_come(own_folder: Path):
    engine = ScriptedEngine(HELLO, paused=True)
    async with kept_chat(engine) as stage:
        await stage.begins("hi")
        await export(stage, "md")
    assert re.search(r"\(interrupted\)\s+Hello there\n", (own_folder / "chat-hi.md").read_text())


async def test_what_cannot_be_exported_is_one_sentence(own_folder: Path, monkeypatch: pytest.MonkeyPatch):
    (own_folder / "file").write_text("mine")
    async with kept_chat(ScriptedEngine(HELLO)) as stage:
        await stage.ready()
        assert NOTHING_TO_EXPORT in await refused(stage, "md")
        await ask(stage, "hi")
        assert "There is no folder" in await refused(stage, "md file/below.md")
        assert "cannot be written" in await refused(stage, f"md {'x' * 300}.md")
        await stage.send("/export pdf")
        await stage.sees("Try: /export md")
        await stage.pilot.press("ctrl+c")

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(whole_file, "write_whole", full)
        assert "the disk is full" in await refused(stage, "md")
    assert [each.name for each in own_folder.iterdir()] == ["file"]
    assert (own_folder / "file").read_text() == "mine"


@pytest.mark.slow
async def test_what_is_not_kept_is_exported_from_memory(own_folder: Path):
    async with open_chat(ScriptedEngine(HELLO), system="Be brief.") as stage:
        await ask(stage, "hi")
        for kind in ("md", "json", "jsonl"):
            assert await export(stage, kind) == f"This chat is now in {own_folder / f'chat-hi.{kind}'}"
    text = (own_folder / "chat-hi.md").read_text()
    assert text.startswith("# hi\n\nguide · ")
    assert text.endswith("## System\n\nBe brief.\n\n## You\n\nhi\n\n## guide\n\nHello there, world. Bye.\n")
    whole = msgspec.json.decode((own_folder / "chat-hi.json").read_bytes(), type=WholeChat)
    assert [each.message.status for each in whole.messages] == ["done", "done"]
    assert sum(len(step.tokens) for step in whole.messages[1].steps) == 6
    lines = (own_folder / "chat-hi.jsonl").read_text().splitlines()
    assert tuple(msgspec.json.decode(line, type=WholeMessage) for line in lines) == whole.messages


@pytest.mark.slow
async def test_where_the_history_cannot_be_written_what_it_lacks_is_exported_from_memory(own_folder: Path):
    sink, engine = Writer(), ScriptedEngine(SHORT, HELLO, paused=True)
    async with open_chat(engine, sink=sink) as stage:
        engine.permit(4)
        await ask(stage, "kept")
        await stage.until(lambda: stage.chat.chats.chat_id)
        sink._history._database.read("PRAGMA query_only = ON")  # type: ignore[union-attr]
        engine.permit(2)
        await stage.asks("lost", "Hello there")
        await stage.until(lambda: sink.in_trouble)
        started = monotonic()
        await export(stage, "md")
        assert monotonic() - started < SETTLED_SECONDS / 2
        engine.permit()
    text = (own_folder / "chat-kept.md").read_text()
    assert re.search(r"Bye\.\n\n## You\n\nlost\n\n## .* \(interrupted\)\n\nHello there\n$", text)
    assert sink.close() is not None


@pytest.mark.slow
async def test_a_newer_history_is_no_obstacle_to_an_export(own_folder: Path):
    with History() as history:
        history._database.read("PRAGMA user_version = 99")
    sink = Writer()
    async with open_chat(ScriptedEngine(HELLO), sink=sink) as stage:
        await ask(stage, "hi")
        await stage.until(lambda: stage.chat.query(Note))
        await export(stage, "md")
    assert "Hello there, world. Bye." in (own_folder / "chat-hi.md").read_text()
    assert sink.close() is not None


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("../../etc/passwd", "chat-etc-passwd.md"),
        ("\x1b]0;x\x07 [/nope]", "chat-0-x-nope.md"),
        ("", "chat.md"),
        ("  … ", "chat.md"),
        ("Größe 日本語", "chat-größe-日本語.md"),
        ("word " * 40, f"chat-{'word-' * 9}word.md"),
    ],
)
def test_a_title_makes_a_name_that_is_no_path(title: str, name: str):
    assert export_file.name(title, "md") == name
