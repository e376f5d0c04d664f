"""Makes text from outside safe to show: no code point in it can drive a terminal or reorder a line.

One code point becomes one or none, so chunks may be cut anywhere. Knows nothing about terminals, widgets or markup.
"""

from __future__ import annotations

ESC, ESC_SHOWN, REPLACEMENT = 0x1B, 0x241B, 0xFFFD
CONTROLS = (*range(0x20), 0x7F, *range(0x80, 0xA0))
BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
TAGS = range(0xE0000, 0xE0080)
SURROGATES = range(0xD800, 0xE000)
LINE_BREAKS = (0x2028, 0x2029)  # Python and Textual break lines here, Markdown does not: make them agree

TABLE: dict[int, int | None] = {
    **dict.fromkeys((*CONTROLS, *BIDI, *TAGS)),
    **dict.fromkeys(SURROGATES, REPLACEMENT),
    **dict.fromkeys(LINE_BREAKS, 0x0A),
    ESC: ESC_SHOWN,
    0x09: 0x09,
    0x0A: 0x0A,
}


def clean(text: str) -> str:
    """The text without control bytes, bidi overrides and tags; ESC is shown as its picture."""
    return text.translate(TABLE)


def one_line(text: str) -> str:
    """The clean text on one line, for titles and names."""
    return " ".join(clean(text).split())
