"""An answer as its tokens, each marked by who wrote it. Knows rounds and cells; the door where tokens are cleaned.

A rejected proposal is struck through and in angle quotes, with both its probabilities. The position in the draft, the
origin of what was copied and the reason of a fix are in the tooltip, so that words stay words. What the user wrote of
the answer stands in double angle quotes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rich.cells import cell_len, chop_cells
from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from localspec.core.events import Proposal, Step, Token
from localspec.core.sanitize import clean, one_line
from localspec.engine.drafters.table import LOOKUP, kind_name
from localspec.tui.transcript.sources import ODDS, REJECTED, SOURCES, look

View = Literal["markdown", "tokens", "rejects"]

FADE, FAINTEST = 4, 70  # per cent of opacity lost by each position in the draft, and where that ends
NO_TEXT = "·"  # a token that ends inside a character, or one that only ends the answer
SIGNS = str.maketrans({"\t": "⇥   ", "\n": "↵\n"})
BLANK = "␣"


@dataclass(frozen=True, slots=True)
class Mark:
    """A token as it is shown. Newlines in it break the line. `step` is the round that wrote it."""

    text: str
    style: str
    token: Token | None = None  # where there is more to say of it
    step: Step | None = None


def visible(text: str) -> str:
    """Clean, and never invisible: blanks alone would hide their mark."""
    shown = clean(text) or NO_TEXT
    if shown.isprintable() and not shown.isspace():  # nearly always
        return shown
    if not any(sign.isprintable() and sign != " " for sign in shown):
        shown = "".join(sign if sign in "\t\n" else BLANK for sign in shown)
    return shown.translate(SIGNS)


def mark(token: Token, step: Step | None = None) -> Mark:
    text, style = visible(token.text), look(token).style
    if token.pos is None:
        return Mark(text, style, token if token.alt is not None else None, step)
    return Mark(text, f"{style} {max(FAINTEST, 100 - FADE * token.pos)}%", token, step)


def rejected(proposal: Proposal) -> Iterator[Mark]:
    """The marks of a rejected token, with the drafter's and the target's probability where known: ‹word .61/.22›."""
    text, odds = visible(proposal.text).replace("\n", ""), (proposal.p_drafter, proposal.p_target)
    if odds == (None, None):
        yield Mark(f"‹{text}›", REJECTED)
    else:
        yield Mark(f"‹{text}", REJECTED)
        yield Mark(f" {'/'.join(map(hundredths, odds))}›", ODDS)


def choice(token: Token) -> str:
    """The token that the drafter proposed instead; with the drafter's and the target's probability of it, where
    known."""
    if token.alt is None:
        return ""
    wanted, chosen = (visible(text).replace("\n", "") for text in (token.alt.text, token.text))
    odds = token.alt.p_drafter, token.alt.p_target
    known = "" if odds == (None, None) else f" (p {' vs '.join(map(hundredths, odds))})"
    return f'draft wanted "{wanted}" · target chose "{chosen}"{known}'


def about(token: Token, step: Step | None = None) -> str:
    """Who drafted it, its position in the draft and where it was copied from; or why the target chose it."""
    if token.pos is None:
        return choice(token)
    by = one_line(kind_name(token.drafter)) if token.drafter else "drafted"
    copied = copied_from(step) if step is not None and token.drafter == LOOKUP.name else ""
    return f"{by}: token {token.pos + 1} of its draft{copied}"


def copied_from(step: Step) -> str:
    """Names the text that a round's looked-up tokens were copied from; "" where that is not known."""
    origin = step.origin
    if origin is None:
        return ""
    back, name = step.position - origin.position, one_line(origin.name)
    where = {
        "conversation": f"this chat, {back:,} token{'' if back == 1 else 's'} back",
        "branch": "another answer",
        "file": name or "an attached text",
        "chat": f"the chat “{name}”" if name else "another chat",
    }
    return f", copied from {where[origin.kind]}"


