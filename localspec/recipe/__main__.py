"""One command trains the built-in model: python -m localspec.recipe --out assets/guide [--seed 0]."""

from __future__ import annotations

import time
from pathlib import Path

import click
import torch
from tokenizers import Tokenizer

from localspec.errors import LocalspecError
from localspec.recipe import card, corpus, dialogue, evaluate, network, snapshot, tokenizer, train
from localspec.recipe.meter import Meter

STEPS, DRAFT_STEPS = 900, 450
THREADS = 2
BATCH_TOKENS = 2048
TARGET_RATE, DRAFT_RATE = 1.5e-3, 3e-3
TARGET = network.Shape(tokenizer.VOCAB_SIZE, 256, 512, 12, 4, 2, 64)
DRAFT = network.Shape(tokenizer.VOCAB_SIZE, 128, 384, 4, 4, 2, 32)


def _target(text: corpus.Corpus, words: Tokenizer, seed: int, steps: int) -> tuple[network.Network, int]:
    """The trained target, and the tokens it was trained on."""
    torch.manual_seed(seed)
    target = network.Network(TARGET)
    with Meter("target", steps) as meter:
        batches = meter.counted(dialogue.Author(text, words, seed).batches(BATCH_TOKENS))
        train.train_target(target, batches, train.Schedule(steps, TARGET_RATE, seed), meter.report)
    snapshot.round_weights(target)
    return target, meter.tokens


def _draft(author: dialogue.Author, target: network.Network, seed: int, steps: int) -> tuple[network.Network, int]:
    """The draft model distilled from the target, and the tokens it was trained on."""
    torch.manual_seed(seed)
    draft = network.Network(DRAFT)
    with Meter("draft", steps) as meter:
        batches = meter.counted(author.batches(BATCH_TOKENS))
        train.train_draft(draft, target, batches, train.Schedule(steps, DRAFT_RATE, seed), meter.report)
    snapshot.round_weights(draft)
    return draft, meter.tokens


def run(out: Path, seed: int, steps: tuple[int, int], context: str) -> None:
    """Corpus, tokenizer, two trainings, two snapshots, one card."""
    start, text = time.monotonic(), corpus.load()
    words = tokenizer.train(dialogue.tokenizer_texts(text))
    target, seen = _target(text, words, seed, steps[0])
    snapshot.save(target, words, out / "target")
    draft, draft_seen = _draft(dialogue.Author(text, words, seed + 1), target, seed, steps[1])
    snapshot.save(draft, words, out / "draft")
    questions = evaluate.held_out(text, words, seed)
    report = evaluate.measure(target, draft, questions, tokenizer.control_ids(words)[tokenizer.TURN_END])
    minutes = (time.monotonic() - start) / 60
    threads = torch.get_num_threads()
    training = card.Training(command(out, seed, steps, threads), seed, minutes, seen, draft_seen, threads, context)
    (out / "README.md").write_text(card.write(text, target, draft, training, report), encoding="utf-8")


def command(out: Path, seed: int, steps: tuple[int, int], threads: int) -> str:
    """What to type to train the same again."""
    names, defaults = ("--steps", "--draft-steps", "--threads"), (STEPS, DRAFT_STEPS, THREADS)
    said = zip(names, (*steps, threads), defaults, strict=True)
    other = "".join(f" {name} {given}" for name, given, default in said if given != default)
    return f"python -m localspec.recipe --out {out} --seed {seed}{other}"


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for target/, draft/ and README.md.")
@click.option("--seed", default=0, show_default=True)
@click.option("--steps", default=STEPS, show_default=True, help="Steps of the target.")
@click.option("--draft-steps", default=DRAFT_STEPS, show_default=True)
@click.option("--threads", default=THREADS, show_default=True)
@click.option("--context", default="", help="What else the machine was doing, for the card.")
def main(out: Path, seed: int, steps: int, draft_steps: int, threads: int, context: str) -> None:
    """Train the built-in model and its draft model."""
    torch.set_num_threads(threads)
    try:
        run(out, seed, (steps, draft_steps), context)
    except LocalspecError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
