"""Chats to keep, made here; and child processes that write them. Knows no screen."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from itertools import count
from pathlib import Path

import msgspec

from localspec.core.events import FinishReason, Stats, Step
from localspec.history import OWN, Answered, Asked, Generation, History, NewChat, SavedAnswer, StoredChat, StoredMessage
from localspec.history.open_file import private
from localspec.history.schema import APPLICATION_ID, MIGRATIONS
from tests.support.scripted_engine import answer as script
from tests.support.scripted_engine import step, totals

ROUNDS = (step("Dra", "fts", " it"), step(".", accepted=0))
ROOT = Path(__file__).parents[2]
GUIDE = NewChat("guide", title="A tale")
MESSAGE = "(id, conversation_id, parent_id, role, content, status, created_at)"  # columns of every version


class WholeMessage(msgspec.Struct, frozen=True):
    """A line of an export as jsonl, read back."""

    message: StoredMessage
    steps: tuple[Step, ...]


class WholeChat(msgspec.Struct, frozen=True):
    """An export as JSON, read back."""

    chat: StoredChat
    messages: tuple[WholeMessage, ...]


class Talk:
    """Names what is said: each thing below the one before, unless it is said below another."""

    def __init__(self, last: int | None = None) -> None:
        self.ids = count(OWN)
        self.last, self.answered = last, 0

    def asks(self, question: str, *, below: int | None = -1, chat: NewChat = GUIDE) -> Asked:
        asked = Asked(chat, question, next(self.ids), self.last if below == -1 else below)
        self.last, self.answered = asked.id, 0
        return asked

    def answers(self, said: SavedAnswer, *, to: int = -1) -> Answered:
        """The answer to the last question, once more or grown; or another one `to` a question."""
        if to != -1 or not self.answered:
            self.question = to if to != -1 else self.last or 0
            self.last = self.answered = next(self.ids)
        return Answered(said, self.answered, self.question)


def stats(*rounds: Step, finish: FinishReason = "stop") -> Stats:
    return totals(script(*rounds, finish=finish)[:-1], finish)


def answer(
    text: str = "Drafts it.", *, rounds: tuple[Step, ...] = ROUNDS, finish: FinishReason = "stop"
) -> SavedAnswer:
    took = stats(*rounds, finish=finish)
    return SavedAnswer(text, Generation("guide", quant="int8", device="cpu", draft="guide-draft", stats=took), rounds)


def partial(text: str, *, rounds: tuple[Step, ...] = ROUNDS) -> SavedAnswer:
    return SavedAnswer(text, Generation(target="guide"), rounds)


def chat(history: History, *texts: str, title: str = "") -> list[StoredMessage]:
    """A chat in which user and assistant take turns to say these."""
    said = [history.begin(NewChat("guide", title=title or texts[0]), texts[0])]
    for text in texts[1:]:
        said.append(reply(history, said[-1], text))
    return said


def reply(history: History, to: StoredMessage, text: str) -> StoredMessage:
    role = "user" if to.role == "assistant" else "assistant"
    return history.append(StoredMessage.unsaved(to.chat_id, role, text, parent_id=to.id))  # type: ignore[arg-type]


def deepen(history: History, chat_id: str, size: int) -> None:
    """The chat's first message, answered by a chain of others until there are so many."""
    rows = [(number, chat_id, number - 1) for number in range(2, size + 1)]
    insert = f"INSERT INTO message{MESSAGE} VALUES (?, ?, ?, 'assistant', 'deep', 'done', '')"
    history._database.write(lambda db: db.executemany(insert, rows))


def contents(path: Path) -> list[str]:
    """What is in the file, by its own connection, oldest first."""
    db = sqlite3.connect(path)
    try:
        return [text for (text,) in db.execute("SELECT content FROM message ORDER BY id")]
    finally:
        db.close()


def sound(path: Path) -> bool:
    db = sqlite3.connect(path)
    try:
        return db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        db.close()


def old_file(path: Path, version: int, *, rows: bool) -> None:
    """A history as a localspec of that version left it."""
    private(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    for step_to in MIGRATIONS[:version]:
        step_to(db)
    if rows:
        columns, values = "id, title, created_at, updated_at, model_key, head_id", "'old', 'A tale', '', '', 'guide', 2"
        db.execute(f"INSERT INTO conversation({columns}) VALUES ({values})")
        db.execute(f"INSERT INTO message{MESSAGE} VALUES (1, 'old', NULL, 'user', 'Once?', 'done', '2026')")
        db.execute("INSERT INTO attachment VALUES (1, 1, NULL, NULL, NULL, 'A long paste.')")
        db.execute(f"INSERT INTO message{MESSAGE} VALUES (2, 'old', 1, 'assistant', 'Upon a time.', 'done', '2026')")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {version}")
    db.close()


def child(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A program of its own, with our folder of chats, whose lines are read as they come."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


WRITER = """
import sys
from pathlib import Path
from localspec.history import History, NewChat, StoredMessage
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with History(path) as history:
    last = history.begin(NewChat("guide", title=name), f"{name} 0")
    print(last.content, flush=True)
    for number in range(1, count):
        last = history.append(StoredMessage.unsaved(last.chat_id, "user", f"{name} {number}", parent_id=last.id))
        print(last.content, flush=True)
"""
