"""Marks below a text say who wrote its tokens, in letters and signs alone."""

from __future__ import annotations

from localspec.core.events import Origin, Step, Token
from localspec.history.provenance import pack, unpack
from localspec.history.text.marks import LEGEND, LOOKED_UP, LOOKUP, marked
from localspec.tui.transcript import sources

COPIED = Step(
    "draft",
    (
        Token(1, "One", "draft", pos=0, drafter="early-exit"),
        Token(2, " two", "draft", pos=1, drafter="lookup"),
        Token(3, ".", "bonus"),
    ),
    2,
    2,
    drafters=("early-exit", "lookup"),
    origin=Origin("file", "notes.md", 7),
    position=12,
)


def test_a_looked_up_token_has_a_mark_of_its_own_which_the_legend_has():
    assert marked("One two.", (COPIED,), width=20) == "One two.\n1--=---+"
    assert f"{LOOKED_UP} drafted\nby look-up" in LEGEND
    assert sources.LOOKUP.name == LOOKUP


def test_a_kept_round_still_says_who_drafted_and_where_it_was_copied_from():
    assert unpack(pack((COPIED,))) == (COPIED,)
