"""Recognises a bare sum, in signs or in words: "4+4", "what is seven plus 2?", "take 3 away from 9".

Every piece of one is a number, an operation or a word of asking. Knows no model, and does not calculate.
"""

from __future__ import annotations

import re

PIECE = re.compile(
    r"\d+(?:[.,x]\d+)*(?:k\b)?|-?[^\W\d_]+(?:['’-][^\W\d_]+)*-?|\S"
)  # 80x24 is a size, -of- no operation
OPERATIONS = frozenset(
    """+ - − – — * × · ⋅ / ÷ ^ % x plus minus times add added adding subtract subtracted subtracting multiply multiplied
    multiplying divide divided dividing sum difference product quotient power percent modulo mod less more away together
    into take left and total altogether squared cubed""".split()  # noqa: SIM905
)
ASKING = frozenset(
    """what what's whats is are how how's much many often does do did make makes give gives get gets go goes
    equal equals calculate compute solve work out find tell say show me you we i us it the a an of by from my this that
    to for with at when if have has put please pls can could would will hey hi hello so ok okay
    now then answer result value quick question hm well right correct know want need like help
    wonder = ? ! . , : ; ( )""".split()  # noqa: SIM905
)
NUMBERS = frozenset(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million""".split()  # noqa: SIM905
)


def is_sum(text: str) -> bool:
    """True for at least two numbers and an operation, and no other word that means anything."""
    pieces = [piece.replace("’", "'") for piece in PIECE.findall(text.casefold())]
    numbers = [piece for piece in pieces if piece[0].isdigit() or NUMBERS.issuperset(piece.split("-"))]
    others = set(pieces).difference(numbers)
    return len(numbers) > 1 and bool(others & OPERATIONS) and others <= OPERATIONS | ASKING
