"""The attack: the metadata of a GGUF file describe a tokenizer that crashes, exhausts or misleads whoever makes it.

Each ends in one CheckpointError that names the file: no other exception, no hang.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pytest

from localspec.core.errors import CheckpointError
from localspec.models.checkpoint import parse_tokenizer
from localspec.models.gguf.tokenizer import MAX_TEMPLATE_BYTES, chat_template, read_vocabulary

pytestmark = pytest.mark.heavy

WHERE = "model.gguf"
K = "tokenizer.ggml."
LETTERS = tuple("abcdefgh")
TINY: dict[str, Any] = {
    f"{K}model": "gpt2",
    f"{K}pre": "gpt-2",
    f"{K}tokens": (*LETTERS, "ab", "abc", "</s>", "<|im_end|>", "[PAD12]"),
    f"{K}token_type": (*[1] * 11, 3, 5),
    f"{K}merges": ("a b", "ab c"),
    f"{K}eos_token_id": 11,
}
PIECES: dict[str, Any] = {
    f"{K}model": "llama",
    f"{K}tokens": ("<unk>", "<s>", "</s>", "▁", *LETTERS, "ab", "abc"),
    f"{K}token_type": (2, 3, 3, *[1] * 11),
    f"{K}scores": (*[0.0] * 3, -9.0, *[-9.0] * 8, -1.0, -2.0),
}


def make(metadata: Mapping[str, Any]) -> str:
    vocabulary = read_vocabulary(metadata, WHERE)
    assert vocabulary.end_ids
    assert vocabulary.special_tokens
    return vocabulary.tokenizer_json()


class Endless(tuple[str, ...]):
    """As many tokens as a file may claim, and nobody reads one of them."""

    def __len__(self) -> int:
        return 10_000_000

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("was read")


ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "no tokenizer at all": ({f"{K}model": None}, "has no tokenizer"),
    "a tokenizer of a kind nobody knows": ({f"{K}model": "wordpiece" * 90}, "'wordpiecewordpiece"),
    "a kind that is a number": ({f"{K}model": 7}, "'7'"),
    "no tokens": ({f"{K}tokens": None}, "no list of tokenizer.ggml.tokens"),
    "an empty list of tokens": ({f"{K}tokens": (), f"{K}token_type": ()}, "has no tokens"),
    "tokens that are numbers": ({f"{K}tokens": (1, 2)}, "that are not text"),
    "tokens that are one text": ({f"{K}tokens": "abc"}, "no list of tokenizer.ggml.tokens"),
    "ten million tokens": ({f"{K}tokens": Endless()}, "10,000,000 tokens, more than"),
    "a token of a megabyte": ({f"{K}tokens": ("a" * (1 << 20),)}, "a token of 1,048,576 characters"),
    "a token twice": ({f"{K}tokens": tuple("abcdefghijkla")}, "the token 'a' twice"),
    "fewer kinds than tokens": ({f"{K}token_type": (1,)}, "13 tokens and 1 token types"),
    "kinds that are text": ({f"{K}token_type": ("1",) * 13}, "not whole numbers"),
    "kinds that are true": ({f"{K}token_type": (True,) * 13}, "not whole numbers"),
    "a merge of nothing": ({f"{K}merges": ("",)}, "merges ''"),
    "a merge of one": ({f"{K}merges": ("ab",)}, "merges 'ab'"),
    "a merge of what is no token": ({f"{K}merges": ("a x",)}, "merges 'a x'"),
    "a merge to what is no token": ({f"{K}merges": ("a c",)}, "merges 'a c'"),
    "merges that are numbers": ({f"{K}merges": (1, 2)}, "that are not text"),
    "no merges": ({f"{K}merges": None}, "no list of tokenizer.ggml.merges"),
    "ten million merges": ({f"{K}merges": Endless()}, "10,000,000 merges, more than"),
    "a pattern nobody knows": ({f"{K}pre": "chameleon-xyz"}, "the unknown pre-tokenizer 'chameleon-xyz'"),
    "a pattern that is a list": ({f"{K}pre": ("qwen2",)}, "the unknown pre-tokenizer"),
    "an end that is no token": ({f"{K}eos_token_id": 13}, "eos_token_id = 13, and has 13 tokens"),
    "an end that is negative": ({f"{K}eos_token_id": -1}, "eos_token_id = -1"),
    "an end that is text": ({f"{K}eos_token_id": "</s>"}, "eos_token_id = </s>"),
    "an end that is true": ({f"{K}eos_token_id": True}, "eos_token_id = True"),
    "an end of a turn that is no token": ({f"{K}eot_token_id": 1 << 31}, "eot_token_id = 2147483648"),
    "a beginning that is no token": ({f"{K}bos_token_id": 99}, "bos_token_id = 99"),
    "a flag that is text": ({f"{K}bos_token_id": 0, f"{K}add_bos_token": "no"}, "neither true nor false"),
}
PIECE_ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "no scores": ({f"{K}scores": None}, "no list of tokenizer.ggml.scores"),
    "fewer scores than tokens": ({f"{K}scores": (0.0,)}, "14 tokens and 1 scores"),
    "scores that are no numbers": ({f"{K}scores": (math.nan,) * 14}, "scores that are not numbers"),
    "scores that are text": ({f"{K}scores": ("0",) * 14}, "scores that are not numbers"),
    "a flag that is a number": ({f"{K}add_space_prefix": 2}, "neither true nor false"),
    "an unknown token that is none": ({f"{K}unknown_token_id": 14}, "unknown_token_id = 14"),
}


def without_nothing(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if value is not None}


def refusal(metadata: Mapping[str, Any]) -> str:
    start = time.process_time()
    with pytest.raises(CheckpointError) as caught:
        make(without_nothing(metadata))
    assert time.process_time() - start < 1
    assert caught.value.message.startswith(WHERE)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300
    return caught.value.message


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_tokenizer_is_refused(name: str):
    changes, sentence = ATTACKS[name]
    assert sentence in refusal(TINY | changes)


@pytest.mark.parametrize("name", PIECE_ATTACKS)
def test_hostile_sentencepiece_is_refused(name: str):
    changes, sentence = PIECE_ATTACKS[name]
    assert sentence in refusal(PIECES | changes)


def with_pieces(pieces: Sequence[str]) -> dict[str, Any]:
    tokens = ("<unk>", "<s>", "</s>", *pieces)
    kinds, scores = (2, 3, 3, *[1] * len(pieces)), (0.0,) * len(tokens)
    return {f"{K}model": "llama", f"{K}tokens": tokens, f"{K}token_type": kinds, f"{K}scores": scores}


def test_pieces_that_are_too_long_to_be_cut_are_refused_before_they_are():
    """Runs of up to 1,000 characters, each of which is two others in every way there is."""
    assert "too long" in refusal(with_pieces([letter * count for letter in "abcde" for count in range(1, 1001)]))


def test_pieces_that_can_be_cut_in_too_many_ways_are_refused():
    """Every text of two letters up to 16 long."""
    with pytest.raises(CheckpointError, match="in more than 1,048,576 ways"):
        make(with_pieces(["".join(word) for count in range(1, 17) for word in product("ab", repeat=count)]))


@pytest.mark.parametrize("metadata", [TINY, PIECES], ids=["gpt2", "llama"])
def test_what_is_attacked_works_when_it_is_not(metadata: dict[str, Any]):
    tokenizer = parse_tokenizer(make(metadata), WHERE)
    assert tokenizer.encode("abc", add_special_tokens=False).tokens[-1] == "abc"
    assert tokenizer.token_to_id("[PAD12]") is None


def test_a_padding_token_that_the_model_lacks_is_none():
    """Published files have it."""
    found = read_vocabulary({**TINY, f"{K}padding_token_id": 13}, WHERE)
    assert set(found.special_tokens) == {"eos_token"}


def test_a_word_spelled_like_an_end_is_a_word():
    """</s> is one of Qwen's words."""
    assert read_vocabulary(TINY, WHERE).end_ids == (11,)
    kinds = (*[1] * 10, 3, 3, 5)
    assert read_vocabulary({**TINY, f"{K}token_type": kinds}, WHERE).end_ids == (10, 11)


