"""Two tokenizers, one text: the drafter's ids follow the target's byte by byte, and its words come back."""

from __future__ import annotations

from itertools import permutations

import pytest

from localspec.models.pieces import TokenBytes
from localspec.models.translation import Translation, before_last_word, common_length, inside, valid, whole
from tests.support.tokenizers import gpt2_like
from tests.support.two_tongues import ASCII, TEXT, TOKENIZERS, tongue

PAIRS = list(permutations([name for name in TOKENIZERS if not name.startswith("unigram")], 2))
END, DRAFTERS_END = 900, 901
PROMPT = [1, 2, 3]


def translation(target: str, drafter: str) -> Translation:
    """At the beginning of an answer, behind a prompt of one id of the target's and three of the drafter's."""
    tongues = [tongue(TOKENIZERS[name]()) for name in (target, drafter)]
    made = Translation(*tongues, end_ids=[DRAFTERS_END], end_id=END)
    made.begin(PROMPT, 1)
    return made


@pytest.mark.parametrize("names", PAIRS)
def test_the_drafters_ids_write_what_the_target_has_written(names: tuple[str, str]) -> None:
    """After every token, but for a character that is not complete; and as its tokenizer writes the whole text."""
    made = translation(*names)
    ids = [0, *made.target.encode(TEXT)]
    for length in range(1, len(ids) + 1):
        own = made.follow(ids[:length])
        written = made.target.pieces.text(ids[1:length])
        assert own[:3] == PROMPT
        assert made.drafter.pieces.text(own[3:]) == written[: whole(written)]


@pytest.mark.parametrize("names", PAIRS)
def test_what_the_drafter_writes_comes_back_as_the_targets_own_ids(names: tuple[str, str]) -> None:
    """To the end of a text that the drafter ends: no word waits then. From its beginning, as from every whole token."""
    made = translation(*names)
    ids, own = [0, *made.target.encode(ASCII)], made.drafter.encode(ASCII)
    made.follow(ids[:1])
    assert made.translate(ids[:1], [*own, DRAFTERS_END], 1000) == [*ids[1:], END]
    for length in range(2, len(ids), 7):
        made.begin(PROMPT, 1)
        made.follow(ids[:length])
        rest = ASCII.encode()[len(made.target.pieces.text(ids[1:length])) :].decode()
        found = made.translate(ids[:length], [*made.drafter.encode(rest), DRAFTERS_END], 1000)
        assert made.target.pieces.text(found[:-1]).decode() == rest
        assert found[:1] == ids[length : length + 1]


def test_no_more_is_proposed_than_was_asked_for() -> None:
    made = translation("byte-level", "byte fallback")
    made.follow([0])
    assert len(made.translate([0], made.drafter.encode(ASCII), 3)) == 3


def test_half_a_character_is_held_back_until_it_is_whole() -> None:
    """A smile is four bytes to either: what lacks one proposes nothing of it."""
    made = translation("byte-level", "byte fallback")
    smile = made.drafter.encode("😀")
    assert len(smile) == 4
    made.follow([0])
    assert made.translate([0], smile[:3], 8) == []
    made.follow([0])
    assert made.target.pieces.text(made.translate([0], smile, 8)) == "😀".encode()


def test_a_drafter_goes_on_with_the_character_that_the_target_began() -> None:
    made = translation("byte-level", "few merges")
    ids = [0, *made.target.encode("so 😀 it is")]
    began = next(at for at in range(2, len(ids)) if whole(text := made.target.pieces.text(ids[1:at])) < len(text))
    own = made.follow(ids[:began])
    assert made.drafter.pieces.text(own[3:]) == b"so "
    found = made.translate(ids[:began], [*made.drafter.encode("😀 it is"), DRAFTERS_END], 100)
    assert found == [*ids[began:], END]
    made.follow(ids[:began])
    assert made.translate(ids[:began], made.drafter.encode("no smile"), 100) == []


def test_the_last_word_waits_for_its_end() -> None:
    """It may yet go on: "jump" is another token than "jumps"."""
    made = translation("byte-level", "byte fallback")
    made.follow([0])
    found = made.translate([0], made.drafter.encode(" The quick brown fox jum"), 100)
    assert made.target.pieces.text(found) == b" The quick brown fox"
    made.follow([0])
    assert made.target.pieces.text(made.translate([0], made.drafter.encode("jum"), 100)) == b"jum"  # nothing else


def test_a_token_without_text_ends_what_is_translated() -> None:
    made = translation("byte-level", "byte fallback")
    made.follow([0])
    control = made.drafter.pieces
    assert control.of(DRAFTERS_END + 5) is None
    drafted = [*made.drafter.encode(" The quick"), DRAFTERS_END + 5, *made.drafter.encode(" brown")]
    assert b"brown" not in made.target.pieces.text(made.translate([0], drafted, 100))


def test_what_is_forgotten_is_followed_anew() -> None:
    made = translation("byte-level", "byte fallback")
    first, second = ([0, *made.target.encode(text)] for text in (" The quick brown fox", " The quick lazy dogs"))
    made.follow(first)
    made.crop(3)
    own = made.follow([*first[:3], *second[3:]])
    expected = made.target.pieces.text([*first[1:3], *second[3:]])
    assert made.drafter.pieces.text(own[3:]) == expected


def test_without_a_prompt_of_its_own_nothing_is_drafted() -> None:
    made = translation("byte-level", "byte fallback")
    made.begin([], 1)
    assert not made.is_able([0])
    assert made.follow([0, 5]) == []


def test_it_is_broken_where_text_does_not_survive_and_whole_again_behind() -> None:
    made = translation("byte-level", "unigram")
    ids = [0, *made.target.encode("😀" * 8), *made.target.encode(" the quick brown fox" * 12)]
    assert made.is_able(ids[:30])
    assert not made.is_able(ids[:33])
    assert made.follow(ids[:33]) == []
    assert made.is_able(ids)


def test_as_many_steps_are_taken_as_its_tokens_are_shorter() -> None:
    made = translation("byte-level", "few merges")
    assert made.steps(4) == 5  # as many, and the next word
    made.follow([0, *made.target.encode(ASCII)])
    assert 5 < made.steps(4) <= 9


@pytest.mark.parametrize(
    ("text", "complete"), [(b"", 0), (b"ab", 2), ("é".encode(), 2), (b"a\xc3", 1), (b"a\xf0\x9f\x98", 1), (b"\x98", 1)]
)
def test_an_incomplete_character_is_not_counted(text: bytes, complete: int) -> None:
    assert whole(text) == complete


def test_the_cuts_of_bytes() -> None:
    assert valid(b"ab\xff\xfec") == b"ab"
    assert inside("é".encode()[1:] + b"ab" + "é".encode()[:1]) == b"ab"
    assert common_length(b"abcd", b"abxd") == common_length(b"ab", b"abcd") == 2
    assert [before_last_word(text) for text in (b"one two", b"one ", b"one", b"", b" one")] == [3, 3, 0, 0, 0]


def test_pieces_are_the_bytes_of_tokens() -> None:
    """What is unknown, and what controls, writes nothing."""
    for name, make in TOKENIZERS.items():
        pieces = tongue(make()).pieces
        assert pieces.text(tongue(make()).encode(" The quick")) == b" The quick", name
    assert TokenBytes(gpt2_like()).of(10**6) is None
