"""Who wrote a token: the word, the look and the meaning of each source, and of what was rejected. Knows no widget.

Colour says who; for screens without colours each has a mark of its own that leaves the words alone: a drafted token is
italic, a bonus bold, a fix underlined, a plain one bare; what the user wrote is bold, italic and in angle quotes.
"""

from __future__ import annotations

from typing import NamedTuple

from localspec.core.events import Source


class Look(NamedTuple):
    word: str
    style: str
    meaning: str


SOURCES: dict[Source, Look] = {
    "draft": Look(
        "drafted",
        "italic $token-draft",
        "by the drafter; paler the further on in its draft, which the mouse says",
    ),
    "bonus": Look("bonus", "bold $token-bonus", "by the target, after a draft that was right as a whole"),
    "fix": Look("fix", "underline $token-fix", "by the target, where the draft was wrong; point at it with the mouse"),
    "plain": Look("plain", "$foreground", "by the target, in a round without a draft"),
    "edited": Look("«edited»", "bold italic $token-edited", "by you: the answer was edited; in no figure"),
}
REJECTED, ODDS = "strike $token-rejected", "$token-rejected"
