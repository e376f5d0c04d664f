"""Search finds words wherever they were said, and no query is an error."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from localspec.history import Attachment, History, NewChat, SearchHit, StoredMessage
from localspec.history.search import parse
from tests.support.chats import answer, chat

HOSTILE = (
    "", " ", "\0", "a\0b", '"', '""', '"""', '"a', 'a"', '"a" "', "*", "a*", "**", "^a", "a^", "(", ")", "a)", "(a",
    "NEAR(a b)", "NEAR", "AND", "OR", "NOT", "a AND", "NOT a", "a OR OR b", "content:a", "rowid:1", "{content}:a", "-a",
    "+a", "a + b", "a:b", ":", "%", "_", "\\", "\\%", "'", "'; DROP TABLE message; --", "?", "?1", ":a", "@a", "$a",
    "\x02", "\x03", "\ud800", "\U0010ffff", "👩‍👩‍👧", "é" * 5000, "a " * 100_000, "(" * 100_000, '"' * 100_001,
    "%_" * 50_000, "今" * 60_000, "\n", "\u202e", "[/nope]", "<b>", "\x1b[31m",
)  # fmt: skip


@pytest.fixture
def history() -> Iterator[History]:
    with History() as opened:
        chat(opened, "What is a drafter?", "It drafts; a naïve C++ façade.", title="Speculation")
        chat(opened, "天气怎么样？", "今天天气很好。", title="天气")
        chat(opened, "100% of foo_bar(x) -> y", "plain", title="[/nope]")
        yield opened


def found(history: History, query: str) -> list[str]:
    return [text(hit) for hit in history.search(query)]


def text(hit: SearchHit) -> str:
    return "".join(part.text for part in hit.parts)


def matches(hit: SearchHit) -> list[str]:
    return [part.text for part in hit.parts if part.matches]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("query", HOSTILE, ids=lambda query: ascii(query[:20]))
def test_no_query_is_an_error(history: History, query: str):
    for hit in history.search(query):
        assert text(hit)
    assert len(history.chats()) == 3


def test_no_random_query_is_an_error(history: History):
    random.seed(5)
    letters = "ab \"'*^()+-:{}%_\\\0天é\ud800\x02"
    for _ in range(500):
        history.search("".join(random.choices(letters, k=random.randrange(12))))


@pytest.mark.parametrize(
    ("query", "hits"),
    [
        ("drafter", ["What is a drafter?"]),
        ("DRAFTER what", ["What is a drafter?"]),
        ("draf", ["It drafts; a naïve C++ façade.", "What is a drafter?"]),
        ("draf what", []),
        ("naive", ["It drafts; a naïve C++ façade."]),
        ("specul", ["Speculation"]),
        ('"a drafter"', ["What is a drafter?"]),
        ('"drafter a"', []),
        ('"c++"', ["It drafts; a naïve C++ façade."]),
        ('"c--"', []),
        ("foo_bar", ["100% of foo_bar(x) -> y"]),
        ('"100%"', ["100% of foo_bar(x) -> y"]),
        ("->", ["100% of foo_bar(x) -> y"]),
        ('"_>"', []),
        ("%>", []),
        ('"draf"', []),
        ("天气", ["天气", "今天天气很好。", "天气怎么样？"]),
        ("很好", ["今天天气很好。"]),
        ("[/nope]", ["[/nope]"]),
        ("DROP", []),
    ],
)
def test_every_word_must_be_there_and_the_last_may_be_a_beginning(history: History, query: str, hits: list[str]):
    assert found(history, query) == hits


def test_a_pasted_page_is_its_first_words():
    assert len(parse("word " * 100_000).match.split()) == 32
    assert len(parse("long" * 100_000).match) < 210


def test_a_hit_names_the_chat_the_message_and_what_matched(history: History):
    (hit,) = history.search("drafter")
    opened = history.open(hit.chat_id)
    assert hit.message_id is not None
    assert opened.tree.nodes[hit.message_id].content == "What is a drafter?"
    assert (hit.title, hit.role, matches(hit)) == ("Speculation", "user", ["drafter"])
    (title,) = history.search("speculation")
    assert (title.chat_id, title.message_id, title.role, matches(title)) == (hit.chat_id, None, None, ["Speculation"])


def test_a_snippet_is_short_and_shows_the_match(history: History):
    chat(history, "before " * 500 + "needle 针" + " after" * 500)
    for query in ("needle", "针"):
        *_, hit = history.search(query)
        assert matches(hit) == [query]
        assert len(text(hit)) < 200
        assert text(hit).startswith("…")
        assert text(hit).endswith("…")


def test_a_text_with_our_marks_in_it_is_shown_whole(history: History):
    chat(history, "\x02odd\x03 marks \x03\x02here", title="t")
    (hit,) = history.search("marks")
    assert text(hit).translate({2: None, 3: None}) == "odd marks here"


def test_branches_that_are_not_shown_are_found_and_can_be_gone_to(history: History):
    question = history.begin(NewChat("guide"), "Once?")
    hidden = history.append(StoredMessage.unsaved(question.chat_id, "assistant", "xylophone", question.id))
    history.append(StoredMessage.unsaved(question.chat_id, "assistant", "marimba", question.id))
    (hit,) = history.search("xylophone")
    assert hit.message_id == hidden.id


def test_what_changes_is_found_as_it_is_now(history: History):
    question, written = chat(history, "Once?", "xylophone", title="marimba")
    history.save(written.id, answer("glockenspiel"))
    history.change(question.chat_id, title="celesta")
    assert found(history, "xylophone") == found(history, "marimba") == []
    assert found(history, "glockenspiel") == ["glockenspiel"]
    assert found(history, "celesta") == ["celesta"]
    history.delete_message(written.id)
    assert found(history, "glockenspiel") == []
    history.delete(question.chat_id)
    assert found(history, "celesta") == found(history, "once") == []


def test_the_newest_come_first_and_no_more_than_wanted(history: History):
    for number in range(30):
        chat(history, f"common {number}", title=f"common {number}")
    assert found(history, "common")[:2] == ["common 29", "common 28"]
    assert len(history.search("common", limit=7)) == 7
    assert len(history.search("common", limit=40)) == 40
    assert history.search("common", limit=0) == []


def test_an_index_that_is_damaged_is_built_again(history: History):
    """The messages are the truth; the index is made from them."""
    history._database.write(lambda db: db.execute("UPDATE message_fts_data SET block = X'00ff00ff00ff00ff00ff'"))
    assert found(history, "drafter") == ["What is a drafter?"]
    chat(history, "xylophone")
    assert len(found(history, "xylophone")) == 2
    history._database.write(lambda db: db.execute("DELETE FROM message_fts_data"))
    chat(history, "marimba")
    assert len(found(history, "marimba")) == 2


def test_words_of_an_attachment_are_found_as_long_as_it_is_there(history: History):
    """A megabyte of matches is searched in no time, too."""
    paste = Attachment(None, "text/plain", None, "marimba " * 120_000 + "xylophone 针")
    asked = history.begin(NewChat("guide"), "Read this", attachments=(paste,))
    for query in ("marimba", "xylophone", "XYLO", "针"):
        (hit,) = history.search(query)
        assert (hit.message_id, len(matches(hit)), len(text(hit)) < 200) == (asked.id, 1, True)
    history.delete(asked.chat_id)
    assert found(history, "xylophone") == found(history, "针") == []