def test_where_an_answer_has_parts_the_end_of_one_is_not_the_end():
    tokens = ("a", "<|end|>", "<|call|>", "<|return|>")
    metadata = {f"{K}model": "gpt2", f"{K}tokens": tokens, f"{K}token_type": (1, 3, 3, 3)}
    assert read_vocabulary(metadata, WHERE).end_ids == (2, 3)
    assert read_vocabulary({**metadata, f"{K}tokens": (*tokens[:3], "x")}, WHERE).end_ids == (1, 2)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, None),
        ({"tokenizer.chat_template": "A"}, "A"),
        ({"tokenizer.chat_templates": ("rag", "default"), "tokenizer.chat_template.rag": "R"}, "R"),
        ({"tokenizer.chat_template.default": "D", "tokenizer.chat_template.rag": "R"}, "D"),
        ({"tokenizer.chat_template": "A", "tokenizer.chat_template.default": "D"}, "A"),
        ({"tokenizer.chat_templates": 7}, None),
    ],
)
def test_of_several_templates_the_default_one_is_used(metadata: dict[str, Any], expected: str | None):
    assert chat_template(metadata, WHERE) == expected


@pytest.mark.parametrize("template", [7, ("a",), "x" * (MAX_TEMPLATE_BYTES + 1)], ids=["number", "list", "large"])
def test_a_hostile_template_is_refused(template: Any):
    with pytest.raises(CheckpointError, match=f"^{WHERE} has a chat template"):
        chat_template({"tokenizer.chat_template": template}, WHERE)
