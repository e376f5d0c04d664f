"""What a chat is called after a question: what was asked, without what stands around it. Knows text only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from localspec.history.text.columns import cells, cut

WIDTH = 60  # cells: what a sidebar of 30 columns shows, twice
FENCED = re.compile(r"(?ms)^[ \t]*(```|~~~)[^\n]*\n?(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)")
FILE = re.compile(
    r'(?<!\S)@(?:"[^"]*"(?::\d+(?:-\d+)?)?|[^\s"]*[./~][^\s"]*)|^\s*@\S+'
)  # not `@property` within a question
FILE_NAME = re.compile(r"[^()\[\]{}<>=*|;]+")  # code has those after an @
NAME_WIDTH = 30  # cells of a file's name
FEW_WORDS = 4  # which say too little of what a file is asked
LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
LINE_MARK = re.compile(r"^\s*(?:(?:#{1,6}|>|[-*+]|\d{1,3}[.)])\s+)+")
EMPHASIS = re.compile(r"\*\*|__|~~|`+|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)")
COMMAND = re.compile(r"^/+(?=[^\s/]+(?:\s|$))")
GREETING = re.compile(
    r"^(?:hi|hello|hey|hiya|good (?:morning|afternoon|evening|day))(?!\s+world\b)(?:\s+(?:there|all))?"
    r"(?:[\s,;:.!?]+(?:[-–—]\s+)?|$)",
    re.IGNORECASE,
)
SENTENCE = re.compile(r"(?<=\w\w\w\.)\s+(?=\W*[A-Z])|(?<=[?!…])\s+|(?<=[。？！])")
QUOTES = "\"'“”„«»‘’ "


def title_of(text: str, files: Sequence[str] = ()) -> str:
    """The first sentence of a question, cleaned and cut at a word; "" where it says nothing, as a greeting does. A few
    words do not say what they are about: the first of the attached `files` comes before them."""
    asked, name = words_of(text), base(files[0]) if files else ""
    if name and name not in asked and len(asked.split()) <= FEW_WORDS:
        asked = f"{name}: {asked}" if asked else name
    return shortened(asked)


def words_of(text: str) -> str:
    prose = FENCED.sub("\n", text)
    lines = (sentence(line) for line in (*prose.splitlines(), *(FENCED.sub(r"\2", text).splitlines())))
    return next(filter(None, lines), "")


def sentence(line: str) -> str:
    """The first sentence of a line that is more than a greeting and a file's name."""
    if not FILE.sub("", line).strip():
        return ""
    plain = LINE_MARK.sub("", FILE.sub(named, line))
    plain = " ".join(EMPHASIS.sub("", LINK.sub(r"\1", plain)).split())
    asked = GREETING.sub("", COMMAND.sub("", plain.strip(QUOTES)))
    return SENTENCE.split(asked)[0].strip(QUOTES).rstrip(" .,;:")


def named(mention: re.Match[str]) -> str:
    """The name of the file that is mentioned; one that begins a line is what the line is about."""
    written = mention[0].strip()[1:].replace('"', "")
    if not FILE_NAME.fullmatch(written):
        return " "
    begins_line = not mention.string[: mention.start()].strip() and written[-1:].isalnum()
    return f" {base(written)}{':' if begins_line else ''} "


def base(path: str) -> str:
    """The file's name alone."""
    return cut(re.split(r"[/\\]", path.rstrip("/\\"))[-1], NAME_WIDTH)


def shortened(title: str) -> str:
    """The title within WIDTH cells, cut between words where there are any."""
    if cells(title) <= WIDTH:
        return title
    whole = cut(title, WIDTH)
    words = whole[:-1].rsplit(" ", 1)
    between = title[len(whole) - 1] == " "
    return f"{(whole[:-1] if between or len(words) == 1 else words[0]).rstrip(' ,;:')}…"
