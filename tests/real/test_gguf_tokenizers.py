"""GGUF's metadata, made from real tokenizers as llama.cpp makes them, become tokenizers with the same ids again."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer

from localspec.models.chat_template import ChatTemplate
from localspec.models.checkpoint import parse_tokenizer
from localspec.models.gguf.header import read_gguf
from localspec.models.gguf.tokenizer import BLANK, Vocabulary, chat_template, read_vocabulary
from localspec.models.prompt import Prompter
from tests.real.test_prompts import (
    CONVERSATIONS,
    config_of,
    conversation,
    nasty_strings,
    prompter_of,
    specials_of,
    tokenizer_of,
)
from tests.real.things import DEEPSEEK_V3, GPT_OSS, LLAMA2, LLAMA3_1, QWEN3, SMOLLM2, SMOLLM2_GGUF, Thing

pytestmark = [pytest.mark.heavy, pytest.mark.real]

PRE = {QWEN3: "qwen2", LLAMA3_1: "llama-bpe", DEEPSEEK_V3: "deepseek-v3", GPT_OSS: "gpt-4o"}
BYTES = 3, 259  # the ids of SentencePiece's byte tokens

HARD = (
    *("", " ", "   ", "\n", "\r\n\r\n", "\t\tx", " a", "a ", "  two  blanks  ", "word\n\n\nword", " \n \n", "\u3000"),
    *("1234567890", "3.14159e-10", "0x1F", "１２３", "½ ² Ⅷ", "a1b22c333d4444", "\u00a0x", "C++/C#", "$E=mc^2$"),
    *("don't DON'T we'll I'D 'S ’s", "naïve nai\u0308ve", "A\u0301\u0302 e\u0301", "ﬁ Å Å", "İıſß", "camelHTTPServer"),
    *("漢字かなカナ한글", "ภาษาไทย", "हिन्दी", "العربية", "עִברִית", "😀👩‍👩‍👧🏽", "🇩🇪", "\U0001f9ff\ufe0f", "— – - ―"),
    *("def f(x):\n    return x  # 'a'\n", "<html>\n\t<b>&amp;</b>\n", "===---===>>>", "!?!?…。，、", "a_b__c"),
    *("\\n\\t\\x00", "\x00\x01", "\u200b\u200d\ufeff", "\u2028\u2029", "▁ ▁▁", "Ġ Ċ", "<0x0A>", "<unk>", "[PAD151700]"),
    *("\U0010ffff", "https://example.com/a?b=c&d=%20", "```python\nx\n```", "\ud7ff\ue000", "x" * 300, " " * 200),
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
    return token.startswith(("<|", "<｜")) and token.endswith(("|>", "｜>"))


@cache
def metadata_of(thing: Thing) -> dict[str, Any]:
    """What llama.cpp's program for it writes of a tokenizer.json."""
    spec = spec_of(thing)
    added = {token["id"]: token for token in spec["added_tokens"]}
    names = {id: token for token, id in spec["model"]["vocab"].items()} | {
        id: one["content"] for id, one in added.items()
    }
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
    """Llama 2's: no merges, but scores, in whose order they were made; what no merge makes has the least."""
    found = dict(metadata_of(LLAMA2))
    tokens, first, last = found["tokenizer.ggml.tokens"], *BYTES
    kinds = [2, 3, 3, *[6] * (last - first), *found["tokenizer.ggml.token_type"][last:]]
    made = dict.fromkeys(merge.replace(" ", "") for merge in found.pop("tokenizer.ggml.merges"))
    ranks = {piece: rank for rank, piece in enumerate([*made, *(token for token in tokens if token not in made)])}
    scores = [0.0 if id < last else -1e6 if kinds[id] == 5 else -float(ranks[tokens[id]]) for id in range(len(tokens))]
    changed = {"model": "llama", "pre": "default", "token_type": tuple(kinds), "scores": tuple(scores)}
    return found | {f"tokenizer.ggml.{key}": value for key, value in changed.items()}


def metadata_for(thing: Thing) -> dict[str, Any]:
    return sentencepiece_metadata() if thing is LLAMA2 else metadata_of(thing)


@cache
def vocabulary_of(thing: Thing) -> Vocabulary:
    return read_vocabulary(metadata_for(thing), thing.what)


@cache
def smollm2() -> Vocabulary:
    file = SMOLLM2.file(SMOLLM2_GGUF)
    return read_vocabulary(read_gguf(file).metadata, str(file))


@cache
def ours(vocabulary: Vocabulary) -> Tokenizer:
    return parse_tokenizer(vocabulary.tokenizer_json(), vocabulary.where)


def transformers_own(vocabulary: Vocabulary) -> Tokenizer:
    from transformers.integrations.gguf import convert_gguf_tokenizer
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_TOKENIZER_MAPPING

    keys = {f"tokenizer.{key}": name for key, name in GGUF_TOKENIZER_MAPPING["tokenizer"].items()}
    found = {name: vocabulary.metadata[key] for key, name in keys.items() if key in vocabulary.metadata}
    tokenizer: Tokenizer = convert_gguf_tokenizer("llama", found)[0]
    return tokenizer


def ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [list(one.ids) for one in tokenizer.encode_batch(texts, add_special_tokens=False)]


