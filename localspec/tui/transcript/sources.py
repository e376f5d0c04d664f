"""Who wrote a token: the word, the look and the meaning of each source, and of what was rejected. Knows no widget.

Colour says who; for screens without colours each has a mark of its own that leaves the words alone: a drafted token is
italic, and underlined, too, where a look-up copied it, a bonus bold, a fix underlined, a plain one bare; what the user
wrote is bold, italic and in angle quotes.
"""

from __future__ import annotations

from typing import NamedTuple

from localspec.core.events import Source, Token
from localspec.engine.drafters.table import LOOKUP


class SourceStyle(NamedTuple):
    word: str
    style: str
    meaning: str


SOURCES: dict[Source, SourceStyle] = {
    "draft": SourceStyle("draft", "italic $token-draft", "guessed by the drafter, and right (the later, the paler)"),
    "bonus": SourceStyle("bonus", "bold $token-bonus", "the model's extra token after a draft that was right"),
    "fix": SourceStyle("fix", "underline $token-fix", "the model's own where a guess was wrong; hover to see it"),
    "plain": SourceStyle("plain", "$foreground", "the model's own in a round without a draft"),
    "edited": SourceStyle("«edited»", "bold italic $token-edited", "yours: you edited the answer; in no figure"),
}
LOOKED_UP = SourceStyle(
    "look-up", "italic underline $token-draft", "copied from earlier text, and right; hover to see where"
)
ALL = (SOURCES["draft"], LOOKED_UP, *(look for source, look in SOURCES.items() if source != "draft"))
REJECTED, ODDS = "strike $token-rejected", "$token-rejected"


def look(token: Token) -> SourceStyle:
    return LOOKED_UP if token.drafter == LOOKUP.name else SOURCES[token.source]
