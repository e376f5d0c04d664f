"""Lines that are laid out ahead of a text that grows."""

from __future__ import annotations

from localspec.tui.markdown.layout import LINES_AHEAD
from localspec.tui.markdown.paragraph import Paragraph
from tests.support.chat_stage import open_chat
from tests.support.scripted_engine import ScriptedEngine, answer, step


async def test_a_terminal_made_wider_in_an_answer_leaves_no_more_lines_free_than_before():
    """They were counted at the old width: the end of an answer was pushed out of sight by as many empty lines as the
    text had lost."""
    words = [step(f"word{i} ", accepted=0) for i in range(300)]
    engine = ScriptedEngine(answer(*words), paused=True)
    async with open_chat(engine, size=(60, 24)) as stage:
        engine.permit(2)
        await stage.send("go")
        for last in (99, 199):  # it grows
            engine.permit(100)
            await stage.sees(f"word{last}")
        paragraph = stage.chat.query_one(Paragraph)
        tall = paragraph.size.height
        await stage.pilot.resize_terminal(118, 24)
        await stage.until(lambda: paragraph.size.width > 60)
        await stage.sees("word199")
        needed = paragraph.visual.get_height(paragraph.styles, paragraph.content_size.width)
        assert needed + 2 * LINES_AHEAD < tall
        assert paragraph.size.height <= needed + LINES_AHEAD
        engine.permit()
        await stage.sees("word299", "idle")
        needed = paragraph.visual.get_height(paragraph.styles, paragraph.content_size.width)
        assert paragraph.content_size.height == needed