def differing(vocabulary: Vocabulary, texts: list[str]) -> list[str]:
    """Those of which transformers' converter makes other ids."""
    found = zip(texts, ids(ours(vocabulary), texts), ids(transformers_own(vocabulary), texts), strict=True)
    return [text for text, one, other in found if one != other]


MODELS = (QWEN3, LLAMA3_1, LLAMA2, DEEPSEEK_V3, GPT_OSS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("thing", MODELS, ids=lambda thing: thing.package)
def test_ids_and_text_are_those_of_the_tokenizer_that_the_file_was_made_from(thing: Thing):
    texts, mine, original = nasty(thing), ours(vocabulary_of(thing)), tokenizer_of(thing)
    assert len(set(texts)) >= 200
    for text, found, expected in zip(texts, ids(mine, texts), ids(original, texts), strict=True):
        assert found == expected, text
        decoded = [one.decode(found, skip_special_tokens=False) for one in (mine, original)]
        assert decoded[0] == decoded[1], text


@pytest.mark.sampled(2)
@pytest.mark.parametrize("thing", MODELS, ids=lambda thing: thing.package)
def test_a_raw_text_opens_as_it_does_with_the_original(thing: Thing):
    assert ours(vocabulary_of(thing)).encode("x").ids == tokenizer_of(thing).encode("x").ids


def test_merges_made_of_scores_are_those_of_the_original_in_their_order():
    found = json.loads(vocabulary_of(LLAMA2).tokenizer_json())["model"]["merges"]
    assert len(found) == 58_980
    assert [" ".join(pair) for pair in found] == spec_of(LLAMA2)["model"]["merges"]


def begins_or_goes_on_after_a_token(text: str) -> bool:
    return text[:1] in (" ", BLANK) or bool(re.search("<s>|</s>|<unk>", text))


ELSEWHERE: dict[Thing, Callable[[str], bool]] = {
    # it leaves out NFC, which Qwen's tokenizer.json has
    QWEN3: lambda text: text != unicodedata.normalize("NFC", text),
    # it makes a token of GPT-2's out of these characters in every vocabulary
    LLAMA3_1: lambda text: "<|endoftext|>" in text,
    # it writes no blank before a blank, nor behind a control token
    LLAMA2: begins_or_goes_on_after_a_token,
    # it has no pattern for "deepseek-v3" and splits as GPT-2
    DEEPSEEK_V3: lambda text: bool(re.search(r"[\d\W_]|[^\x00-\x7f]", text)),
    GPT_OSS: lambda _: False,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("thing", MODELS, ids=lambda thing: thing.package)
def test_ids_are_those_of_transformers_converter_but_where_it_is_wrong(thing: Thing):
    """Where it differs, the test above has shown that ours are the original's."""
    different = differing(vocabulary_of(thing), [*nasty(thing), "<|endoftext|>"])
    assert [text for text in different if not ELSEWHERE[thing](text)] == []
    assert bool(different) == (thing is not GPT_OSS), "it has been put right: empty its row above"


def test_smollm2s_own_file_gives_transformers_ids_but_where_it_is_wrong():
    """It does not know "smollm", which makes a piece of every number, before it looks at blanks."""
    different = differing(smollm2(), nasty(QWEN3))
    assert different
    assert all(re.search(r"[½²Ⅷ]|\s\d", text) for text in different)


def test_tokens_that_end_a_turn_are_those_of_the_models_generation_configs():
    assert vocabulary_of(QWEN3).end_ids == (151_643, 151_645)
    assert vocabulary_of(LLAMA3_1).end_ids == (128_001, 128_009)
    assert vocabulary_of(LLAMA2).end_ids == (2,)
    assert vocabulary_of(DEEPSEEK_V3).end_ids == (1,)
    assert vocabulary_of(GPT_OSS).end_ids == (199_999, 200_002, 200_012)
    assert smollm2().end_ids == (0, 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("thing", MODELS, ids=lambda thing: thing.package)
def test_a_conversation_is_the_same_ids_in_gguf(thing: Thing):
    vocabulary = vocabulary_of(thing)
    assert {*specials_of(thing).items()} <= {*vocabulary.special_tokens.items()}
    source = chat_template(vocabulary.metadata, vocabulary.where)
    assert source == config_of(thing).get("chat_template")
    if source:
        template = ChatTemplate(source, name="gguf", special_tokens=vocabulary.special_tokens)
        prompter = Prompter(ours(vocabulary), name="gguf", template=template)
        for contents in CONVERSATIONS:
            assert prompter.chat(conversation(contents)) == prompter_of(thing).chat(conversation(contents)), contents


def test_smollm2s_template_and_special_tokens_are_read():
    found = smollm2()
    assert found.special_tokens["eos_token"] == "<|im_end|>"
    assert found.special_tokens["bos_token"] == "<|im_start|>"
    template = ChatTemplate(
        chat_template(found.metadata, "x") or "", name="smollm2", special_tokens=found.special_tokens
    )
    prompter = Prompter(ours(found), name="smollm2", template=template)
    text = ours(found).decode(prompter.chat(conversation(["Hi"])), skip_special_tokens=False)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert ours(found).encode("x").ids == ours(found).encode("x", add_special_tokens=False).ids
