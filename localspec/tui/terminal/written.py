"""What a key writes that Textual does not insert, since Python calls it unprintable: joiners, blanks of other widths.

Knows characters. Those that reorder a line or drive a terminal are not written.
"""

from __future__ import annotations

from unicodedata import category

from textual.events import Key

from localspec.core.sanitize import clean

JOINERS_AND_BLANKS = {"Cf", "Zs"}


def unprintable(event: Key) -> str:
    """The character; "" for one that Textual inserts itself, and for none."""
    typed = event.character or ""
    if len(typed) != 1 or event.is_printable or category(typed) not in JOINERS_AND_BLANKS:
        return ""
    return clean(typed)
