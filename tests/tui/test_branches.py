"""The message tree on the screen, every key with the prompt focused: what is shown is what the model is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from textual import events

from localspec.core.events import AnyEvent
from localspec.history import Attachment, History, StoredMessage, recall
from localspec.tui.control import branches, edits
from localspec.tui.panels.prompt import PLACEHOLDER, Prompt
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.question import Question
from localspec.tui.transcript.speaker import POINTED
from tests.support.chat_stage import HELLO, Stage, kept_chat, open_chat
from tests.support.chats import answer as kept_answer
from tests.support.chats import chat, partial
from tests.support.scripted_engine import ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy

CODE = answer(step("Two:\n\n```py\nfirst\n```\n\nand\n\n", "```\nsecond\x1b\n```\n"))

EDITING = "Enter sends it as another version · Esc cancels the edit"


def says(*texts: str) -> list[Sequence[AnyEvent]]:
    return [answer(step(text, accepted=0)) for text in texts]


async def ask(stage: Stage, text: str) -> None:
    """And wait for the end of the answer."""
    asked = len(stage.engine.requests)
    await stage.send(text)
    await ended(stage, asked + 1)


async def ended(stage: Stage, requests: int) -> None:
    await stage.until(lambda: len(stage.engine.requests) == requests and stage.chat.state.phase == "idle")


def told(stage: Stage) -> list[str]:
    """What the engine was told last."""
    return [message.content for message in stage.engine.requests[-1].messages or ()]


def shown(stage: Stage) -> list[str]:
    """The messages in the transcript, top to bottom, which are the conversation's branch."""
    texts = [child.text for child in stage.chat.transcript.children if isinstance(child, Question | Answer)]
    assert texts == [said.text for said in stage.chat.conversation.branch]
    return texts


async def shows(stage: Stage, *texts: str) -> None:
    await stage.until(lambda: shown(stage) == list(texts))
    assert isinstance(stage.app.focused, Prompt)


def pointed(stage: Stage) -> list[str]:
    """The messages that carry the mark."""
    lines = stage.seen.splitlines()
    return [lines[n + 1].strip(" ▌▐┃│▊▎█") for n, line in enumerate(lines) if POINTED in line]


async def points(stage: Stage, text: str) -> None:
    await stage.until(lambda: [text in line for line in pointed(stage)] == [True])


# --- another answer, another question


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["ctrl+r", "/retry"])
async def test_a_retry_is_another_answer_beside_the_first(how: str):
    async with open_chat(ScriptedEngine(*says("first", "second", "third", "then"))) as stage:
        await ask(stage, "hi")
        for requests in (2, 3):
            await (stage.send(how) if how.startswith("/") else stage.pilot.press(how))
            await ended(stage, requests)
            assert told(stage) == ["hi"]
        await shows(stage, "hi", "third")
        await stage.sees("‹3/3›  [md] tok")
        await ask(stage, "go on")
        assert told(stage) == ["hi", "third", "go on"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("again", "told_so"), [("first", True), ("second", False)])
async def test_the_same_answer_once_more_is_no_surprise(again: str, told_so: bool):
    """At temperature 0 nothing seemed to happen."""
    async with open_chat(ScriptedEngine(*says("first", again)), size=(100, 24)) as stage:
        await ask(stage, "hi")
        await stage.pilot.press("ctrl+r")
        await ended(stage, 2)
        await stage.sees("‹2/2›")
        await stage.until(lambda: ("The same text as before" in stage.seen) == told_so)
        assert ("temperature=0.8" in stage.seen) == told_so


@pytest.mark.slow
async def test_a_question_that_got_no_answer_is_answered_by_a_retry():
    async with open_chat(ScriptedEngine(HELLO, paused=True), ScriptedEngine(*says("first"))) as stage:
        stage.engine.permit(1)
        await stage.ready()
        await stage.send("hi")
        await stage.sees("reading prompt")
        stage.engine.die()
        await stage.until(lambda: stage.chat.state.phase == "gone")
        await stage.pilot.press("ctrl+r")  # loads the engine, as long as there is none
        await stage.until(lambda: len(stage.engines) == 2 and stage.chat.state.phase == "idle")
        await stage.pilot.press("ctrl+r")
        await ended(stage, 1)
        assert told(stage) == ["hi"]
        await shows(stage, "hi", "first")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["alt+e", "up", "/edit"])
