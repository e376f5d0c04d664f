"""Trains the byte-level BPE tokenizer and writes its files, chat template included.

Every byte has a token, so any text encodes. The first words of an answer are one token: which answer is meant is then
decided once, at one position, and not again at every word that tells it from another. Knows nothing about the network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from localspec.core.whole_file import write_whole

VOCAB_SIZE = 4096
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
ROLES = ("system\n", "user\n", "assistant\n")
WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train(texts: Iterable[str], openings: Sequence[str], size: int | None = None) -> Tokenizer:
    """A tokenizer of at most `size` tokens, VOCAB_SIZE by itself: the control tokens first, roles and openings as one
    token each last."""
    whole = (*ROLES, *openings)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=(size or VOCAB_SIZE) - len(whole),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return with_whole(tokenizer, whole)


def with_whole(tokenizer: Tokenizer, phrases: Sequence[str]) -> Tokenizer:
    """The longest phrase is cut out first, then words as GPT-2 has them; what is in the vocabulary stays whole."""
    spec = json.loads(tokenizer.to_str())
    vocabulary, merges = spec["model"]["vocab"], spec["model"]["merges"]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for phrase in phrases:
        vocabulary.setdefault(to_bytes.pre_tokenize_str(phrase)[0][0], len(vocabulary))
    pieces = [re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True)]
    made = Tokenizer(models.BPE(vocabulary, [tuple(pair) for pair in merges], ignore_merges=True))
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    cut = pre_tokenizers.Split(Regex("|".join([*pieces, WORDS])), behavior="isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([cut, to_bytes])
    made.decoder = decoders.ByteLevel()
    return made


def control_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The ids of the control tokens, which train puts first."""
    return {token: tokenizer.encode(token, add_special_tokens=False).ids[0] for token in CONTROL_TOKENS}


def save(tokenizer: Tokenizer, folder: Path, max_positions: int) -> None:
    """tokenizer.json and tokenizer_config.json, as transformers reads them."""
    write_whole(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_positions,
        "chat_template": CHAT_TEMPLATE,
    }
    write_whole(folder / "tokenizer_config.json", (json.dumps(config, indent=2) + "\n").encode())
