"""GGUF's metadata, made from real tokenizers as llama.cpp makes them, become tokenizers with the same ids again."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer

from localspec.checkpoint import parse_tokenizer
from localspec.gguf.header import read_gguf
from localspec.gguf.tokenizer import Vocabulary, chat_template, read_vocabulary
from tests.real.test_prompts import CONVERSATIONS, config_of, nasty_strings, specials_of, tokenizer_of
from tests.real.things import DEEPSEEK_V3, GPT_OSS, LLAMA2, LLAMA3_1, QWEN3, SMOLLM2, SMOLLM2_GGUF, Thing

pytestmark = pytest.mark.real

PRE = {QWEN3: "qwen2", LLAMA3_1: "llama-bpe", DEEPSEEK_V3: "deepseek-v3", GPT_OSS: "gpt-4o"}
BYTES = 3, 259  # the ids of SentencePiece's byte tokens

HARD = (
    *("", " ", "   ", "\n", "\r\n\r\n", "\t\tx", " a", "a ", "  two  blanks  ", "word\n\n\nword", " \n \n", "\u3000", "\u00a0x"),
    *("1234567890", "3.14159e-10", "0x1F", "１２３", "½ ² Ⅷ", "a1b22c333d4444"),
    *("don't DON'T we'll I'D 'S ’s", "naïve nai\u0308ve", "A\u0301\u0302 e\u0301", "ﬁ Å Å", "İıſß", "camelCaseHTTPServer"),
    *("漢字かなカナ한글", "ภาษาไทย", "हिन्दी", "العربية", "עִברִית", "😀👩‍👩‍👧🏽", "🇩🇪", "\U0001f9ff\ufe0f"),
    *("def f(x):\n    return x  # 'a'\n", "<html>\n\t<b>&amp;</b>\n", "===---===>>>", "!?!?…。，、", "a_b__c", "\\n\\t\\x00"),
    *("\x00\x01", "\u200b\u200d\ufeff", "\u2028\u2029", "▁ ▁▁", "Ġ Ċ", "<0x0A>", "<unk>", "[PAD151700]", "\U0010ffff"),
    *("https://example.com/a?b=c&d=%20", "$E=mc^2$", "C++/C#", "```python\nx\n```", "— – - ―", "\ud7ff\ue000", "x" * 300, " " * 200),
)


def nasty(thing: Thing) -> list[str]:
    """200 strings: control tokens whole and broken, everything that is hard to split, and mixtures of it."""
    rng = random.Random(11)
    mixed = ["".join(rng.choices(HARD[1:], k=rng.randrange(2, 6))) for _ in range(60)]
    spoken = [text for conversation in CONVERSATIONS for text in conversation]
    return [*HARD, *spoken, *mixed, *nasty_strings(thing, 200)][: len(HARD) + len(spoken) + 60 + 100]


@cache
def spec_of(thing: Thing) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(thing.file("tokenizer.json").read_text(encoding="utf-8"))
    return found


def looks_special(token: str) -> bool:
    return token.startswith(("<|", "<｜")) and token.endswith(("|>", "｜>"))  # noqa: RUF001


@cache
def metadata_of(thing: Thing) -> dict[str, Any]:
    """What llama.cpp's program for it writes of a tokenizer.json."""
    spec = spec_of(thing)
    added = {token["id"]: token for token in spec["added_tokens"]}
    names = {id: token for token, id in spec["model"]["vocab"].items()} | {id: one["content"] for id, one in added.items()}
    count = max(names) + 300  # rows that fill the embedding
    kinds = [1 if id in names else 5 for id in range(count)]
    for id, token in added.items():
        kinds[id] = 3 if token["special"] or looks_special(token["content"]) else 4
    tokens = [names.get(id, f"[PAD{id}]") for id in range(count)]
    texts = specials_of(thing)
    ids = {f"tokenizer.ggml.{role.removesuffix('_token')}_token_id": tokens.index(text) for role, text in texts.items()}
    merges = [one if isinstance(one, str) else " ".join(one) for one in spec["model"]["merges"]]
    found = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": PRE.get(thing, ""),
        "tokenizer.ggml.tokens": tuple(tokens),
        "tokenizer.ggml.token_type": tuple(kinds),
        "tokenizer.ggml.merges": tuple(merges),
        **{key.replace("pad_", "padding_").replace("unk_", "unknown_"): id for key, id in ids.items()},
    }
    if template := config_of(thing).get("chat_template"):
        found["tokenizer.chat_template"] = template
    return found


@cache
def sentencepiece_metadata() -> dict[str, Any]:
    """Llama 2's: no merges, but scores, which are what its merges were made from."""
    found = metadata_of(LLAMA2)
    tokens, first, last = found["tokenizer.ggml.tokens"], *BYTES
    kinds = [2, 3, 3, *[6] * (last - first), *found["tokenizer.ggml.token_type"][last:]]
    scores = [0.0 if id < last else -10000.0 if kinds[id] == 5 else float(last - id) for id in range(len(tokens))]
    changed = {"model": "llama", "pre": "default", "token_type": tuple(kinds), "scores": tuple(scores)}
    del found["tokenizer.ggml.merges"]
    return found | {f"tokenizer.ggml.{key}": value for key, value in changed.items()}


def metadata_for(thing: Thing) -> dict[str, Any]:
    return sentencepiece_metadata() if thing is LLAMA2 else metadata_of(thing)


@cache
def vocabulary_of(thing: Thing) -> Vocabulary:
    return read_vocabulary(metadata_for(thing), thing.what)


@cache
def ours(thing: Thing) -> Tokenizer:
    return parse_tokenizer(vocabulary_of(thing).tokenizer_json(), thing.what)


def ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [list(one.ids) for one in tokenizer.encode_batch(texts, add_special_tokens=False)]


MODELS = (QWEN3, LLAMA3_1, LLAMA2, DEEPSEEK_V3, GPT_OSS)


@pytest.mark.parametrize("thing", MODELS, ids=lambda thing: thing.package)
def test_ids_are_those_of_the_tokenizer_that_the_file_was_made_from(thing: Thing):
    texts = nasty(thing)
    assert len(texts) >= 200
    for text, found, expected in zip(texts, ids(ours(thing), texts), ids(tokenizer_of(thing), texts), strict=True):
        assert found == expected, text
        assert ours(thing).decode(found, skip_special_tokens=False) == tokenizer_of(thing).decode(
            found, skip_special_tokens=False
        )
