"""Text that no person writes, in a terminal that no person has: nothing raises, and the chat goes on (F5)."""

from __future__ import annotations

import random

import pytest

from localspec.tui.markdown.code import Fence
from localspec.tui.markdown.leaves import Leaf
from localspec.tui.markdown.parser import MAX_CELLS, parser
from localspec.tui.markdown.passage import MarkdownPassage
from localspec.tui.transcript.answer import Answer
from tests.support.chat_stage import HELLO, Stage, open_chat
from tests.support.scripted_engine import ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy

MANY = 10_000
DEEP = {
    "quotes": "> " * MANY + "x",
    "stairs of quotes": "\n".join(">" * depth + " x" for depth in range(1, 60)),
    "lists": "- " * MANY + "x",
    "stairs of lists": "\n".join("  " * depth + "- x" for depth in range(60)),
    "numbers": "1. " * MANY,
    "quotes with code": "> " * 18 + "```\n" + "> " * 18 + "x\n",
    "brackets": "[" * MANY,
    "links": "[" * MANY + "](a)" * MANY,
    "stars": "*a" * MANY,
    "a wide table": "|a" * 300 + "|\n" + "|-" * 300 + "|\n" + "|x" * 300 + "|\n",
    "a line of 100 KB": "word " * 20_000,
    "a word of 100 KB": "x" * 100_000,
    "a thought of 100 KB": "<think>" + "hm " * 33_000,
    "code of 100 KB in a line": "```py\n" + "x = 1; " * 14_000 + "\n```\n",
}
SIZES = [(0, 0), (1, 1), (2, 1), (1, 24), (80, 1), (80, 2), (7, 3), (300, 100), (80, 24)]


async def resized(stage: Stage, *sizes: tuple[int, int]) -> None:
    for width, height in sizes:
        await stage.pilot.resize_terminal(width, height)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
async def test_deep_and_long_text_is_shown_in_any_terminal(text: str):
    script = answer(*(step(text[at : at + 9000], accepted=0) for at in range(0, len(text), 9000)))
    async with open_chat(ScriptedEngine(script, HELLO)) as stage:
        await stage.send("go")
        await stage.until(lambda: stage.chat.conversation.head and stage.chat.state.phase == "idle")
        assert stage.turns[1].content == text
        await resized(stage, (60, 16), (1, 1), (80, 24))
        await stage.send("still there?")
        await stage.sees("Hello there, world. Bye.", "idle")


@pytest.mark.parametrize(("times", "coloured"), [(100, True), (14_000, False)])
async def test_a_line_of_code_that_nobody_reads_is_not_coloured(times: int, coloured: bool):
    """Of 100 KB it took a second, and another to lay out what it became."""
    script = answer(step("```py\n", accepted=0), step("x = 1; " * times, accepted=0), step("\n```\n", accepted=0))
    async with open_chat(ScriptedEngine(script)) as stage:
        await stage.send("go")
        await stage.sees("x = 1; ", "idle")
        (leaf,) = stage.chat.query(Fence).last().query(Leaf)
        assert (len(leaf.shown.spans) > 2) is coloured


@pytest.mark.slow
async def test_a_terminal_resized_to_nothing_and_a_storm_of_sizes():
    rng = random.Random(7)
    storm = [(rng.randint(0, 200), rng.randint(0, 60)) for _ in range(40)]
    text = "# Title\n\n| a | b |\n|---|---|\n| c | d |\n\n- one\n  - two\n\n> said\n\n```py\nx = 1\n```\n"
    engine = ScriptedEngine(answer(*(step(*text[at : at + 3]) for at in range(0, len(text), 3))), HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(8)
        await stage.send("go")
        await stage.pilot.press("f2")
        await resized(stage, *SIZES, *storm[:20])
        engine.permit()
        await stage.pilot.press("f3")
        await resized(stage, *storm[20:], (100, 30))
        await stage.pilot.press("f3")
        await stage.sees("Title", "x = 1", "idle")


@pytest.mark.slow
async def test_a_reply_of_a_megabyte():
    text = "".join(
        f"Paragraph {i} goes on for a while, in words that nobody reads to the end.\n\n" for i in range(13_500)
    )
    script = answer(*(step(text[at : at + 100_000], accepted=0) for at in range(0, len(text), 100_000)))
    async with open_chat(ScriptedEngine(script)) as stage:
        await stage.send("go")
        await stage.sees("Paragraph 13499", "idle")
        assert len(text) > 1_000_000
        assert "".join(said.source for said in stage.chat.query_one(Answer).query(MarkdownPassage)) == text


def test_the_parser_itself_bounds_how_deep_a_text_nests():
    """Textual makes a widget for each level, and Python recurses through them."""
    for text in DEEP.values():
        assert max((token.level for token in parser().parse(text)), default=0) <= 2 * 20, text[:20]


def test_a_table_of_too_many_cells_is_shown_as_it_was_written():
    """Each cell is a widget: 600 of them held the screen for a minute."""
    small = "| a | b |\n|---|---|\n| c | d |\n"
    wide = "|a" * MAX_CELLS + "|\n" + "|-" * MAX_CELLS + "|\n" + "|x" * MAX_CELLS + "|\n"
    kinds = [token.type for token in parser().parse(f"{small}\n{wide}\nEnd.\n") if token.level == 0]
    assert kinds == ["table_open", "table_close", "fence", "paragraph_open", "paragraph_close"]
    fence = next(token for token in parser().parse(wide) if token.type == "fence")
    assert fence.content == wide.rstrip("\n")
