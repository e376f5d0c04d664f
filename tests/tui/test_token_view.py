"""Every token is shown, marked by who wrote it; no mark is a colour alone, and no token is obeyed."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from localspec.core.events import Proposal, Source, Step, Token
from localspec.core.sanitize import clean
from localspec.history.provenance import edited_steps
from localspec.tui.transcript.legend import legend
from localspec.tui.transcript.token_view import FAINTEST, REJECTED, STYLES, Mark, Page, TokenView, mark, marks, visible
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


def test_the_five_sources_differ_in_more_than_colour():
    sources: list[tuple[Source, int | None]] = [("draft", 0), ("bonus", None), ("fix", None), ("plain", None)]
    shown = [mark(token("word", source, pos)) for source, pos in (*sources, ("edited", None))]
    looks = {(one.text, without_colour(one.style)) for one in shown}
    assert looks == {("word₁", ()), ("word", ("bold",)), ("word", ("underline",)), ("word", ()), ("word", ("italic",))}


def test_what_the_user_wrote_stands_in_quotes_before_the_rounds():
    """Not every terminal has italics."""
    view = TokenView([step(" two", " three")], edited_steps("One\n"))
    for _ in range(2):
        assert ["".join(mark.text for mark in line) for line in view.lay_out(30)] == ["«One↵", "» two₁ three"]
    assert {mark.style for mark in view.lay_out(9)[0]} == {STYLES["edited"]}


def test_a_drafted_token_says_its_place_and_fades_with_it():
    assert [mark(token("a", "draft", pos)).text for pos in (0, 8, 9, 15)] == ["a₁", "a₉", "a₁₀", "a₁₆"]
    faint = [int(mark(token("a", "draft", pos)).style.split()[-1].rstrip("%")) for pos in range(16)]
    assert faint == sorted(faint, reverse=True)
    assert (faint[0], faint[-1]) == (100, FAINTEST)


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


def test_the_place_stands_before_the_line_break():
    assert mark(token("}\n", "draft", 1)).text == "}↵₂\n"


def test_rejected_proposals_follow_their_round_when_asked_for():
    one = step("the", " cat", " sat")
    assert [mark.text for mark in marks(one, "tokens")] == ["the₁", " cat₂", " sat"]
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
    assert shown.translate(str.maketrans("", "", "₁₂↵")) == clean("".join(words)).replace("\n", "")


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
        assert {*STYLES.values(), REJECTED} <= looks
        assert cell_len(line.plain) <= 58
