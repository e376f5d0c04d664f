"""D7: the stream shows no half character, and joined it is the text decoded at once."""

from __future__ import annotations

import random

import pytest
from tokenizers import AddedToken, Tokenizer

from localspec.models.detokenize import Detokenizer
from tests.support.tokenizers import KINDS, gpt2_like, llama2_like

PARTS = [
    "a",
    "the fox",
    "é",
    "e\u0301",
    "😀",
    "👩‍👩‍👧",
    "🇩🇪",
    "漢字",
    "ไทย",
    " ",
    "  ",
    "\n",
    "\t",
    "\ufffd",
    "\u200d",
    "x²",
    "ß",
    ".",
]


class Counted:
    """A tokenizer that counts the ids it is asked about."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.decoder = tokenizer.decoder
        self.get_added_tokens_decoder = tokenizer.get_added_tokens_decoder
        self.ids = 0

    def id_to_token(self, id: int) -> str | None:
        self.ids += 1
        return self.tokenizer.id_to_token(id)

    def decode(self, ids: list[int], **said: bool) -> str:
        self.ids += len(ids)
        return self.tokenizer.decode(ids, **said)


def stream(tokenizer: Tokenizer, ids: list[int]) -> tuple[list[str], str]:
    """The pieces, and what was left at the end."""
    detokenizer = Detokenizer(tokenizer)
    return [detokenizer.push(id) for id in ids], detokenizer.flush()


def joined(tokenizer: Tokenizer, ids: list[int]) -> str:
    pieces, rest = stream(tokenizer, ids)
    return "".join(pieces) + rest


def byte_ids(tokenizer: Tokenizer) -> list[int]:
    """The tokens that are single bytes, of either kind of vocabulary."""
    names = {id: token for token, id in tokenizer.get_vocab().items()}
    return [id for id, name in names.items() if len(name) == 1 or name.startswith("<0x")]


def text_ids(tokenizer: Tokenizer, rng: random.Random) -> list[int]:
    """Text, whole or cut anywhere, some of it broken by tokens from elsewhere."""
    text = "".join(rng.choices(PARTS, k=rng.randrange(12)))
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(ids) + 1)
        ids[at : at + rng.randrange(2)] = [rng.randrange(tokenizer.get_vocab_size() + 3)]
    return ids[: rng.randrange(len(ids) + 1)] if rng.random() < 0.3 else ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_joined_stream_is_the_text_decoded_at_once(kind: str, count: int) -> None:
    rng, tokenizer = random.Random(kind), KINDS[kind][0]()
    bytes_only = byte_ids(tokenizer)
    for at in range(count):
        ids = rng.choices(bytes_only, k=rng.randrange(9)) if at % 4 == 0 else text_ids(tokenizer, rng)
        whole = tokenizer.decode(ids, skip_special_tokens=True)
        assert joined(tokenizer, ids) == whole, [tokenizer.id_to_token(id) for id in ids]


@pytest.mark.parametrize("kind", ["gpt2", "llama3", "llama2", "llama2-legacy"])
def test_no_half_character_is_ever_shown(kind: str) -> None:
    rng, tokenizer = random.Random(5), KINDS[kind][0]()
    for _ in range(200):
        text = "".join(part for part in rng.choices(PARTS, k=8) if part != "\ufffd")
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        pieces, _ = stream(tokenizer, ids)
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_comes_with_the_token_that_completes_it() -> None:
    tokenizer = gpt2_like()
    ids = tokenizer.encode("a😀b").ids
    assert stream(tokenizer, ids) == (["a", "", "", "", "😀", "b"], "")


def test_byte_tokens_come_when_their_run_ends() -> None:
    tokenizer = llama2_like()
    emoji = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "😀".encode()]
    word = tokenizer.token_to_id("a")
    assert stream(tokenizer, [word, *emoji, word]) == (["a", "", "", "", "", "😀a"], "")
    assert stream(tokenizer, [word, *emoji]) == (["a", "", "", "", ""], "😀")


def test_what_never_became_a_character_is_flushed_once() -> None:
    tokenizer = gpt2_like()
    detokenizer = Detokenizer(tokenizer)
    start = tokenizer.encode("😀").ids[0]
    assert detokenizer.push(start) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_special_tokens_are_silent_and_other_added_tokens_are_not() -> None:
    tokenizer = gpt2_like()
    ids = tokenizer.encode("<|im_start|>a<think>b</think><|im_end|>").ids
    assert joined(tokenizer, ids) == "a<think>b</think>"


def test_a_special_token_inside_a_character_does_not_break_it() -> None:
    tokenizer = gpt2_like()
    ids = tokenizer.encode("😀").ids
    assert joined(tokenizer, [*ids[:2], 400, *ids[2:]]) == "😀"


def test_an_added_token_outside_the_byte_alphabet_is_itself() -> None:
    tokenizer = gpt2_like()
    tokenizer.add_tokens([AddedToken("<思考 x>"), AddedToken("\u2581\n")])
    ids = tokenizer.encode("a<思考 x>b\u2581\n").ids
    assert joined(tokenizer, ids) == tokenizer.decode(ids) == "a<思考 x>b\u2581\n"


def test_ids_of_padding_rows_are_silent() -> None:
    for kind in KINDS:
        assert joined(KINDS[kind][0](), [100_000, 5_000_000]) == ""


@pytest.mark.parametrize(
    ("kind", "token"), [("gpt2", "ÿ"), ("llama2", "<0xFF>"), ("llama2", "<0x41>"), ("llama2", "▁"), ("gpt2", "Ġ")]
)
def test_a_model_that_repeats_one_token_does_not_slow_down(kind: str, token: str) -> None:
    """Work is counted in ids looked at: some ten for each token, where reading all of them again is millions.

    DecodeStream takes 30 s for this and shows nothing until the end.
    """
    tokenizer = KINDS[kind][0]()
    ids, counted = [tokenizer.token_to_id(token)] * 20_000, Counted(tokenizer)
    assert joined(counted, ids) == tokenizer.decode(ids)  # type: ignore[arg-type]
    assert 20_000 <= counted.ids <= 200_000


def test_an_invalid_byte_does_not_silence_what_follows() -> None:
    tokenizer = gpt2_like()
    wrong = tokenizer.token_to_id("ÿ")
    pieces, rest = stream(tokenizer, [wrong, wrong, tokenizer.token_to_id("a")])
    assert (pieces, rest) == (["\ufffd", "\ufffd", "a"], "")
