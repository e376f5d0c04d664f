"""Markdown as it is laid out: short paragraphs share a widget."""

from __future__ import annotations

from itertools import pairwise

from localspec.tui.markdown.parser import JOINED_CHARACTERS, parser


def paragraphs(text: str) -> list[tuple[str, list[int] | None]]:
    """What each that is a widget of its own says, and its lines in the text."""
    tokens = parser().parse(text)
    return [
        ("".join("\n" if child.type == "hardbreak" else child.content for child in inline.children or ()), opening.map)
        for opening, inline in pairwise(tokens)
        if opening.type == "paragraph_open"
    ]


def test_short_paragraphs_are_one_with_blank_lines_in_it():
    assert paragraphs("one\n\ntwo\nlines\n\n\nthree\n") == [("one\n\ntwo\nlines\n\nthree", [0, 7])]


def test_whatever_stands_between_them_keeps_them_apart():
    found = [
        said for said, _ in paragraphs("one\n\n# title\n\ntwo\n\n- three\n\n  four\n\nfive\n\n> six\n>\n> seven\n")
    ]
    assert found == ["one", "two", "three", "four", "five", "six", "seven"]


def test_a_long_one_is_not_laid_out_again_with_what_follows():
    long = "word " * (JOINED_CHARACTERS // 5)
    assert [said for said, _ in paragraphs(f"{long}more\n\none\n\ntwo")] == [f"{long}more", "one\n\ntwo"]
