"""Long answers and thoughts in the chat: what is shown of them, and what is drawn again when they grow."""

from __future__ import annotations

import pytest
from textual.selection import SELECT_ALL

from localspec.core.events import AnyEvent, Step
from localspec.tui.markdown import pace as pace_module
from localspec.tui.markdown.code import Fence
from localspec.tui.markdown.leaves import LEAF_LINES, Leaf
from localspec.tui.markdown.pace import CODE_SECONDS, Pace
from localspec.tui.markdown.passage import MarkdownPassage
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.thought import Thought
from tests.support.chat_stage import Stage, open_chat
from tests.support.scripted_engine import ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy


def pieces(text: str, size: int) -> list[Step]:
    return [step(text[at : at + size], accepted=0) for at in range(0, len(text), size)]


def long_answer(text: str, size: int = 400) -> list[AnyEvent]:
    return answer(*pieces(text, size))


async def told(stage: Stage) -> Answer:
    await stage.send("go")
    await stage.until(lambda: stage.chat.conversation.head and stage.chat.state.phase == "idle")
    return stage.chat.query_one(Answer)


async def test_a_thought_is_one_line_that_opens_and_the_text_is_kept_whole():
    said = ["<think>", "\n", "first line\n", "[/nope] second", "</think>", "\n\nThe answer."]
    engine = ScriptedEngine(answer(*(step(text, accepted=0) for text in said)), paused=True)
    async with open_chat(engine) as stage:
        engine.permit(2)
        await stage.send("why")
        engine.permit(4)
        await stage.sees("▸ thinking… 3 tokens", "[/nope] second")
        assert "first line" not in stage.seen
        engine.permit()
        await stage.sees("▸ thought: 3 tokens", "The answer.", "idle")
        assert "second" not in stage.seen
        await stage.pilot.press("ctrl+t")
        await stage.sees("▾ thought: 3 tokens", "first line", "[/nope] second", "The answer.")
        await stage.pilot.press("ctrl+t")
        await stage.until(lambda: "first line" not in stage.seen)
        await stage.pilot.click(Thought)
        await stage.sees("▾ thought: 3 tokens", "first line")
        assert stage.turns[1].content == "".join(said)
        await stage.pilot.press("f3")
        await stage.sees("<think>")


async def test_a_thought_of_nothing_takes_no_line():
    async with open_chat(ScriptedEngine(long_answer("<think>\n\n</think>\n\nYes."))) as stage:
        await told(stage)
        await stage.sees("Yes.")
        assert "thought" not in stage.seen


async def test_what_is_in_code_is_no_thought():
    async with open_chat(ScriptedEngine(long_answer("```\n<think>\nx\n</think>\n```\n", 3))) as stage:
        await told(stage)
        await stage.sees("<think>", "</think>")
        assert not stage.chat.query(Thought)


async def test_a_growing_answer_is_drawn_again_in_its_last_passage_only(monkeypatch: pytest.MonkeyPatch):
    """Ten thousand tokens: what was written a screen ago is neither parsed nor styled again."""
    grown: list[MarkdownPassage] = []
    real = MarkdownPassage.append
    monkeypatch.setattr(MarkdownPassage, "append", lambda self, text: grown.append(self) or real(self, text))
    text = "".join(f"Paragraph {i} of **many**.\n\n" for i in range(400))
    async with open_chat(ScriptedEngine(long_answer(text))) as stage:
        shown = await told(stage)
        passages = list(shown.query(MarkdownPassage))
        assert len(passages) > 5
        assert "".join(said.source for said in passages) == text
        order = [passages.index(said) for said in grown]
        assert order == sorted(order)


async def test_a_code_block_of_500_lines_is_coloured_a_leaf_at_a_time_and_at_its_end_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
):
    coloured: list[int] = []
    real = Fence.coloured

    def counting(self: Fence, code: str) -> object:
        coloured.append(code.count("\n") + 1)
        return real(self, code)

    monkeypatch.setattr(Fence, "coloured", counting)
    lines = ["'''", *(f"line {i}" for i in range(500)), "'''", "", "x = 1"]
    text = "```python\n" + "\n".join(lines) + "\n```\n\nEnd.\n"
    async with open_chat(ScriptedEngine()) as stage:
        shown = Answer("guide")
        await stage.chat.feedback.show(shown)
        for piece in pieces(text, 120):
            shown.add(piece)
            await shown.flush()
        *growing, at_the_end = coloured
        assert max(growing) <= 2 * LEAF_LINES
        assert at_the_end == len(lines)
        await shown.end()
        leaves = list(shown.query_one(Fence).query_children(Leaf))
        assert "\n".join(leaf.content.plain for leaf in leaves).split("\n") == [line or " " for line in lines]
        assert {str(span.style) for span in leaves[5].content.spans} == {str(s.style) for s in leaves[1].content.spans}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [False, True])
