"""What has scrolled out of sight costs nothing, and is there when it is scrolled to."""

from __future__ import annotations

import pytest
from textual.strip import Strip
from textual.widget import Widget

from localspec.tui.transcript.answer import Answer
from tests.support.chat_stage import Stage, open_chat
from tests.support.scripted_engine import ScriptedEngine, step

pytestmark = pytest.mark.heavy


def part(number: int) -> str:
    """Of an answer: a paragraph and a list."""
    items = "".join(f"- item {item} of part {number}, with `code` in it\n" for item in range(6))
    return f"Part {number} says that drafts are **checked** in one pass, and what is wrong is thrown away.\n\n{items}\n"


async def write(stage: Stage, shown: Answer, numbers: range) -> list[int]:
    """How many widgets were given a place, in turn."""
    placed = []
    for number in numbers:
        shown.add(step(part(number), accepted=0))
        await shown.flush()
        await stage.pilot.pause()
        placed.append(len(stage.app.screen._compositor.full_map))
    return placed


@pytest.mark.slow
async def test_a_long_answer_has_no_more_widgets_to_place_than_a_screenful():
    async with open_chat(ScriptedEngine(), size=(150, 36)) as stage:
        shown = Answer("guide")
        await stage.chat.feedback.show(shown)
        early = await write(stage, shown, range(15))
        late = await write(stage, shown, range(15, 30))
        assert max(late) < 1.1 * max(early)
        assert len(list(shown.walk_children())) > 3 * max(late)
        await shown.end()


@pytest.mark.slow
async def test_what_is_scrolled_to_is_there_and_stays_there_while_more_is_written():
    async with open_chat(ScriptedEngine(), size=(100, 40)) as stage:
        shown = Answer("guide")
        await stage.chat.feedback.show(shown)
        await write(stage, shown, range(12))
        assert "item 0 of part 0," not in stage.seen
        stage.chat.transcript.scroll_home(animate=False)
        await stage.sees("item 0 of part 0,", "item 5 of part 1,")
        await write(stage, shown, range(12, 14))
        await stage.sees("item 0 of part 0,", "item 5 of part 1,")
        await stage.pilot.resize_terminal(80, 40)
        await stage.sees("item 0 of part 0,", "item 5 of part 0,")
        stage.chat.transcript.anchor()
        await stage.sees("item 5 of part 13,")
        await shown.end()


async def test_a_whole_answer_that_comes_into_sight_at_once_is_drawn():
    """The one above it becomes a line, in the moment all is laid out."""
    async with open_chat(ScriptedEngine(), size=(100, 40)) as stage:
        above, below = Answer("guide"), Answer("guide", "".join(map(part, range(4))))
        await stage.chat.feedback.show(above)
        await write(stage, above, range(12))
        await above.end()
        await stage.chat.feedback.show(below)
        stage.chat.transcript.scroll_home(animate=False)
        await stage.sees("item 0 of part 0,")
        above._body.display = False
        await stage.sees("item 0 of part 0,", "item 5 of part 1,")


@pytest.mark.slow
async def test_what_is_selected_may_begin_out_of_sight():
    async with open_chat(ScriptedEngine(), size=(100, 40)) as stage:
        shown = Answer("guide")
        await stage.chat.feedback.show(shown)
        await write(stage, shown, range(12))
        await shown.end()
        await stage.pilot.mouse_down(shown, offset=(6, shown.size.height - 12))
        stage.chat.transcript.scroll_home(animate=False)
        await stage.sees("item 0 of part 0,")
        await stage.pilot.hover(shown, offset=(4, 2))
        await stage.pilot.mouse_up(shown, offset=(4, 2))
        selected = stage.app.screen.get_selected_text() or ""
        assert all(f"item 3 of part {number}," in selected for number in range(1, 10))


async def test_what_others_hide_is_not_drawn(monkeypatch: pytest.MonkeyPatch):
    """What an answer stands in is as high as the screen, and hidden by its text: no line of it is drawn."""
    async with open_chat(ScriptedEngine(), size=(100, 40)) as stage:
        shown = Answer("guide")
        await stage.chat.feedback.show(shown)
        await write(stage, shown, range(5))
        drawn: dict[str, int] = {}
        real = Widget.render_line

        def render_line(self: Widget, y: int) -> Strip:
            drawn[type(self).__name__] = drawn.get(type(self).__name__, 0) + 1
            return real(self, y)

        monkeypatch.setattr(Widget, "render_line", render_line)
        await write(stage, shown, range(5, 6))
        assert {"Paragraph", "MarkdownBullet"} <= drawn.keys()
        assert not {"Body", "Bullets", "Row", "Item"} & drawn.keys()
        await shown.end()
