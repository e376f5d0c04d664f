"""Markdown as a model writes it, made inert: links and images become text with their address, HTML stays text.

Cleans after parsing too, because Markdown can spell code points that the source does not contain
(`&#x202e;`, `<http://x/%1b%5d52>`). Knows nothing about widgets.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from localspec.core.sanitize import clean, one_line

JOINED_CHARACTERS = 500
MAX_CELLS = 300  # a cell is a widget: a thousand of them would hold the screen for seconds


@cache
def parser() -> MarkdownIt:
    """Built once: Textual asks for one with every fragment, and the link rules take time to compile."""
    markdown = MarkdownIt("gfm-like", {"html": False})
    markdown.core.ruler.push("inert", make_inert)
    markdown.core.ruler.push("bounded", bound_tables)
    markdown.core.ruler.push("joined", join_paragraphs)
    return markdown


def code_blocks(text: str) -> list[str]:
    """The code in it, clean."""
    return [token.content for token in parser().parse(text) if token.type in {"fence", "code_block"}]


def make_inert(state: StateCore) -> None:
    for token in state.tokens:
        if token.type in {"fence", "code_block"}:
            token.content = clean(token.content)
            token.info = one_line(token.info).partition(" ")[0] or "text"  # unnamed, every lexer would be tried
        elif token.children is not None:
            token.children = list(inert(token.children))


def bound_tables(state: StateCore) -> None:
    """A table of too many cells is shown as it was written."""
    if sum(token.type in {"th_open", "td_open"} for token in state.tokens) > MAX_CELLS:
        state.tokens = list(bounded(state.tokens, state.src.split("\n")))


def bounded(tokens: list[Token], lines: list[str]) -> Iterator[Token]:
    kinds = [token.type for token in tokens]
    index = 0
    while index < len(tokens):
        end = kinds.index("table_close", index) + 1 if kinds[index] == "table_open" else index + 1
        table, opening = tokens[index:end], tokens[index]
        index = end
        if sum(token.type in {"th_open", "td_open"} for token in table) > MAX_CELLS and opening.map:
            written = clean("\n".join(lines[slice(*opening.map)]))
            yield Token("fence", "code", 0, map=opening.map, level=opening.level, content=written, info="text")
        else:
            yield from table


def join_paragraphs(state: StateCore) -> None:
    """Short paragraphs that follow one another are one with blank lines in it: a new one then is only more of a text,
    where a widget would have to be laid out, and all others again."""
    joined: list[Token] = []
    tokens = iter(state.tokens)
    for token in tokens:
        if token.type == "paragraph_open" and token.level == 0 and may_go_on(joined):
            opening, paragraph = joined[-3:-1]
            more, _ = next(tokens), next(tokens)
            paragraph.children = [*(paragraph.children or ()), line_break(), line_break(), *(more.children or ())]
            paragraph.content += more.content
            opening.map = [(opening.map or [0])[0], (token.map or [0])[-1]]
        else:
            joined.append(token)
    state.tokens = joined


def may_go_on(tokens: list[Token]) -> bool:
    """Whether the tokens end with a paragraph that is in no list or quotation, and is short enough to be laid out
    with every word."""
    ends = bool(tokens) and tokens[-1].type == "paragraph_close" and tokens[-1].level == 0
    return ends and len(tokens[-2].content) < JOINED_CHARACTERS


def inert(children: list[Token]) -> Iterator[Token]:
    """Inline tokens with nothing to click, and line breaks where the model broke its lines."""
    links: list[tuple[str, str]] = []  # address and text so far
    for token in children:
        token.content = clean(token.content)
        links = [(address, text + token.content) for address, text in links]
        match token.type:
            case "link_open":
                links.append((clean(str(token.attrs.get("href", ""))), ""))
            case "link_close":
                yield from address_after(*links.pop())
            case "image":
                yield text_token(f"{token.content or 'image'} ({clean(str(token.attrs.get('src', '')))})")
            case "softbreak":
                yield line_break()
            case _:
                yield token


def address_after(address: str, text: str) -> Iterator[Token]:
    """The full address, unless the text says it already."""
    if text.rstrip("/") not in {address.rstrip("/"), address.partition("://")[2].rstrip("/")}:
        yield text_token(f" ({address})")


def line_break() -> Token:
    return Token("hardbreak", "br", 0)


def text_token(text: str) -> Token:
    return Token("text", "", 0, content=text)
