"""Trains the byte-level BPE tokenizer and writes its files, chat template included.

Every byte has a token, so any text encodes. Knows nothing about the network.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from localspec.whole_file import write_whole

VOCAB_SIZE = 2048
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CONTROL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer of at most VOCAB_SIZE tokens; the control tokens come first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


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
