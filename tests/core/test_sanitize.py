"""What clean() promises: no code point from outside can drive the terminal, and ordinary text is untouched."""

from __future__ import annotations

import random

import pytest

from localspec.core.sanitize import clean, one_line

FORBIDDEN = frozenset(
    chr(code)
    for code in (
        *(c for c in range(0x20) if chr(c) not in "\t\n"),
        *range(0x7F, 0xA0),
        *(0x061C, 0x200E, 0x200F),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        *range(0xD800, 0xE000),
        *range(0xE0000, 0xE0080),
    )
)
PIECES = (
    *(chr(c) for c in range(0xA0)),
    *("\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1b]52;c;aGk=\x07", "\x9d52;c;aGk=\x9c", "\x1b[2J", "\x9b31m"),
    *("\x1bP1$r\x1b\\", "\x1b_Gq\x1b\\", "\x90q\x9c", "\u202e", "\u2066", "\u061c", "\U000e0041", "\ud800", "\udfff"),
    *("[/nope]", "[@click=app.quit]", "[b", "]", "[red]x[/]", "é", "漢", "👩‍👩‍👧", "مرحبا", "\u2028", "text", " "),
)
ORDINARY = (
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
    "漢字かな交じり文",
    "مرحبا بالعالم",
    "שלום",
    "naïve café – “x” ×1.84",
    "a\tb\nc",
    "ffi नमस्ते",
    "[/nope]",
)


def fuzzed(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(PIECES, k=rng.randint(1, 40))) for _ in range(count)]


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_forbidden_code_point_survives(count: int):
    for text in fuzzed(1, count):
        assert FORBIDDEN.isdisjoint(clean(text)), ascii(text)


def test_any_chunking_gives_the_same_text():
    rng = random.Random(2)
    for text in fuzzed(3, 10_000):
        cuts = sorted(rng.choices(range(len(text) + 1), k=3))
        chunks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert "".join(map(clean, chunks)) == clean(text), ascii(text)


def test_every_single_code_point_is_kept_replaced_or_dropped_and_clean_is_idempotent():
    everything = "".join(map(chr, range(0x110000)))
    once = clean(everything)
    assert FORBIDDEN.isdisjoint(once)
    assert clean(once) == once


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_unchanged(text: str):
    assert clean(text) == text


def test_an_escape_is_shown_not_obeyed():
    assert clean("\x1b[2Jhi\ud83d") == "␛[2Jhi\N{REPLACEMENT CHARACTER}"


def test_a_title_is_one_line():
    assert one_line("  a\r\n\tb\u2028c\x1b ") == "a b c␛"
