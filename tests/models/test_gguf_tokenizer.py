"""GGUF names how text is split, and each name means the pattern of the models that have it."""

from __future__ import annotations

import pytest

from localspec.models.checkpoint import parse_tokenizer
from localspec.models.gguf.pre_tokenizers import PRE_TOKENIZERS
from localspec.models.gguf.tokenizer import read_vocabulary
from tests.support.tokenizers import byte_level

K = "tokenizer.ggml."
TEXT = "I'm camelCase 12345\n\n x"
GPT_2 = ["I", "'m", " camelCase", " 12345", "\n\n", " x"]
LLAMA_3 = ["I", "'m", " camelCase", " ", "123", "45", "\n\n", " x"]
QWEN_2 = ["I", "'m", " camelCase", " ", *"12345", "\n\n", " x"]
DEEPSEEK = ["I", "'", "m", " camelCase", " ", *"12345", "\n", "\n", " x"]
SPLIT = {
    "default": ["I", "'", "m", " camelCase", " ", "123", "45", "\n\n", " x"],
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"), LLAMA_3),
    **dict.fromkeys(("smaug-bpe", "dbrx", "deepseek-v3"), LLAMA_3),
    "tekken": ["I", "'m", " camel", "Case", " ", *"12345", "\n\n", " x"],
    "gpt-4o": ["I'm", " camel", "Case", " ", "123", "45", "\n\n", " x"],
    **dict.fromkeys(("qwen2", "megrez", "deepseek-r1-qwen", "kormo", "seed-coder"), QWEN_2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "minerva-7b"), QWEN_2),
    **dict.fromkeys(("gpt-2", "a.x-4.0", "mellum", "trillion", "granite-docling"), GPT_2),
    "deepseek-llm": DEEPSEEK,
    "deepseek-coder": DEEPSEEK,
    "viking": ["I'm", " camelCase", " ", *"12345", "\n\n", " x"],
}


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_a_text_is_split_as_its_models_split_it_and_nothing_is_lost(pre: str):
    spec = byte_level("<s>", "<|im_end|>")
    tokens = sorted(vocab := spec.get_vocab(with_added_tokens=True), key=vocab.__getitem__)
    metadata = {
        f"{K}model": "gpt2",
        f"{K}pre": pre,
        f"{K}tokens": tokens,
        f"{K}token_type": [3 if token in ("<s>", "<|im_end|>") else 1 for token in tokens],
        f"{K}merges": [],
        f"{K}bos_token_id": tokens.index("<s>"),
    }
    tokenizer = parse_tokenizer(read_vocabulary(metadata, "x.gguf").tokenizer_json(), "x.gguf")
    found = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(TEXT)]
    assert [piece.replace("Ġ", " ").replace("Ċ", "\n") for piece in found] == SPLIT[pre]
    for text in (TEXT, "naïve 漢字 😀 ½ \u00a0", "\r\n\t  a|b<c>"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text
    opening = [tokens.index("<s>")] if PRE_TOKENIZERS[pre].bos else []
    assert tokenizer.encode("").ids == opening


def test_every_name_is_tried():
    assert SPLIT.keys() == PRE_TOKENIZERS.keys()
