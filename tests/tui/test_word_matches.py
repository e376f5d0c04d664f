"""Words are compared without capitals and accents, counted as they are read, and marked where they are drawn."""

from __future__ import annotations

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from localspec.tui.chat.word_matches import SearchedMessage, WordFinder, WordHit, WordHits, pattern, plain, spans
from localspec.tui.markdown.marks import Marks

HIT, CHOSEN = Style(underline=True), Style(reverse=True)


def found(text: str, words: str) -> list[str]:
    sought = pattern(words)
    return [text[start:end] for start, end in spans(text, sought)] if sought else []


@pytest.mark.parametrize(
    ("text", "words", "hits"),
    [
        ("The cat, the CAT", "cat", ["cat", "CAT"]),
        ("A STRAẞE, eine Strasse", "straße", ["STRAẞE", "Strasse"]),
        ("Crème BRÛLÉE cafe\u0301.", "creme brulee", ["Crème BRÛLÉE"]),
        ("Crème BRÛLÉE cafe\u0301.", "cafe", ["cafe\u0301"]),
        ("ẞ then x", "x", ["x"]),
        ("two  \n words", "two words", ["two  \n words"]),
        ("a.b (c)", "a.b (", ["a.b ("]),
        ("한국어", "한국", ["한국"]),
        ("aaa", "aa", ["aa"]),
        ("text", "  ", []),
    ],
)
def test_letters_match_in_capitals_or_not_with_accents_or_without(text: str, words: str, hits: list[str]):
    assert found(text, words) == hits


def test_an_answer_is_looked_through_as_it_is_read():
    shown = plain(
        "# Head\nthe **best** `x`, a [link](http://the.best)\n```python\n2**3 # the best\n```\n<think>*so*</think>"
    )
    assert [one.strip() for one in shown.split("\n") if one.strip()] == [
        "Head",
        "the best x, a [link]",
        "2**3 # the best",
        "so",
    ]


def test_hits_are_counted_one_by_one_and_a_file_once_with_its_name():
    sources = [
        SearchedMessage("a needle, a Needle", files=(("hay.txt", "needle needle"), ("none.txt", "hay"))),
        SearchedMessage("hay"),
        SearchedMessage("**need**le", is_markdown=True),
    ]
    hits = WordFinder().find(sources, "needle")
    assert [hits.at(index) for index in range(len(hits))] == [
        WordHit(0, 0),
        WordHit(0, 1),
        WordHit(0, 0, "hay.txt"),
        WordHit(2, 0),
    ]
    assert [hits.first_in(place) for place in range(3)] == [0, None, 3]
    assert len(WordFinder().find(sources, "")) == len(WordHits("")) == 0


def test_a_text_is_folded_once_and_forgotten_when_it_is_gone(monkeypatch: pytest.MonkeyPatch):
    folds: list[str] = []
    monkeypatch.setattr("localspec.tui.chat.word_matches.folded", lambda text: folds.append(text) or text)
    finder, chat = WordFinder(), [SearchedMessage(f"message {number}") for number in range(2000)]
    for words in ("m", "me", "mes"):
        assert len(finder.find(chat, words)) == 2000
    assert len([text for text in folds if text.startswith("message")]) == 2000
    finder.find(chat[:1], "m")
    assert len(finder._folded) == 1


def styled(lines: list[str], words: str, chosen: int | None = None) -> list[list[tuple[str, Style]]]:
    """What has a style, line by line."""
    sought, widget = pattern(words), Widget()
    assert sought is not None
    marks = Marks(
        lambda text: spans(text, sought),
        lambda _: True,
        HIT,
        CHOSEN,
        None if chosen is None else (widget, chosen),
    )
    drawn = marks.over(widget, [Strip([Segment(line)]) for line in lines])
    assert [strip.text for strip in drawn] == lines
    return [[(text, style) for text, style, _ in strip if style] for strip in drawn]


def test_every_hit_is_marked_and_the_chosen_one_has_a_mark_of_its_own():
    assert styled(["a cat, a Cat", "none", "cat"], "cat", chosen=1) == [
        [("cat", HIT), ("Cat", CHOSEN)],
        [],
        [("cat", HIT)],
    ]


def test_a_hit_that_is_wrapped_is_marked_in_both_lines_and_wide_letters_are_two_cells():
    assert styled(["日本 the big  ", "   cat", "big cat"], "big cat") == [
        [("big", HIT)],
        [("cat", HIT)],
        [("big cat", HIT)],
    ]
    assert styled(["日本語 x"], "本") == [[("本", HIT)]]
    assert styled(["catcat"], "cat") == [[("cat", HIT), ("cat", HIT)]]


def test_a_mark_keeps_the_colour_that_is_there():
    sought = pattern("b")
    assert sought is not None
    marks = Marks(lambda text: spans(text, sought), lambda _: True, HIT, CHOSEN)
    [strip] = marks.over(Widget(), [Strip([Segment("ab", Style(color="red")), Segment("c")])])
    assert [(text, style) for text, style, _ in strip] == [
        ("a", Style(color="red")),
        ("b", Style(color="red", underline=True)),
        ("c", None),
    ]
