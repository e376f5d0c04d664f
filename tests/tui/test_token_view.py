"""Every token is shown, marked by who wrote it; no mark is a colour alone, and no token is obeyed."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from localspec.core.events import Origin, Proposal, Source, Step, Token
from localspec.core.sanitize import clean
from localspec.history.provenance import edited_steps
from localspec.tui.transcript.legend import legend, pointed
from localspec.tui.transcript.sources import ALL, REJECTED, SOURCES
from localspec.tui.transcript.token_view import FAINTEST, Mark, Page, TokenView, about, mark, marks, visible
from tests.core.test_sanitize import FORBIDDEN, fuzzed
from tests.support.scripted_engine import step


def token(text: str, source: Source = "plain", pos: int | None = None) -> Token:
    return Token(id=1, text=text, source=source, pos=pos)


def without_colour(style: str) -> tuple[str, ...]:
    """What a terminal without colours still shows of a style."""
    return tuple(word for word in style.split() if word in {"bold", "underline", "strike", "reverse", "italic"})


def lines(*texts: str, width: int = 20) -> list[str]:
    page = Page(width)
    for text in texts:
        page.add(Mark(text, ""))
    return ["".join(mark.text for mark in line) for line in page.lines]


def looked_up(origin: Origin | None = None, pos: int = 2) -> tuple[Token, Step]:
    copied = Token(1, "word", "draft", pos=pos, drafter="lookup")
    return copied, Step("draft", (copied,), 3, 3, drafters=("lookup",) * 3, origin=origin, position=300)


def test_the_five_sources_and_a_look_up_differ_in_more_than_colour():
    sources: list[tuple[Source, int | None]] = [("draft", 0), ("bonus", None), ("fix", None), ("plain", None)]
    shown = [mark(token("word", source, pos)) for source, pos in (*sources, ("edited", None))]
    looks = {(one.text, without_colour(one.style)) for one in shown}
    marks = [("italic",), ("bold",), ("underline",), (), ("bold", "italic")]
    assert looks == {("word", mark) for mark in marks}
    assert without_colour(mark(*looked_up()).style) == ("italic", "underline")
    assert len({without_colour(look.style) for look in ALL}) == len(ALL) == len(SOURCES) + 1


def test_what_the_user_wrote_stands_in_quotes_before_the_rounds():
    """Not every terminal has italics."""
    view = TokenView([step(" two", " three")], edited_steps("One\n"))
    for _ in range(2):
        assert ["".join(mark.text for mark in line) for line in view.lay_out(30)] == ["«One↵", "» two three"]
    assert {mark.style for mark in view.lay_out(9)[0]} == {SOURCES["edited"].style}


def test_a_drafted_token_fades_with_its_position_which_its_tooltip_says():
    shown = [mark(token("a", "draft", pos)) for pos in range(16)]
    assert {one.text for one in shown} == {"a"}, "no digit in the words"
    faint = [int(one.style.split()[-1].rstrip("%")) for one in shown]
    assert faint == sorted(faint, reverse=True)
    assert (faint[0], faint[-1]) == (100, FAINTEST)
    assert [about(one.token) for one in shown[:2] if one.token] == [
        "drafted: token 1 of its draft",
        "drafted: token 2 of its draft",
    ]


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (None, ""),
        (Origin("conversation", position=88), ", copied from this chat, 212 tokens back"),
        (Origin("conversation", position=299), ", copied from this chat, 1 token back"),
        (Origin("branch", "3", 4), ", copied from another answer"),
        (Origin("file", "notes\x1b[2J.md", 4), ", copied from notes␛[2J.md"),
        (Origin("file"), ", copied from an attached text"),
        (Origin("chat", "A tale", 4), ", copied from the chat “A tale”"),
        (Origin("chat"), ", copied from another chat"),
    ],
)
def test_of_a_looked_up_token_it_is_said_where_it_was_copied_from(origin: Origin | None, said: str):
    assert about(*looked_up(origin)) == f"look-up: token 3 of its draft{said}"


def test_a_drafted_token_names_the_kind_of_its_drafter():
    _, step = looked_up(Origin("conversation"))
    by = [about(Token(1, "a", "draft", pos=0, drafter=kind), step) for kind in ("early-exit", "model", "other")]
    assert by == [f"{name}: token 1 of its draft" for name in ("early exit", "draft model", "other")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("word", "word"),
        (" word", " word"),
        ("  ", "␣␣"),
        ("\n\n", "↵\n↵\n"),
        ("\t", "⇥   "),
        (" \t\n", "␣⇥   ↵\n"),
        ("", "·"),
        ("\u00a0", "␣"),
        ("\u200b", "␣"),
    ],
)
def test_no_token_is_invisible(text: str, shown: str):
    """Bold blanks look like blanks: who wrote them could not be seen."""
    assert visible(text) == shown


def test_rejected_proposals_follow_their_round_when_asked_for():
    one = step("the", " cat", " sat")
    assert [mark.text for mark in marks(one, "tokens")] == ["the", " cat", " sat"]
    last = [*marks(one, "rejects")][-1]
    assert (last.text, last.style) == ("‹x›", REJECTED)
    assert without_colour(REJECTED) == ("strike",)


def test_a_rejected_proposal_says_what_drafter_and_target_gave_it():
    odds = [(0.614, 0.2249), (1.0, 0.001), (None, 0.5), (None, None)]
    wanted = tuple(Proposal(1, "the\n", *pair) for pair in odds)
    shown = [*marks(Step(kind="draft", tokens=(), drafted=4, rejected=wanted), "rejects")]
    assert "".join(mark.text for mark in shown) == "‹the↵ .61/.22›‹the↵ 1.00/.00›‹the↵ –/.50›‹the↵›"
    assert [without_colour(mark.style) for mark in shown] == [("strike",), ()] * 3 + [("strike",)]


def test_a_rejected_newline_breaks_no_line():
    wanted = Step(kind="draft", tokens=(), drafted=1, rejected=(Proposal(id=1, text="a\nb\n"),))
    assert [mark.text for mark in marks(wanted, "rejects")] == ["‹a↵b↵›"]


def test_tokens_are_not_divided_at_the_end_of_a_line():
    assert lines("four", "four", "four", width=10) == ["fourfour", "four"]
    assert lines("ten cells!", "x", width=10) == ["ten cells!", "x"]


def test_a_broken_line_goes_on_without_the_blank_between_words():
    assert lines("one", " two", " three", " ", width=8) == ["one two", "three "]
    assert lines("12345678", " ", width=8) == ["12345678", " "]


def test_a_token_longer_than_a_line_is():
    assert lines("a", "0123456789", "b", width=4) == ["a", "0123", "4567", "89b"]


def test_wide_characters_count_twice():
    assert lines("日本", "日本", "日", width=5) == ["日本", "日本", "日"]


def test_line_breaks_within_a_token_are_kept():
    assert lines("a↵\n↵\nb", "c") == ["a↵", "↵", "bc"]


def test_hostile_tokens_are_shown_and_never_obeyed():
    """Control bytes, bidi overrides, tags and markup, in committed and in rejected tokens; whatever the width."""
    for text in fuzzed(11, 500):
        wanted = (Proposal(id=1, text=text),)
        hostile = Step(kind="draft", tokens=(token(text, "fix"),), drafted=1, rejected=wanted)
        page = Page(30)
        for one in marks(hostile, "rejects"):
            page.add(one)
        for line in page.lines:
            shown = "".join(mark.text for mark in line)
            assert FORBIDDEN.isdisjoint(shown)
            assert "\n" not in shown
            assert cell_len(shown) <= 30


def test_markup_is_text():
    assert visible("[/nope][@click=app.quit]x[/]") == "[/nope][@click=app.quit]x[/]"


def test_the_tokens_together_are_the_text():
    """Marks aside, nothing is lost and nothing is twice."""
    words = [f"w{i} \n"[: 2 + i % 4] for i in range(300)]
    view = TokenView([step(*words[i : i + 3]) for i in range(0, 300, 3)])
    shown = "".join(mark.text for line in view.lay_out(24) for mark in line)
    assert shown.translate(str.maketrans("", "", "↵")) == clean("".join(words)).replace("\n", "")


def test_lines_laid_out_while_it_grows_are_those_of_the_whole():
    rounds: list[Step] = []
    view = TokenView(rounds)
    for number in range(200):
        rounds.append(step(f"word{number} ", "and\n" if number % 7 == 0 else "and ", "more "))
        view.lay_out(33)
    assert view.lay_out(33) == TokenView(rounds).lay_out(33)
    assert view.lay_out(50) == TokenView(rounds).lay_out(50)


def test_the_legend_shows_every_mark_and_fits_the_smallest_terminal():
    for line in (legend("tokens", "Shift+F3"), legend("rejects", "Shift+F3")):
        looks = {str(span.style) for span in line.spans}
        assert {*(look.style for look in ALL), REJECTED} <= looks
        assert max(map(cell_len, line.plain.splitlines())) <= 58


def test_the_mouse_on_a_word_of_the_legend_finds_what_it_means():
    plain = legend("tokens", "Shift+F3")
    found = {look.word for x in range(cell_len(plain.plain)) if (look := pointed(plain, x))}
    assert found == {*(look.word for look in ALL), "‹rejected›"}
    assert pointed(plain, plain.plain.index("fix")) is SOURCES["fix"]
    assert pointed(plain, plain.plain.index("Shift")) is None
    odds = pointed(legend("rejects", ""), plain.plain.index("‹rejected") + len("‹rejected "))
    assert odds is not None
    assert odds.meaning == "its probability to the drafter and to the model"
