"""Tiny tokenizers of every kind we meet, trained here in milliseconds, and snapshot folders around them.

Knows nothing about the built-in model.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

P = ParamSpec("P")

CORPUS = (
    "The quick brown fox jumps over the lazy dog, and then it sleeps.",
    "def add(first, second):\n    return first + second  # 12345 times",
    "Il était une fois; straße, naïve, señor. We don't know what they're doing.",
    "hello there general, user system assistant end start im begin of text",
) * 4

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3_CHAT = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
LLAMA2_CHAT = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] + ' ' + eos_token }}{% else %}"
    "{{ bos_token + '[INST] ' + message['content'] + ' [/INST]' }}{% endif %}{% endfor %}"
)
BERT_CHAT = (
    "[CLS] {% for message in messages %}[{{ message['role'] | upper }}] "
    "{{ message['content'].strip() }} [SEP] {% endfor %}"
)


def trained_once(make: Callable[P, Tokenizer]) -> Callable[P, Tokenizer]:
    """Whoever asks for it gets one of their own."""

    @cache
    def written(*args: P.args, **kwargs: P.kwargs) -> str:
        return make(*args, **kwargs).to_str()

    @wraps(make)
    def copy(*args: P.args, **kwargs: P.kwargs) -> Tokenizer:
        return Tokenizer.from_str(written(*args, **kwargs))

    return copy


@trained_once
def byte_level(
    *controls: str, vocab_size: int = 400, pattern: str | None = None, plain: tuple[str, ...] = ("<think>", "</think>")
) -> Tokenizer:
    """Byte-level BPE as GPT-2's, or with a split pattern as Llama 3's and Qwen's. `plain` are added and not special."""
    tokenizer = Tokenizer(models.BPE())
    byte_pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, byte_pieces])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(list(controls))
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in plain])
    return tokenizer


@trained_once
def gpt2_like() -> Tokenizer:
    return byte_level("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@trained_once
def llama3_like() -> Tokenizer:
    names = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    tokenizer = byte_level(*names, pattern=LLAMA3)
    begin = (names[0], tokenizer.token_to_id(names[0]))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{names[0]} $A", special_tokens=[begin])
    return tokenizer


@trained_once
def llama2_like(*, legacy: bool = False) -> Tokenizer:
    """Sentencepiece BPE with byte fallback: Metaspace on the first piece only, or the legacy Prepend normaliser."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>", "<s>", "</s>", *byte_tokens], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    if legacy:
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


@trained_once
def wordpiece_like() -> Tokenizer:
    """BERT's: lower case, "##" pieces; its controls are in the model's own vocabulary."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    controls = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=controls, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("[user]", normalized=True), AddedToken("[assistant]", normalized=True)])
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


@trained_once
def unigram_like() -> Tokenizer:
    """T5's: NFKC, Metaspace before every piece, and "</s>" is a piece that plain text can reach."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<turn>", lstrip=True, rstrip=True, normalized=True)])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


UNIGRAM_CHAT = (
    "{% for message in messages %}<turn> {{ message['role'] }} {{ message['content'] }} </s>{% endfor %}<turn>"
)

KINDS: dict[str, tuple[Any, str, dict[str, str]]] = {
    "gpt2": (gpt2_like, CHATML, {"eos_token": "<|im_end|>"}),
    "llama3": (llama3_like, LLAMA3_CHAT, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}),
    "llama2": (llama2_like, LLAMA2_CHAT, {"bos_token": "<s>", "eos_token": "</s>"}),
    "llama2-legacy": (lambda: llama2_like(legacy=True), LLAMA2_CHAT, {"bos_token": "<s>", "eos_token": "</s>"}),
    "wordpiece": (wordpiece_like, BERT_CHAT, {"eos_token": "[SEP]"}),
    "unigram": (unigram_like, UNIGRAM_CHAT, {"eos_token": "</s>"}),
}

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "vocab_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}


def safetensors_bytes(header: object, data: bytes = b"") -> bytes:
    """A file with any header, true or not."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def tiny_weights() -> bytes:
    return safetensors_bytes({"a": entry("F32", [4, 4], 0, 64), "b": entry("BF16", [8], 64, 80)}, bytes(80))


def write_snapshot(
    folder: Path,
    *,
    tokenizer: Tokenizer | None = None,
    template: str | None = None,
    specials: dict[str, str] | None = None,
) -> Path:
    """A whole folder that opens: config, weights, and a tokenizer when one is given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(tiny_weights())
    if tokenizer:
        tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer_config = {**(specials or {}), **({"chat_template": template} if template else {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return folder