async def test_an_edited_question_stands_beside_the_first_with_an_answer_of_its_own(how: str):
    async with open_chat(ScriptedEngine(*says("first", "second", "other"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        await (stage.send(how) if how.startswith("/") else stage.pilot.press(how))
        await stage.sees(EDITING)
        assert stage.chat.prompt.text == "two"
        await stage.pilot.press("!")
        await stage.pilot.press("enter")
        await ended(stage, 3)
        assert told(stage) == ["one", "first", "two!"]
        await shows(stage, "one", "first", "two!", "other")
        await stage.sees("‹2/2›")
        assert EDITING not in stage.seen
        assert stage.chat.prompt.text == ""


@pytest.mark.slow
async def test_up_where_nothing_is_typed_edits_what_was_said_last_also_in_a_chat_from_before():
    async with kept_chat(ScriptedEngine(*says("first"))) as stage:
        await stage.ready()
        await stage.send("/tokens")
        await stage.pilot.press("up")
        await stage.sees("There is no message to edit.")
        assert stage.chat.prompt.text == "", "a command is not what was said"
        await ask(stage, "one")
    async with kept_chat(ScriptedEngine(*says("other")), past=recall()) as stage:
        await stage.sees("first", "idle")
        await stage.pilot.press("up")
        await stage.sees(EDITING)
        assert stage.chat.prompt.text == "one"
        await stage.pilot.press("!", "enter")
        await ended(stage, 1)
        assert told(stage) == ["one!"]
    assert [said.content for said in recall().branch] == ["one!", "other"]


async def test_an_edit_that_is_given_up_gives_the_draft_back():
    async with open_chat(ScriptedEngine(*says("first"))) as stage:
        await stage.send("//one")
        await ended(stage, 1)
        await stage.write("a draft")
        await stage.pilot.press("alt+e")
        await stage.until(lambda: stage.chat.prompt.text == "//one")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.prompt.text == "a draft")
        await shows(stage, "/one", "first")


@pytest.mark.parametrize(
    ("keys", "text", "hint"),
    [
        (["alt+e"], "one", edits.CANCELLED),
        (["alt+up", "e"], "first", edits.CANCELLED_EARLIER),
    ],
)
async def test_an_edit_that_was_cancelled_is_opened_as_it_was_left(keys: list[str], text: str, hint: str):
    """Nothing that was typed is lost, and undo has the message as it is."""
    async with open_chat(ScriptedEngine(*says("first"))) as stage:
        await ask(stage, "one")
        for typed in ("! By hand", ". More"):
            await stage.pilot.press(*keys)
            await stage.until(lambda: stage.chat.prompt.text.startswith(text))
            before = stage.chat.prompt.text
            stage.chat.prompt.insert(typed)
            await stage.pilot.press("escape")
            await stage.hints(stage.chat.feedback.with_keys(hint))
            assert stage.chat.prompt.text == ""
            assert before + typed in (f"{text}! By hand", f"{text}! By hand. More")
        await shows(stage, "one", "first")
        await stage.pilot.press(*keys)
        await stage.until(lambda: stage.chat.prompt.text == f"{text}! By hand. More")
        await stage.pilot.press("ctrl+underscore")
        await stage.until(lambda: stage.chat.prompt.text == text)
        stage.chat.status.end_hint()
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.edits.edited is None)
        assert not stage.chat.status.hint
        await stage.pilot.press(*keys)
        await stage.until(lambda: stage.chat.prompt.text == text)


async def test_an_edit_that_another_branch_ended_is_opened_as_it_was_left():
    async with open_chat(ScriptedEngine(*says("first"))) as stage:
        await ask(stage, "one")
        await stage.pilot.press("alt+e", "!", "alt+z")
        await stage.until(lambda: stage.chat.prompt.text == "one")
        await stage.pilot.press("alt+y")
        await shows(stage, "one", "first")
        await stage.pilot.press("alt+e")
        await stage.until(lambda: stage.chat.prompt.text == "one!")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sent", [False, True])
async def test_an_edit_has_the_questions_files_and_the_draft_keeps_its_own(sent: bool):
    """What is longer than 2,500 characters is attached."""
    engine = ScriptedEngine(*says("first", "second"))
    async with open_chat(engine, size=(100, 24)) as stage:
        await stage.ready()
        await stage.write("a" * 3000)
        await ask(stage, "one")
        await stage.write("b" * 4000)
        await stage.write("a draft")
        await stage.pilot.press("alt+e")
        await stage.until(lambda: stage.chat.prompt.text == "one")
        pills = stage.chat.prompt.pills
        assert [len(each.text or "") for each in pills.attachments] == [3000]
        await stage.pilot.press("enter" if sent else "escape")
        await stage.until(lambda: stage.chat.prompt.text == "a draft")
        assert [len(each.text or "") for each in pills.attachments] == [4000]
        if sent:
            await ended(stage, 2)
            assert told(stage) == [stage.engine.requests[0].messages[-1].content]  # type: ignore[index]


async def test_a_hostile_question_from_a_history_is_harmless_in_the_prompt():
    with History() as history:
        chat(history, "/[/nope]\x1b[2J\x9b2J", "first")
    async with open_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.ready()
        await stage.pilot.press("alt+e")
        await stage.until(lambda: stage.chat.prompt.text == "//[/nope]␛[2J2J")


@pytest.mark.slow
async def test_nothing_changes_under_an_answer_that_is_being_written():
    engine = ScriptedEngine(*says("first"), HELLO, paused=True)
    async with open_chat(engine) as stage:
        engine.permit(4)
        await ask(stage, "one")
        engine.permit(2)
        await stage.send("two")
        await stage.sees("Hello there")
        for key in ("ctrl+r", "alt+e"):
            await stage.pilot.press(key)
            await stage.sees("Wait for the answer to end, or stop it: press Esc.")
            stage.chat.status.end_hint()
        for letter in "rebd[":
            await stage.pilot.press("alt+up", "alt+up", "alt+up", letter)
            await stage.until(lambda: stage.chat.status.hint)
            stage.chat.status.end_hint()
        assert stage.chat.prompt.text == ""
        engine.permit()
        await ended(stage, 2)
        assert [said.text for said in stage.chat.conversation.branch][:3] == ["one", "first", "two"]
        assert len(stage.chat.conversation.tree) == 4


async def test_without_a_model_nothing_is_retried_and_an_edit_stays_in_the_prompt():
    async with open_chat(ScriptedEngine(*says("first"))) as stage:
        await ask(stage, "one")
        stage.engine.die()
        await stage.until(lambda: stage.chat.state.phase == "gone")
        await stage.send("/retry")
        await stage.sees("Not now: The engine")
        await stage.pilot.press("alt+e")
        await stage.pilot.press("!", "enter")
        await stage.until(lambda: stage.chat.prompt.text == "one!")
        await shows(stage, "one", "first")


# --- an answer of one's own


async def test_an_answer_is_edited_as_a_version_of_ones_own_and_the_chat_goes_on_from_it():
    """Issue 21, 12: nothing is generated, and the model reads what the user wrote."""
    async with kept_chat(ScriptedEngine(*says("first", "second", "third", " more"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        await stage.write("a draft")
        await stage.pilot.press("ctrl+u", "alt+up", "alt+up", "alt+up")
        await points(stage, "first")
        await stage.pilot.press("e")
        await stage.sees("Enter keeps it as another version · Esc cancels the edit")
        assert stage.chat.prompt.text == "first"
        await stage.pilot.press("ctrl+c")
        await stage.write("@dataclass\n" + "x" * 3000)
        await stage.pilot.press("enter")
        mine = "@dataclass\n" + "x" * 3000
        await shows(stage, "one", mine)
        assert (len(stage.engine.requests), stage.chat.prompt.pills.attachments) == (2, ())
        await stage.pilot.press("alt+up", "i")
        await stage.sees("guide · edited by you · 3,011 characters")
        await stage.pilot.press("escape")
        await ask(stage, "three")
        assert told(stage) == ["one", mine, "three"]
        await shows(stage, "one", mine, "three", "third")
    async with kept_chat(ScriptedEngine(*says(" more")), past=recall()) as stage:
        await stage.ready()
        assert [said.author for said in stage.chat.conversation.branch] == ["You", "guide · edited", "You", "guide"]
        await stage.pilot.press("alt+up", "alt+up", "alt+up", "[")
        await shows(stage, "one", "first", "two", "second")


@pytest.mark.slow
async def test_an_edited_answer_is_shown_as_edited_and_may_be_continued():
    async with kept_chat(ScriptedEngine(*says("first", " more"), answer(step("!", accepted=0)))) as stage:
        await ask(stage, "one")
        await stage.pilot.press("alt+up", "e")
        await stage.until(lambda: stage.chat.prompt.text == "first")
        await stage.pilot.press("space", "w", "enter")
        await shows(stage, "one", "first w")
        await stage.sees("guide · edited", "‹2/2›  [md] tok")
        assert "50.0 tok/s" not in stage.seen
        await stage.pilot.press("f3")
        await stage.sees("«first w»")
        await stage.send("/continue")
        await ended(stage, 2)
        request = stage.engine.requests[-1]
        assert (told(stage), request.continues) == (["one", "first w"], True)
        await stage.sees("«first w» more", "50.0 tok/s")
        assert stage.chat.state.figures.predicted_n == 1, "what the user wrote is in no figure"
        await stage.pilot.press("alt+up", "i")
        await stage.sees("guide int8 cpu · edited by you · ")
        await stage.pilot.press("escape")
        await ask(stage, "two")
        assert told(stage) == ["one", "first w more", "two"]
    edited = recall().branch[1]
    assert (edited.content, edited.edited, edited.status) == ("first w more", len("first w"), "done")
    async with kept_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.sees("guide · edited")
        await stage.pilot.press("f3")
        await stage.sees("«first w» more")


@pytest.mark.slow
async def test_an_answer_that_was_not_changed_is_no_other_version_and_attachments_are_none_of_one():
    async with open_chat(ScriptedEngine(*says("first", "second")), size=(100, 24)) as stage:
        await ask(stage, "one")
        await stage.pilot.press("alt+up", "e")
        await stage.until(lambda: stage.chat.prompt.text == "first")
        await stage.pilot.press("enter")
        await stage.sees("Nothing was changed.")
        await shows(stage, "one", "first")
        await stage.pilot.press("alt+up", "e")
        await stage.until(lambda: stage.chat.prompt.text == "first")
        stage.chat.prompt.pills.add(Attachment("notes.txt", text="x"))
        await stage.pilot.press("!", "enter")
        await stage.sees("An answer is text only")
        assert stage.chat.prompt.text == "first!"
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.prompt.text == "")
        assert len(stage.chat.conversation.tree) == 2


# --- back, and elsewhere


async def test_undo_takes_turns_back_into_the_prompt_and_redo_brings_them_back():
    """An undo of the first turn showed the page of an empty chat, and no key led back (issue 21, 1)."""
    async with open_chat(ScriptedEngine(*says("first", "second", "new"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        await stage.send("/undo")
        await shows(stage, "one", "first")
        await stage.sees("Taken back into the prompt. Alt+Y or /redo brings the turn back.")
        assert stage.chat.prompt.text == "two"
        await stage.pilot.press("alt+z")
        await shows(stage)
        await stage.sees("4 messages are on another branch: /redo, or F7 shows the tree.")
        assert stage.chat.prompt.text == "one"
        assert "Ask anything." not in stage.seen.replace(PLACEHOLDER, "")
        await stage.pilot.press("alt+z")
        await stage.sees("There is nothing to undo.")
        await stage.send("/redo")  # behind it: what the hint says is typed where the cursor is
        await shows(stage, "one", "first")
        assert stage.chat.prompt.text == ""
        await stage.pilot.press("alt+z")
        await stage.send("/show")
        await stage.until(lambda: stage.chat.query(Note))
        await stage.until(lambda: stage.chat.prompt.text == "one")
        await stage.pilot.press("alt+y")
        await shows(stage, "one", "first")
        await stage.hints("The turn is back.")
        assert stage.chat.prompt.text == ""
        await stage.send("/redo")
        await shows(stage, "one", "first", "two", "second")
        await stage.send("/redo")
        await stage.sees("There is nothing to bring back: no turn follows here.")
        await stage.pilot.press("alt+z", "!", "enter")
        await ended(stage, 3)
        assert told(stage) == ["one", "first", "two!"]
        await stage.send("/redo")
        await stage.sees("There is nothing to bring back")
        await stage.pilot.press("alt+up", "alt+up", "[")
        await shows(stage, "one", "first", "two", "second")


async def test_a_message_that_was_put_into_the_prompt_offers_no_completion_and_one_key_ends_the_edit():
    async with open_chat(ScriptedEngine(*says("first"))) as stage:
        await ask(stage, "see //theme and @")
        for key in ("alt+z", "alt+e"):
            await stage.pilot.press(key)
            await stage.until(lambda: stage.chat.prompt.text == "see //theme and @")
            await stage.pilot.pause()
            assert not stage.chat.prompt.completion.is_open
            await stage.pilot.press("escape")
            await stage.until(lambda: stage.chat.prompt.text == "")
            await stage.pilot.press("alt+y")
        await stage.write("@")
        await stage.until(lambda: stage.chat.prompt.completion.is_open)


async def test_a_version_says_how_to_reach_the_others():
    async with open_chat(ScriptedEngine(*says("first", "second"), paused=True)) as stage:
        stage.engine.permit(4)
        await ask(stage, "one")
        assert stage.messages[1].speaker.tooltip is None
        await stage.pilot.press("ctrl+r")
        await stage.hints("The previous answer is kept as another version: Alt+↑, then [.")
        stage.engine.permit()
        await ended(stage, 2)
        assert str(stage.messages[1].speaker.tooltip) == "Version 2 of 2: Alt+↑ goes to the message, [ ] to the others."


@pytest.mark.slow
async def test_redo_brings_back_the_version_that_was_shown_unless_another_turn_was_written_there():
    async with open_chat(ScriptedEngine(*says("first", "second", "third"))) as stage:
        await ask(stage, "one")
        await stage.pilot.press("ctrl+r")
        await ended(stage, 2)
        await stage.pilot.press("alt+up", "[")
        await shows(stage, "one", "first")
        await stage.pilot.press("escape", "alt+z", "alt+y")
        await shows(stage, "one", "first")
        await stage.pilot.press("alt+z", "escape")
        await ask(stage, "instead")
        await stage.pilot.press("alt+z", "alt+y")
        await shows(stage, "instead", "third")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("end", ["sent", "redone", "put away", "changed"])
async def test_a_draft_is_kept_while_a_turn_that_was_taken_back_is_in_the_prompt(end: str):
    """And what is attached to either."""
    async with open_chat(ScriptedEngine(*says("first", "second")), size=(100, 24)) as stage:
        await stage.write("a" * 3000)
        await ask(stage, "one")
        await stage.write("b" * 4000)
        await stage.write("a draft")
        await stage.pilot.press("alt+z")
        await stage.until(lambda: stage.chat.prompt.text == "one")
        attachments = stage.chat.prompt.pills
        assert [len(each.text or "") for each in attachments.attachments] == [3000]
        await stage.pilot.press(
            *{"changed": ["!", "alt+y"], "sent": ["enter"], "redone": ["alt+y"]}.get(end, ["escape"])
        )
        expected = "a draft\n\none!" if end == "changed" else "a draft"
        await stage.until(lambda: stage.chat.prompt.text == expected)
        assert [len(each.text or "") for each in attachments.attachments][:1] == [4000]
        assert stage.chat.prompt.border_title is None
        if end == "sent":
            await ended(stage, 2)
            assert told(stage) == [stage.engine.requests[0].messages[-1].content]  # type: ignore[index]


@pytest.mark.slow
async def test_a_chat_whose_first_turn_was_taken_back_is_opened_as_one_with_messages():
    async with kept_chat(ScriptedEngine(*says("first", "second"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        await stage.pilot.press("alt+z", "alt+z")
        await shows(stage)
    async with kept_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.ready()
        await stage.sees("4 messages are on another branch: /redo, or F7 shows the tree.")
        await stage.send("/redo")
        await shows(stage, "one", "first")
        await stage.sees("one", "first")
        assert "on another branch" not in stage.seen
        await stage.send("/redo")
        await shows(stage, "one", "first", "two", "second")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["b", "/branch"])
async def test_a_branch_goes_on_from_an_earlier_answer(how: str):
    async with open_chat(ScriptedEngine(*says("first", "second", "other"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        if how == "b":
            await stage.pilot.press("alt+up", "alt+up", "alt+up", "b")
        else:
            await stage.pilot.press("alt+z", "escape")
            await stage.send(how)
        await shows(stage, "one", "first")
        await stage.sees("Your next message continues from here.")
        await ask(stage, "elsewhere")
        assert told(stage) == ["one", "first", "elsewhere"]
        await shows(stage, "one", "first", "elsewhere", "other")
        await stage.sees("‹2/2›")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["/undo", "delete"])
async def test_figures_of_an_answer_that_is_gone_go_too(how: str):
    async with open_chat(ScriptedEngine(*says("first"))) as stage:
        await ask(stage, "one")
        await stage.sees("50.0 tok/s")
        if how == "delete":
            await stage.pilot.press("alt+up")
            await points(stage, "first")
            await stage.pilot.press("d", "d")
        else:
            await stage.send(how)
        await stage.until(lambda: "50.0 tok/s" not in stage.seen)
        assert stage.chat.state.figures.predicted_n == 0


@pytest.mark.slow
async def test_an_edit_ends_where_the_branch_does():
    """What is sent then goes on from what is shown."""
    async with open_chat(ScriptedEngine(*says("first", "second", "third"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        await stage.pilot.press("alt+e")
        await stage.until(lambda: stage.chat.edits.edited is not None)
        await stage.pilot.press("ctrl+c")
        await stage.send("/undo")
        await shows(stage, "one", "first")
        assert stage.chat.edits.edited is None
        await stage.pilot.press("ctrl+c")
        await ask(stage, "three")
        assert told(stage) == ["one", "first", "three"]


async def test_a_branch_does_not_begin_at_a_question():
    async with open_chat(ScriptedEngine(*says("first"))) as stage:
        await stage.ready()
        await stage.send("/branch")
        await stage.sees("Select an answer to branch from")
        await ask(stage, "one")
        await stage.pilot.press("alt+up", "alt+up", "b")
        await stage.sees("Select an answer to branch from")
        await shows(stage, "one", "first")


async def test_brackets_go_from_version_to_version_each_with_what_came_after_it():
    async with open_chat(ScriptedEngine(*says("first", "second", "other", "more"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        await stage.pilot.press("alt+up", "alt+up", "alt+up", "r")
        await ended(stage, 3)
        assert told(stage) == ["one"]
        await shows(stage, "one", "other")
        await stage.pilot.press("alt+up", "[")
        await shows(stage, "one", "first", "two", "second")
        await points(stage, "first")
        await stage.sees("‹1/2›", "Version 1 of 2.")  # the title may be out of sight
        await stage.pilot.press("[")
        await stage.sees("There is no version before this one.")
        await stage.pilot.press("]")
        await shows(stage, "one", "other")
        await stage.sees("Version 2 of 2.")
        assert "no version before" not in stage.seen
        await stage.pilot.press("[", "escape")
        await ask(stage, "three")
        assert told(stage) == ["one", "first", "two", "second", "three"]


async def test_a_message_is_deleted_at_the_second_d(monkeypatch: pytest.MonkeyPatch):
    async with open_chat(ScriptedEngine(*says("first", "second", "more"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        monkeypatch.setattr(branches, "DELETE_SECONDS", 0.01)
        await stage.pilot.press("alt+up", "alt+up", "d")
        await stage.until(lambda: not stage.chat.status.hint)  # too late for a second one
        await stage.sees("d delete")
        monkeypatch.setattr(branches, "DELETE_SECONDS", 60)
        await stage.pilot.press("d")
        await stage.sees("Press d again to delete this message", "d again?")
        await shows(stage, "one", "first", "two", "second")
        await stage.pilot.press("d")
        await shows(stage, "one", "first")
        await ask(stage, "three")
        assert told(stage) == ["one", "first", "three"]


@pytest.mark.slow
async def test_the_context_is_that_of_what_is_shown_whatever_was_deleted_or_loaded_again(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(branches, "DELETE_SECONDS", 60)
    first = ScriptedEngine(*says("first"), answer(step("second", accepted=0), prompt=40))
    async with kept_chat(first, ScriptedEngine()) as stage:
        await ask(stage, "one")
        await stage.sees("ctx 13/8,192")
        await ask(stage, "two")
        await stage.sees("ctx 41/8,192")
        await stage.pilot.press("alt+up", "d", "d")
        await stage.sees("ctx 13/8,192")
        first.die()
        await stage.until(lambda: stage.chat.state.phase == "gone")
        await stage.pilot.press("ctrl+r")
        await stage.ready()
        await stage.sees("ctx 13/8,192")
    async with kept_chat(ScriptedEngine(), past=recall()) as stage:
        await stage.ready()
        await stage.sees("ctx 13/8,192")
        await stage.pilot.press("alt+up", "alt+up", "alt+up", "d", "d")
        await stage.until(lambda: not stage.chat.conversation.branch and "ctx" not in stage.seen)


# --- the message that is pointed at


async def test_alt_up_and_down_point_at_messages_with_a_mark_that_needs_no_colour(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_chat(ScriptedEngine(*says("first", "second"))) as stage:
        await stage.pilot.press("alt+up")
        await ask(stage, "one")
        await ask(stage, "two")
        for key, text in [("up", "second"), ("up", "two"), ("up", "first"), ("down", "two"), ("down", "second")]:
            await stage.pilot.press(f"alt+{key}")
            await points(stage, text)
        await stage.sees("y copy  c code  e edit  r retry  b branch  t tokens  i stats  d delete")
        assert "Enter Send" not in stage.seen
        assert "version" not in stage.seen, "there is one"
        await stage.pilot.press("alt+up")
        await stage.until(lambda: "y copy  e edit  r retry  i stats" in stage.seen)
        await stage.pilot.press("alt+down")
        await stage.write("a draft")
        await stage.pilot.press("alt+up")
        await stage.sees("Letters act on a message while the prompt is empty.")
        await stage.pilot.press("ctrl+u")
        await stage.pilot.press("alt+down")
        await points(stage, "second")
        await stage.pilot.press("escape")
        await stage.until(lambda: not pointed(stage))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("leave", ["x", "A", "?", "paste"])
async def test_other_letters_leave_the_message_and_are_typed(leave: str):
    async with open_chat(ScriptedEngine(*says("first"))) as stage:
        await ask(stage, "one")
        await stage.pilot.press("alt+up")
        await points(stage, "first")
        await (stage.write("paste") if leave == "paste" else stage.pilot.press(leave))
        await stage.until(lambda: not pointed(stage) and stage.chat.prompt.text == leave)
        await stage.pilot.press("y", "r")
        await stage.until(lambda: stage.chat.prompt.text == f"{leave}yr")
        assert len(stage.engine.requests) == 1


async def test_a_burst_of_keys_means_what_it_means_typed_slowly():
    async with open_chat(ScriptedEngine(*says("first", "second"))) as stage:
        await ask(stage, "one")
        for key in ("alt+up", "r", "x", "y"):
            stage.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await ended(stage, 2)
        await stage.until(lambda: stage.chat.prompt.text == "xy")


@pytest.mark.parametrize(("text", "said"), [("`one`", "no code block"), ("```\na\n```", "Copied.")])
async def test_which_of_several_blocks_of_code_was_copied_is_said(text: str, said: str):
    two = f"{text}\n\n```\nb\n```"
    async with open_chat(ScriptedEngine(*says(text, two))) as stage:
        await ask(stage, "one")
        await stage.asks("/copy code", said)
        await ask(stage, "two")
        last = "Copied." if text == "`one`" else "Copied the last of 2 code blocks."
        await stage.asks("/copy code", last)
        assert stage.app.clipboard == "b\n"


@pytest.mark.slow
async def test_letters_copy_a_message_and_its_code():
    async with open_chat(ScriptedEngine(CODE)) as stage:
        await ask(stage, "one")
        await stage.pilot.press("alt+up", "c")
        await stage.sees("Copied the last of 2 code blocks.")
        assert stage.app.clipboard == "second␛\n"
        await stage.pilot.press("y")
        await stage.until(lambda: stage.app.clipboard.startswith("Two:") and "\x1b" not in stage.app.clipboard)
        await stage.pilot.press("alt+up", "y")
        await stage.until(lambda: stage.app.clipboard == "one")
        await stage.pilot.press("c")
        await stage.sees("There is no code block in it.")
        for typed, copied in [
            ("/copy code", "second␛\n"),
            ("/copy", "Two:"),
            ("/copy all", "You:\none\n\nguide:\nTwo:"),
        ]:
            await stage.send(typed)
            await stage.until(lambda copied=copied: stage.app.clipboard.startswith(copied))
        await stage.send("/copy this")
        await stage.sees("Use /copy, /copy code or /copy all.")
        assert shown(stage)[0] == "one"


async def test_all_that_was_said_can_be_copied_before_the_first_answer():
    async with open_chat(ScriptedEngine(paused=True)) as stage:
        await stage.asks("/copy all", "There is nothing to copy.")
        await stage.send("one")
        await stage.sees("You · queued")
        await stage.send("/copy all")
        await stage.until(lambda: stage.app.clipboard == "You:\none")


@pytest.mark.slow
async def test_t_shows_the_tokens_of_one_answer_and_i_who_wrote_it():
    async with open_chat(ScriptedEngine(HELLO, HELLO)) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        await stage.pilot.press("alt+up", "t")
        await stage.until(lambda: stage.seen.count("md [tok]") == stage.seen.count("[md] tok") == 1)
        await stage.pilot.press("i")
        await stage.sees("guide int8 cpu · drafted by guide-draft · prompt 12 tok")
        await stage.pilot.press("t")
        await stage.until(lambda: "md [tok]" not in stage.seen)
        await stage.pilot.press("alt+up", "t", "i")
        await stage.sees("You · 3 characters")


async def test_letters_act_on_the_message_that_is_pointed_at():
    async with open_chat(ScriptedEngine(*says("first", "second", "other"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        await stage.pilot.press("alt+up", "alt+up", "alt+up", "alt+up", "e")
        await stage.until(lambda: stage.chat.prompt.text == "one")
        await stage.pilot.press("!", "enter")
        await ended(stage, 3)
        assert told(stage) == ["one!"]
        await shows(stage, "one!", "other")


# --- kept


@pytest.mark.slow
async def test_steps_in_the_tree_are_there_when_the_chat_is_opened_again():
    async with kept_chat(ScriptedEngine(*says("first", "second", "third"))) as stage:
        await ask(stage, "one")
        await stage.pilot.press("ctrl+r")
        await ended(stage, 2)
        await ask(stage, "two")
        await stage.pilot.press("alt+up", "alt+up", "alt+up", "[")
        await shows(stage, "one", "first")
    assert [said.content for said in recall().branch] == ["one", "first"]
    async with kept_chat(ScriptedEngine(*says("more", "once more")), past=recall()) as stage:
        await stage.sees("‹1/2›", "first")
        await ask(stage, "go on")
        assert told(stage) == ["one", "first", "go on"]
        await stage.pilot.press("alt+up", "alt+up", "alt+up", "]")
        await shows(stage, "one", "second", "two", "third")
        await stage.pilot.press("escape", "ctrl+r")
        await ended(stage, 2)
        assert told(stage) == ["one", "second", "two"]
    opened = recall()
    assert [said.content for said in opened.branch] == ["one", "second", "two", "once more"]
    assert len(opened.tree) == 8


async def test_what_is_deleted_on_the_screen_is_deleted_on_the_disk():
    async with kept_chat(ScriptedEngine(*says("first", "second"))) as stage:
        await ask(stage, "one")
        await ask(stage, "two")
        await stage.pilot.press("alt+up", "d", "d")
        await shows(stage, "one", "first", "two")
    assert [said.content for said in recall().tree.nodes.values()] == ["one", "first", "two"]


async def test_a_message_that_waits_is_in_the_history_before_its_turn_comes():
    """A killed program must not lose it: it stands below the answer that is still being written."""
    engine = ScriptedEngine(HELLO, *says("then"), paused=True)
    async with kept_chat(engine) as stage:
        await stage.begins("one")
        await stage.send("two")
        with History() as history:
            await stage.until(lambda: history.chats() and len(history.open(history.chats()[0].id).branch) == 3)
            branch = history.open(history.chats()[0].id).branch
        assert [(said.content, said.status) for said in branch] == [
            ("one", "done"),
            ("Hello there", "partial"),
            ("two", "done"),
        ]
        engine.permit()
        await ended(stage, 2)
        assert told(stage)[-1] == "two"
    assert [said.content for said in recall().branch] == ["one", "Hello there, world. Bye.", "two", "then"]


async def test_a_message_that_is_taken_back_is_taken_out_of_the_history():
    engine = ScriptedEngine(HELLO, paused=True)
    async with kept_chat(engine) as stage:
        await stage.send("early")
        await stage.sees("You · queued")
        await stage.pilot.press("escape")
        await stage.until(lambda: stage.chat.prompt.text == "early" and not stage.chat.query(Question))
        engine.permit()
        await stage.pilot.press("ctrl+c")
    with History() as history:
        assert history.chats() == []


async def test_the_rounds_of_an_answer_from_before_are_shown():
    with History() as history:
        asked, written = chat(history, "one", "")
        history.save(written.id, kept_answer())
        history.append(StoredMessage.unsaved(asked.chat_id, "user", "unanswered", written.id))
    async with kept_chat(ScriptedEngine(*says("first")), past=recall()) as stage:
        await stage.sees("▆· 2 rounds")
        await stage.pilot.press("f3")
        await stage.sees("md [tok]", "Drafts it.")
        await ask(stage, "more")
        assert told(stage) == ["one", "Drafts it.", "more"]


async def test_an_answer_cut_off_by_a_kill_can_be_written_once_more():
    with History() as history:
        _, written = chat(history, "Once?", "")
        history.save(written.id, partial("Upon a"))
    async with kept_chat(ScriptedEngine(*says("whole")), past=recall()) as stage:
        await stage.ready()
        await stage.pilot.press("ctrl+r")
        await ended(stage, 1)
        assert told(stage) == ["Once?"]
        await shows(stage, "Once?", "whole")
    assert [said.content for said in recall().tree.nodes.values()] == ["Once?", "Upon a", "whole"]
