"""What a chat is called after its questions, and that a title which the user gave stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from localspec.core.events import Notice, Stats, Step
from localspec.history import History, NewChat, Update
from localspec.history.text.columns import cells
from localspec.history.titles import WIDTH, title_of
from localspec.history.turns import TurnWriter
from localspec.tui.chat.conversation import Conversation
from localspec.tui.chat.recorder import HistoryRecorder


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        ("What is a drafter?", "What is a drafter?"),
        ("\n\n  What is\ta drafter?  \nTell me.", "What is a drafter?"),
        ("Hi, what is a drafter? And a target?", "what is a drafter?"),
        ("hello there! Explain RoPE. Be brief.", "Explain RoPE"),
        ("Hey\nWhat is up with numba?", "What is up with numba?"),
        ("good morning - is it late?", "is it late?"),
        ("Hello world in Rust", "Hello world in Rust"),
        ("Hi-fi systems for beginners", "Hi-fi systems for beginners"),
        ("history of Rome", "history of Rome"),
        ("@notes/todo.txt what is open?", "todo.txt: what is open?"),
        ("@README what is it", "README: what is it"),
        ('compare @"my file.md" and @b.py', "compare my file.md and b.py"),
        ("@src/heap.py:10-20 what is it?", "heap.py:10-20: what is it?"),
        ('compare @"my file.md":3-4 and @b.py', "compare my file.md:3-4 and b.py"),
        ("@notes.txt, what is open?", "notes.txt, what is open?"),
        ("What is in @~/notes.txt?", "What is in notes.txt?"),
        ("@app.route('/x') def f(): fails", "def f(): fails"),
        ("What does @property do?", "What does @property do?"),
        ("/etc/hosts is empty", "/etc/hosts is empty"),
        ("/summarise this text", "summarise this text"),
        ("## Plan\nDo it", "Plan"),
        ("> 1. **Bold** and `code` and _so on_", "Bold and code and so on"),
        ("Why is 2 * 3 six in my_python_code?", "Why is 2 * 3 six in my_python_code?"),
        ("See [the docs](https://x.y/z) for [/nope]", "See the docs for [/nope]"),
        ("Fix this:\n```python\ndef f(): pass\n```\nplease", "Fix this"),
        ("```python\ndef f(): pass\n```\nWhat does it do?", "What does it do?"),
        ("```python\ndef f(): pass\n```", "def f(): pass"),
        ("```python\ndef f(): pass", "def f(): pass"),
        ("\u201cTo be\u201d, said he", "To be\u201d, said he"),
        ('"What is it?"', "What is it?"),
        ("Use it, e.g. Python or i.e. Ruby. Then stop.", "Use it, e.g. Python or i.e. Ruby"),
        ("Is pi 3.14? Yes.", "Is pi 3.14?"),
        ("\u4ec0\u4e48\u662f\u8349\u7a3f\uff1f\u8bf7\u89e3\u91ca\u3002", "\u4ec0\u4e48\u662f\u8349\u7a3f\uff1f"),
        ("hi", ""),
        ("Hello!", ""),
        ("hey there,", ""),
        ("@notes.txt", ""),
        ("", ""),
        (" \n ", ""),
        ("```\n```", ""),
    ],
)
def test_a_title_is_what_was_asked(asked: str, title: str):
    assert title_of(asked) == title


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        ("what is it?", "todo.txt: what is it?"),
        ("", "todo.txt"),
        ("hi", "todo.txt"),
        ("@notes/todo.txt", "todo.txt"),
        ("what is in @notes/todo.txt", "what is in todo.txt"),
        ("Which of these tasks is due on Monday?", "Which of these tasks is due on Monday?"),
    ],
)
def test_a_few_words_about_a_file_are_called_after_it_too(asked: str, title: str):
    assert title_of(asked, ["notes/todo.txt", "b.py"]) == title


@pytest.mark.parametrize("asked", ["long " * 100, "x" * 100, "\u4e2d" * 100, "a-word-of-" * 20, "and, " * 40])
def test_a_title_fits_and_is_cut_between_words(asked: str):
    title = title_of(asked)
    assert cells(title) <= WIDTH
    assert title.endswith("…")
    assert " " not in asked or asked.startswith(title[:-1] + (" " if asked.startswith("long") else ", "))


def test_a_title_that_just_fits_is_whole():
    assert title_of("word " * 11 + "words") == "word " * 11 + "words"
    assert title_of("word " * 11 + "words and more") == "word " * 10 + "word…"


class Sink:
    """Writes at once what a recorder says, and keeps its order."""

    in_trouble = False

    def __init__(self, history: History) -> None:
        self.history, self.turns = history, TurnWriter()

    def start(self, tell: Callable[[Notice], object]) -> None: ...

    def post(self, update: Update) -> None:
        self.turns.write(self.history, update)

    def steps(self, message_id: int) -> Sequence[Step]:
        return self.history.steps(message_id)


@pytest.fixture
def history() -> Iterator[History]:
    with History() as kept:
        yield kept


def titles(history: History) -> list[str]:
    return [chat.title for chat in history.chats()]


def ask(recorder: HistoryRecorder, talk: Conversation, *questions: str) -> None:
    for question in questions:
        recorder.ask(talk.ask(question), Stats())


def test_a_chat_that_begins_with_a_greeting_is_called_after_the_next_question_that_says_more(history: History):
    recorder, talk = HistoryRecorder(Sink(history), NewChat("guide")), Conversation()
    ask(recorder, talk, "hi")
    assert titles(history) == ["hi"]
    ask(recorder, talk, "Hello!", "hi, what is a drafter? Be brief.")
    assert (titles(history), recorder.title) == (["what is a drafter?"], "what is a drafter?")
    ask(recorder, talk, "And a target?")
    assert titles(history) == ["what is a drafter?"]
    recorder.leave()
    ask(recorder, Conversation(), "What is a target?")
    assert sorted(titles(history)) == ["What is a target?", "what is a drafter?"]


def test_a_title_that_the_user_gave_stays(history: History):
    """Given in this chat, or in the list meanwhile."""
    recorder, talk = HistoryRecorder(Sink(history), NewChat("guide")), Conversation()
    ask(recorder, talk, "hi")
    recorder.rename("hello")
    ask(recorder, talk, "What is a drafter?")
    assert titles(history) == ["hello"]
    recorder.leave()
    ask(recorder, talk := Conversation(), "hi")
    history.change(history.chats()[0].id, title="Mine")
    ask(recorder, talk, "What is a drafter?")
    assert sorted(titles(history)) == ["Mine", "hello"]


def test_a_title_that_was_given_before_the_first_question_is_that_of_the_chat(history: History):
    recorder = HistoryRecorder(Sink(history), NewChat("guide"))
    recorder.rename("Mine")
    ask(recorder, Conversation(), "What is a drafter?")
    assert titles(history) == ["Mine"]


def test_a_chat_that_goes_on_is_called_after_more_than_a_greeting(history: History):
    recorder, talk = HistoryRecorder(Sink(history), NewChat("guide")), Conversation()
    ask(recorder, talk, "hi")
    again = HistoryRecorder(Sink(history), NewChat("guide"))
    again.open(history.chats()[0])
    ask(again, Conversation(), "What is a drafter?")
    assert titles(history) == ["What is a drafter?"]


def test_a_question_that_was_taken_back_gives_no_title(history: History):
    recorder, talk = HistoryRecorder(Sink(history), NewChat("guide")), Conversation()
    asked = talk.ask("What is a drafter?")
    recorder.ask(asked, Stats())
    talk.take_back(asked)
    recorder.remove(asked, talk.head)
    ask(recorder, talk, "What is a target?")
    assert titles(history) == ["What is a target?"]


def test_without_titles_no_question_gives_one(history: History):
    recorder = HistoryRecorder(Sink(history), NewChat("guide"), titled=False)
    ask(recorder, Conversation(), "hi", "What is a drafter?")
    assert titles(history) == [""]
