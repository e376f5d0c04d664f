"""The tree of a chat's branches: every message can be seen and gone to, however many there are, whatever they say."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.content import Content
from textual.geometry import Region

from localspec.history import History, StoredMessage, recall
from localspec.history.records import StoredChat
from localspec.tui.chat.conversation import Conversation, Utterance
from localspec.tui.chat.tree_lines import TreeLine, tree_lines
from localspec.tui.screens.tree import DEEPEST, BranchTree, TreeScreen, indent
from tests.core.test_sanitize import FORBIDDEN, fuzzed
from tests.support.chat_stage import kept_chat
from tests.support.chats import chat
from tests.support.scripted_engine import ScriptedEngine
from tests.tui.test_branches import ask, points, says, shows, told


def grown(*parents: int | None, head: int | None = None, texts: list[str] | None = None) -> Conversation:
    """Messages 1, 2, 3 …, each below its parent."""
    running = Conversation()
    said = [
        Utterance(
            number,
            parent,
            "user" if parent is None or parent % 2 == 0 else "assistant",
            texts[number - 1] if texts else f"text {number}",
            speaker="guide",
        )
        for number, parent in enumerate(parents, start=1)
    ]
    running.recall(StoredChat("", "", "", "", "", None, None, head, False, len(said)), said)
    return running


def lines(running: Conversation, *unfolded: int) -> list[TreeLine]:
    return tree_lines(running.tree, {said.id for said in running.branch}, set(unfolded))


def ids(running: Conversation, *unfolded: int) -> list[tuple[int, int]]:
    return [(line.message_id, line.depth) for line in lines(running, *unfolded)]


# --- its lines


def test_a_chat_without_forks_is_one_level():
    assert ids(grown(None, 1, 2, 3, head=4)) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert ids(grown()) == []


def test_other_branches_stand_indented_before_the_one_that_is_shown():
    running = grown(None, 1, 1, 2, 3, 1, head=5)  # answers 2, 3 and 6; 4 below 2, 5 below 3
    assert ids(running) == [(1, 0), (2, 1), (4, 1), (6, 1), (3, 0), (5, 0)]
    running.head = 4
    assert ids(running) == [(1, 0), (3, 1), (5, 1), (6, 1), (2, 0), (4, 0)]


def test_where_nothing_is_shown_the_branch_that_was_continued_last_is_the_main_one():
    assert ids(grown(None, 1, None, 1)) == [(3, 1), (1, 0), (2, 1), (4, 0)]


def test_a_chat_edited_at_every_turn_is_no_wider_than_its_side_branches():
    parents: list[int | None] = [None]
    for number in range(1, 300, 3):
        parents += [number, number, number + 2]
    assert {line.depth for line in lines(grown(*parents))} == {0, 1}
    assert len(indent(DEEPEST + 500)) < 24


def test_a_long_run_is_one_line_until_it_is_unfolded():
    running = grown(None, *range(1, 20), head=20)
    assert lines(running) == [
        TreeLine(1, 0), TreeLine(2, 0), TreeLine(3, 0, 16), TreeLine(19, 0), TreeLine(20, 0)
    ]  # fmt: skip
    assert [line.message_id for line in lines(running, 7)] == [*range(1, 21)], "one that hides what is looked for"
    assert len(lines(grown(None, *range(1, 6)))) == 6, "two messages are not worth a line of their own"


def test_every_message_is_in_a_line_or_in_a_fold_whatever_the_shape():
    for shape in ([None] * 50, [None, *range(1, 50)], [None, *[1] * 49], [None, *[n // 2 + 1 for n in range(49)]]):
        found = lines(grown(*shape))
        assert sum(max(1, line.hidden) for line in found) == 50
        shown = [line.message_id for line in lines(grown(*shape), *range(51))]
        assert sorted(shown) == [*range(1, 51)]


# --- on the screen


class Bare(App[None]):
    """The tree alone."""

    def __init__(self, running: Conversation, at: int | None = None) -> None:
        super().__init__()
        self.running, self.at = running, at
        self.chosen: list[int] = []

    def compose(self) -> ComposeResult:
        yield BranchTree(self.running, self.at)

    def on_branch_tree_chosen(self, message: BranchTree.Chosen) -> None:
        self.chosen.append(message.message_id)

    @property
    def seen(self) -> list[str]:
        tree = self.query_one(BranchTree)
        return [strip.text.rstrip() for strip in tree.render_lines(Region(0, 0, *tree.size))]


@pytest.mark.parametrize("width", [60, 80])
async def test_a_line_says_who_what_which_version_and_whether_it_is_shown_without_colour(
    width: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NO_COLOR", "1")
    app = Bare(grown(None, 1, 1, 3, head=4, texts=["Once?\nOr twice?", "Never.", "Twice. " * 40, "Why?"]))
    async with app.run_test(size=(width, 16)) as pilot:
        await pilot.pause()
        first, side, main, last = (line.strip() for line in app.seen[:4])
        assert first.startswith("● guide: Once? Or twice?")
        assert first.endswith("2 branches")
        assert (side.startswith("│ ○ guide: Never."), side.endswith("‹1/2›")) == (True, True)
        assert (main.startswith("● guide: Twice. Twice."), main.endswith("… ‹2/2›")) == (True, True)
        assert last == "● guide: Why?"
        assert max(map(len, app.seen)) <= width


@pytest.mark.slow
async def test_keys_walk_through_the_tree_and_enter_goes_to_a_message_or_unfolds():
    parents = [None, *range(1, 20), 10, 21]
    app = Bare(grown(*parents, head=20))
    async with app.run_test(size=(60, 16)) as pilot:
        await pilot.pause()
        await pilot.press("enter", "home", "enter", "down", "down", "enter")
        assert app.chosen == [20, 1], "the third is a fold"
        assert [line.split(": ")[1].split("  ")[0] for line in app.seen[:4]] == [f"text {n}" for n in (1, 2, 3, 4)]
        await pilot.press("enter", "home", "right_square_bracket", "enter")
        assert app.chosen == [20, 1, 3, 21]
        await pilot.press("right_square_bracket", "enter", "right_square_bracket", "left_square_bracket", "enter")
        assert app.chosen[4:] == [11, 21]
        await pilot.press("end", "pagedown", "down", "enter", "home", "pageup", "up", "enter")
        assert app.chosen[6:] == [20, 1]


async def test_two_thousand_messages_cost_what_is_in_sight(monkeypatch: pytest.MonkeyPatch):
    """Each a fork, so that nothing is folded."""
    parents: list[int | None] = [None]
    for number in range(1, 1998, 2):
        parents += [number, number]
    app = Bare(grown(*parents))
    drawn: list[int] = []
    content = BranchTree._content

    def counted(tree: BranchTree, place: int, width: int) -> Content:
        drawn.append(place)
        return content(tree, place, width)

    monkeypatch.setattr(BranchTree, "_content", counted)
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.pause()
        tree = app.query_one(BranchTree)
        assert tree.virtual_size.height == 1999
        assert f"text {1999}" in "".join(app.seen), "it opens at the newest"
        assert len(set(drawn)) < 3 * 20


async def test_hostile_texts_are_shown_and_never_obeyed():
    texts = [*fuzzed(21, 60), "[/nope][@click=app.quit]x[/]", ""]
    running = grown(None, *range(1, len(texts)), texts=texts)
    for said in running.tree.nodes.values():
        said.speaker = "[b]\x1b[2J"
    app = Bare(running, at=30)
    async with app.run_test(size=(80, 70)) as pilot:
        await pilot.pause()
        shown = "\n".join(app.seen)
        assert FORBIDDEN.isdisjoint(shown.replace("\n", ""))
        assert "[/nope][@click=app.quit]x[/]" in shown
        assert "(no text)" in shown


# --- over the chat


@pytest.mark.heavy
async def test_f7_shows_the_tree_and_enter_goes_to_a_message_of_another_branch():
    async with kept_chat(ScriptedEngine(*says("first", "second", "other", "more")), size=(60, 20)) as stage:
        await stage.ready()
        await stage.send("/tree")
        await stage.sees("This chat is empty: it has no branches yet.")
        await ask(stage, "one")
        await ask(stage, "two")
        await stage.pilot.press("alt+e", "!", "enter")
        await stage.until(lambda: len(stage.engine.requests) == 3 and stage.chat.state.phase == "idle")
        await stage.pilot.press("f7")
        await stage.until(lambda: isinstance(stage.app.screen, TreeScreen))
        await stage.sees("6 messages on 2 branches", "● guide: first", "2 branches", "│ ○ guide: second", "● You: two!")
        await stage.pilot.press("f7")
        await shows(stage, "one", "first", "two!", "other")
        await stage.send("/tree")
        await stage.until(lambda: isinstance(stage.app.screen, TreeScreen))
        await stage.pilot.press("left_square_bracket", "left_square_bracket", "enter")
        await shows(stage, "one", "first", "two", "second")
        await points(stage, "two")
        await stage.pilot.press("escape")
        await ask(stage, "three")
        assert told(stage) == ["one", "first", "two", "second", "three"]
    assert [said.content for said in recall().branch][-1] == "more"


@pytest.mark.slow
@pytest.mark.heavy
async def test_a_message_far_above_comes_into_sight_and_a_turn_that_was_taken_back_leaves_the_prompt():
    with History() as history:
        said = chat(history, *(f"text {n}" for n in range(80)))
        other = history.append(StoredMessage.unsaved(said[0].chat_id, "user", "elsewhere", said[3].id))
    async with kept_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.sees("elsewhere")
        await stage.pilot.press("alt+z")
        await stage.until(lambda: stage.chat.prompt.text == "elsewhere")
        await stage.pilot.press("f7", "home", "right_square_bracket", "down", "down", "enter")  # the fold
        await stage.pilot.press(*["down"] * 10, "enter")
        await stage.until(lambda: len(stage.chat.conversation.branch) == 80)
        await stage.sees("text 16")
        await points(stage, "text 16")
        assert stage.chat.prompt.text == ""
    assert recall().chat.head_id == other.id - 1