async def test_of_a_growing_list_the_last_item_alone_is_drawn_again(number: bool):
    items = [f"{f'{i}.' if number else '-'} item **{i}**\n   - inner {i}\n" for i in range(1, 15)]
    engine = ScriptedEngine(answer(*(step(item, accepted=0) for item in items)), paused=True)
    async with open_chat(engine, size=(80, 60)) as stage:
        engine.permit(5)
        await stage.send("go")
        await stage.sees("item 3", "inner 3")
        first = stage.chat.query("MarkdownPassage Horizontal").first()
        engine.permit(4)
        await stage.sees("item 7", "inner 7")
        assert first.is_attached
        engine.permit()
        await stage.sees("item 14", "inner 14", "idle")
        seen = [line for line in stage.seen.splitlines() if "item" in line]
        assert [line.split("item")[1].split()[0] for line in seen] == [str(i) for i in range(1, 15)]
        if number:
            assert ["9. item" in seen[8], "10. item" in seen[9]] == [True, True]


async def test_a_line_that_only_looked_like_an_item_is_put_right():
    said = ["- one\n- two\n-", "- go on\n- three\n", "  ~ end\n"]
    async with open_chat(ScriptedEngine(answer(*(step(text, accepted=0) for text in said)), paused=True)) as stage:
        stage.engine.permit(3)
        await stage.send("go")
        await stage.sees("two")
        stage.engine.permit()
        await stage.sees("three", "-- go on", "idle")


def test_text_in_code_is_drawn_four_times_a_second_and_other_text_in_every_frame(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(pace_module, "monotonic", lambda: now)
    pace = Pace()
    drawn = 0
    for _ in range(20):
        now += CODE_SECONDS / 5
        drawn += pace.draws(in_code=True)
    assert drawn == 4
    assert all(pace.draws(in_code=False) for _ in range(5))


async def test_what_code_has_not_shown_yet_is_shown_when_nothing_more_arrives():
    engine = ScriptedEngine(long_answer("```\none\ntwo\nthree\nfour\n", 5), paused=True)
    async with open_chat(engine) as stage:
        engine.permit(2)
        await stage.send("go")
        for _ in range(4):
            engine.permit(1)
            await stage.pilot.pause()
        await stage.sees("three")


async def test_long_lines_of_code_go_on_below_with_a_mark_and_are_copied_as_they_were():
    code = "def f():\n    " + "x = first + second  # " * 9 + "\n\n    return 天" + "气" * 60
    async with open_chat(ScriptedEngine(), size=(60, 30)) as stage:
        shown = Answer("guide", f"Here:\n\n```python\n{code}\n```\n")
        await stage.chat.feedback.show(shown)
        await stage.sees("def f():", "↳ 天气")
        block = shown.query_one(Fence).region
        rows = [line[block.x : block.right] for line in stage.seen.splitlines()[block.y : block.bottom]]
        body = [row for row in rows if row.strip()]
        assert [row[:2] for row in body if row.strip() in ("def f():",)] == ["  "]
        broken = [row for row in body if row.startswith("↳ ")]
        assert len(broken) >= 5, "both long lines take several rows"
        assert sum("second" in row for row in body) >= 4
        assert "".join(body).count("气") == 60, "nothing of a line is out of sight"
        leaf = shown.query_one(Fence).query_one(Leaf)
        assert leaf.get_selection(SELECT_ALL) == (code.replace("\n\n", "\n \n"), "\n")
        second = next(y for y, row in enumerate(stage.seen.splitlines()) if "↳" in row)
        _, place = stage.chat.get_widget_and_offset_at(block.x + 2, second)
        assert place is not None
        assert place.y == 1, "the place of a letter is that in the text"
        assert code.split("\n")[1][place.x :].startswith(stage.seen.splitlines()[second][block.x + 2 :][:9])
