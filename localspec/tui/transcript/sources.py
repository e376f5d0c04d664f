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
    "draft": SourceStyle(
        "draft",
        "italic $token-draft",
        "by the drafter; the later in its draft, the paler; hover to see the position",
    ),
    "bonus": SourceStyle("bonus", "bold $token-bonus", "by the target, after a draft that was right as a whole"),
    "fix": SourceStyle(
        "fix", "underline $token-fix", "by the target, where the draft was wrong; hover to see the draft"
    ),
    "plain": SourceStyle("plain", "$foreground", "by the target, in a round without a draft"),
    "edited": SourceStyle("«edited»", "bold italic $token-edited", "by you: the answer was edited; in no figure"),
}
LOOKED_UP = SourceStyle(
    "look-up",
    "italic underline $token-draft",
    "by look-up: copied from earlier text; hover to see where",
)
ALL = (SOURCES["draft"], LOOKED_UP, *(look for source, look in SOURCES.items() if source != "draft"))
REJECTED, ODDS = "strike $token-rejected", "$token-rejected"


def look(token: Token) -> SourceStyle:
    return LOOKED_UP if token.drafter == LOOKUP.name else SOURCES[token.source]
