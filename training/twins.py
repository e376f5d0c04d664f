"""Trains two draft models for guide that differ by their tokenizers only: python -m training.twins --out FOLDER.

`own/` has guide's tokenizer and `other/` another of the same size: what drafting through text costs is the difference
between them. Both learn from the text alone, since a teacher has one tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from localspec.core.paths import packaged
from training import corpus, dialogue, network, snapshot, tokenizer, train
from training.__main__ import DRAFT, DRAFT_RATE, keep_memory
from training.averages import Averages
from training.meter import Meter

GUIDE = packaged("assets/guide/target")
STEPS, BATCH_TOKENS = 600, 2048
BLANK = "▁"
WORDS = rf"{BLANK}?\p{{L}}+|\p{{N}}|{BLANK}?[^\s\p{{L}}\p{{N}}{BLANK}]+|{BLANK}+|\s+"
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def tokenizers(text: corpus.Corpus) -> dict[str, Tokenizer]:
    """Guide's tokenizer, and the other one."""
    return {
        "own": Tokenizer.from_file(str(GUIDE / "tokenizer.json")),
        "other": train_other(dialogue.tokenizer_texts(text), (*tokenizer.ROLES, *dialogue.openings(text))),
    }


def train_other(texts: Iterable[str], whole: Sequence[str]) -> Tokenizer:
    """A tokenizer as SentencePiece has them: its own characters, bytes for all others, ▁ for a space. Words are cut
    behind their blanks and figures into digits; the phrases are one token each, as in guide's."""
    blanks = normalizers.Replace(" ", BLANK)
    phrases = [phrase.replace(" ", BLANK) for phrase in whole]
    pieces = [re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True)]
    cut = pre_tokenizers.Split(Regex("|".join([*pieces, WORDS])), behavior="isolated")
    controls = [AddedToken(token, special=True, normalized=False) for token in tokenizer.CONTROL_TOKENS]
    learned = Tokenizer(models.BPE())
    learned.normalizer, learned.pre_tokenizer = blanks, pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    size = tokenizer.VOCAB_SIZE - len(whole) - len(BYTE_TOKENS)
    learned.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, special_tokens=controls, show_progress=False)
    )
    spec = json.loads(learned.to_str())["model"]
    vocabulary = spec["vocab"]
    for token in (*BYTE_TOKENS, *phrases):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [tuple(pair) for pair in spec["merges"]]
    made = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, ignore_merges=True))
    made.add_special_tokens(controls)
    made.normalizer, made.pre_tokenizer = blanks, cut
    made.decoder = decoders.Sequence([decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()])
    return made


def train_one(
    text: corpus.Corpus, words: Tokenizer, *, steps: int, name: str, shape: network.Shape = DRAFT, seed: int = 0
) -> network.Network:
    """A draft model with this tokenizer: begun as an average of words, then trained on whole answers, since which of
    them is meant is the target's to decide."""
    torch.manual_seed(seed)
    model = network.Network(replace(shape, vocab_size=words.get_vocab_size()))
    averages = Averages(dialogue.asked(text, seed), words, shape.num_kv_heads * shape.head_dim, seed)
    with Meter("word averages", averages.steps) as meter:
        averages.learn(meter.report)
    averages.lay_into(model)
    author = dialogue.Author(text, words, seed, decisions=0.0)
    with Meter(name, steps) as meter:
        run = train.Run(model, train.Schedule(steps, DRAFT_RATE, seed, half=False))
        train.train_text(run, meter.counted(author.batches(BATCH_TOKENS)), meter.report)
    snapshot.round_weights(model)
    return model


def train_twins(out: Path, steps: int = STEPS) -> None:
    """Both, as snapshots in `own` and `other`."""
    text = corpus.load()
    for name, words in tokenizers(text).items():
        snapshot.save(train_one(text, words, steps=steps, name=name), words, out / name)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for own/ and other/.")
@click.option("--steps", default=STEPS, show_default=True, type=click.IntRange(1))
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
def main(out: Path, steps: int, threads: int) -> None:
    """Train guide's two draft models for the comparison of tokenizers."""
    keep_memory()
    torch.set_num_threads(threads)
    train_twins(out, steps)


if __name__ == "__main__":
    main()
