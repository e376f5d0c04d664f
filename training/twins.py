"""Trains two draft models for guide that differ by their tokenizers only: python -m training.twins --out FOLDER.

`own/` has guide's tokenizer and `other/` one of half the size, without guide's whole phrases: what drafting through
text costs is the difference between them. Both learn from the text alone, since a teacher has one tokenizer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import torch
from tokenizers import Tokenizer

from localspec.core.paths import packaged
from training import corpus, dialogue, network, snapshot, tokenizer, train
from training.__main__ import DRAFT, DRAFT_RATE, keep_memory
from training.averages import Averages
from training.meter import Meter

GUIDE = packaged("assets/guide/target")
STEPS, BATCH_TOKENS = 600, 2048
OTHER_SIZE = tokenizer.VOCAB_SIZE // 2


def tokenizers(text: corpus.Corpus) -> dict[str, Tokenizer]:
    """Guide's tokenizer, and the other one."""
    return {
        "own": Tokenizer.from_file(str(GUIDE / "tokenizer.json")),
        "other": tokenizer.train(dialogue.tokenizer_texts(text), (), OTHER_SIZE),
    }


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