def hundredths(probability: float | None) -> str:
    return "–" if probability is None else f"{probability:.2f}".removeprefix("0")


def marks(step: Step, view: View) -> Iterator[Mark]:
    """A round's tokens, and after them the rejected ones, if asked for; in quotes what the user wrote."""
    if step.kind == "edited":
        yield Mark("«", SOURCES["edited"].style)
    yield from (mark(token, step) for token in step.tokens)
    if step.kind == "edited":
        yield Mark("»", SOURCES["edited"].style)
    if view == "rejects":
        for proposal in step.rejected:
            yield from rejected(proposal)


@dataclass
class Page:
    """Marks in lines of a width. A mark is not divided unless it alone is longer than a line. A line that was broken
    between words goes on without the blank between them."""

    width: int
    lines: list[list[Mark]] = field(default_factory=lambda: [[]])
    _used: int = 0

    def add(self, mark: Mark) -> None:
        if "\n" not in mark.text:
            self._put(mark)
            return
        first, *others = mark.text.split("\n")
        self._put(replace(mark, text=first))
        for piece in others:
            self._break()
            self._put(replace(mark, text=piece))

    def _put(self, mark: Mark) -> None:
        length = cell_len(mark.text)
        if length > self.width:
            for chunk in chop_cells(mark.text, self.width):
                self._put(replace(mark, text=chunk))
        elif mark.text:
            if self._used + length > self.width:
                self._break()
                mark = replace(mark, text=mark.text.removeprefix(" ") or mark.text)
            self.lines[-1].append(mark)
            self._used += cell_len(mark.text)

    def _break(self) -> None:
        self.lines.append([])
        self._used = 0


def mark_at(lines: Sequence[Sequence[Mark]], x: int, y: int) -> Mark | None:
    """The mark in this cell; None where there is none."""
    for mark in lines[y] if 0 <= y < len(lines) else ():
        x -= cell_len(mark.text)
        if x < 0:
            return mark
    return None


class TokenView(Widget):
    """Follows a list of rounds that grows. Only new rounds are laid out, and only lines in sight are drawn.

    `before` is what the user wrote of the answer.
    """

    ALLOW_SELECT = False  # the marks would be copied with the text; Markdown has the text alone

    def __init__(self, rounds: Sequence[Step], before: Sequence[Step] = ()) -> None:
        super().__init__()
        self.rounds, self._before = rounds, before
        self.view: View = "tokens"
        self._page = Page(0)
        self._laid_out: tuple[int, View, int] = (0, "tokens", 0)

    def follow(self) -> None:
        """Rounds may have been added, or the view changed."""
        if self.display and self._laid_out[1:] != (self.view, len(self.rounds)):
            self.refresh(layout=True)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """The tooltip says what there is to say of the token that the mouse is on."""
        found = mark_at(self.lay_out(self.content_size.width), event.x, event.y)
        token = found.token if found is not None else None
        self.tooltip = Content(about(token, found.step)) if found is not None and token is not None else None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        return len(self.lay_out(width)) if width else 0

    def render_line(self, y: int) -> Strip:
        lines = self.lay_out(self.content_size.width)
        line = Content.assemble(*((mark.text, mark.style) for mark in lines[y])) if y < len(lines) else Content()
        return Visual.to_strips(self, line, self.content_size.width, 1, self.visual_style, pad=True)[0]

    def lay_out(self, width: int) -> list[list[Mark]]:
        """The lines of all rounds so far."""
        if self._laid_out[:2] != (width, self.view):
            self._page, self._laid_out = Page(width), (width, self.view, 0)
            self._add(self._before)
        self._add(self.rounds[self._laid_out[2] :])
        self._laid_out = (width, self.view, len(self.rounds))
        return self._page.lines

    def _add(self, steps: Sequence[Step]) -> None:
        for step in steps:
            for mark in marks(step, self.view):
                self._page.add(mark)
