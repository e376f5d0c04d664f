"""One command trains the built-in model: python -m training --out assets/guide [--seed 0].

Interrupted, the same command goes on where it stopped. Puts the parts in order; knows nothing about how text becomes
batches, how a network learns, or how a state is kept.
"""

from __future__ import annotations

import ctypes
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click
import torch
from torch import Tensor

from localspec.core.errors import LocalspecError
from localspec.core.whole_file import write_whole
from training import card, corpus, dialogue, evaluate, network, snapshot, tokenizer, train
from training.averages import Averages
from training.exam import overlap
from training.exam import questions as exam
from training.meter import Meter
from training.resume import Keeper, fingerprint
from training.tasks import wordings
from training.words import FILE, render

FIRST_STEPS, STEPS, DRAFT_STEPS = STEPS_OF_EACH = 5000, 1000, 300
THREADS = 2
BATCH_TOKENS = 4096
FIRST_RATE, AGAIN_RATE, TARGET_RATE, DRAFT_RATE = 1e-3, 6e-4, 4e-4, 2e-3
FIRST_DECISIONS, DECISIONS, DRAFT_DECISIONS = 0.9, 0.96, 0.5  # the less, the more is recited: the draft model's work
TARGET = network.Shape(tokenizer.VOCAB_SIZE, 256, 512, 12, 4, 2, 64)
DRAFT = network.Shape(tokenizer.VOCAB_SIZE, 128, 384, 4, 4, 2, 32)
GOES = {"first": "first layers", "second": "first layers again", "third": "first layers once more"}
PARTS = {**GOES, "whole": "target", "draft": "draft"}  # in this order
STOPPED = 130  # what a shell says of a command that Ctrl+C ended


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    out: Path
    seed: int = 0
    first_steps: int = FIRST_STEPS
    steps: int = STEPS
    draft_steps: int = DRAFT_STEPS
    threads: int = THREADS
    device: str = "cpu"
    context: str = ""

    @property
    def command(self) -> str:
        """The command that trains the same again."""
        names = ("--first-steps", "--steps", "--draft-steps", "--threads")
        given = (self.first_steps, self.steps, self.draft_steps, self.threads)
        said = zip(names, given, (*STEPS_OF_EACH, THREADS), strict=True)
        other = "".join(f" {name} {given}" for name, given, default in said if given != default)
        other += f" --device {self.device}" if self.device != device_named("auto") else ""
        return f"python -m training --out {shlex.quote(str(self.out))} --seed {self.seed}{other}"

    @property
    def goes_on_with(self) -> str:
        """The command that continues after a stop."""
        return f"{self.command} --context {shlex.quote(self.context)}" if self.context else self.command


class Stopped(LocalspecError):
    """Shown to the user after Ctrl+C: everything is kept."""


class Training:
    """The two runs and their state file."""

    def __init__(self, options: Options, text: corpus.Corpus) -> None:
        self.options, self.text, phrasings = options, text, exam.load().phrasings
        self.exam = overlap.Questions(phrasings)  # which decides what is drawn again
        self.words = tokenizer.train(dialogue.tokenizer_texts(text), dialogue.openings(text))
        asked = replace(options, out=Path(), context="")
        training = fingerprint(text, phrasings, wordings(), recipe_code(), TARGET, DRAFT, asked)
        self.keeper = Keeper(options.out, training, options.goes_on_with)
        self.state = self.keeper.load()
        self.began = time.monotonic() - self.state.get("seconds", 0.0)

    def begin(self, name: str, shape: network.Shape) -> network.Network:
        """A network that chooses by word averages, unless what it became later is kept."""
        torch.manual_seed(self.options.seed)
        model = network.Network(shape)
        if name not in self.state:
            size = shape.num_kv_heads * shape.head_dim
            asked = dialogue.asked(self.text, self.options.seed, self.exam)
            averages = Averages(asked, self.words, size, self.options.seed)
            with Meter("word averages", averages.steps) as meter:
                averages.learn(meter.report)
            averages.lay_into(model)
        return model

    def run(self, name: str, model: network.Network, schedule: train.Schedule, decisions: float, fit: Fit) -> None:
        """The model trained to the schedule's end, from where its state is; the tokens it saw are in the state."""
        run = train.Run(model.to(self.options.device), schedule)
        kept = self.state.get(name, {"place": (0, 0), "tokens": 0})
        if "network" in kept:
            run.restore(kept)
        seed = self.options.seed + len(name)
        talks = name not in GOES.values()  # one question at a time first
        author = dialogue.Author(self.text, self.words, seed, decisions, kept["place"], talks=talks, exam=self.exam)
        with Meter(name, schedule.steps, done=run.step, tokens=kept["tokens"]) as meter, self.keeper.interruptible():

            def after(step: int, loss: float) -> None:
                meter.report(step, loss)
                if self.keeper.is_due() or run.step == schedule.steps:
                    self._keep(name, run, author.place, meter.tokens)

            fit(run, meter.counted(author.batches(BATCH_TOKENS)), after)

    def _keep(self, name: str, run: train.Run, place: tuple[int, int], tokens: int) -> None:
        self.state[name] = {**run.state(), "place": place, "tokens": tokens}
        self.state["seconds"] = time.monotonic() - self.began
        self.keeper.save(self.state, f"step {run.step} of {run.schedule.steps} of the {name}")
        if self.keeper.stopping:
            raise Stopped(f"Stopped. {self.keeper.outlook}")


Fit = Callable[..., None]


def recipe_code() -> list[str]:
    """The recipe's modules: one that was changed is another recipe."""
    return [file.read_text(encoding="utf-8") for file in sorted(Path(__file__).parent.glob("*.py"))]


def mean_of(*networks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """State dicts, weight by weight; one may be on a GPU, and another come back from the file of states."""
    return {name: torch.stack([network[name].cpu() for network in networks]).mean(0) for name in networks[0]}


def train_both(training: Training) -> tuple[network.Network, network.Network]:
    """The target, its first layers before the others: in three goes, two of them from where the first ended, whose mean
    stays (Izmailov et al., 1803.05407; Wortsman et al., 2203.05482). Then the draft model distilled from it, and the
    other layers softened. Each begins as an average of words."""
    options, first = training.options, train.train_first
    target, draft = training.begin(GOES["first"], TARGET), training.begin("draft", DRAFT)

    def learn(name: str, steps: int, rate: float, decisions: float, fit: Fit) -> None:
        training.run(name, target, train.Schedule(steps, rate, options.seed), decisions, fit)

    learn(GOES["first"], options.first_steps, FIRST_RATE, FIRST_DECISIONS, first)
    for go in (GOES["second"], GOES["third"]):
        target.load_state_dict(training.state[GOES["first"]]["network"])
        learn(go, options.first_steps // 2, AGAIN_RATE, FIRST_DECISIONS, first)
    target.load_state_dict(mean_of(*(training.state[go]["network"] for go in GOES.values())))
    train.hold_first(target)
    learn(PARTS["whole"], options.steps, TARGET_RATE, DECISIONS, train.train_target)
    snapshot.round_weights(target)

    def distil(run: train.Run, batches: Any, report: Any) -> None:  # Any: as train_draft's
        train.train_draft(run, target, batches, report)

    training.run("draft", draft, train.Schedule(options.draft_steps, DRAFT_RATE, options.seed), DRAFT_DECISIONS, distil)
    snapshot.round_weights(draft)
    train.soften_rest(target)  # a power of two: nothing is rounded again
    return target.cpu(), draft.cpu()


def run(options: Options) -> None:
    """The whole recipe; wherever Ctrl+C comes, one sentence says what is kept."""
    text = corpus.load()
    refuse_leaks(text, exam.load())
    check_writable(options.out)
    training = Training(options, text)
    try:
        complete(training)
    except KeyboardInterrupt:
        raise Stopped(f"Stopped. {training.keeper.outlook}") from None


def check_writable(folder: Path) -> None:
    """The folder is there and takes files, or nothing is trained: an hour later would be too late to hear of it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as fault:
        raise LocalspecError(f"{folder} cannot be written to ({fault.strerror}). Give another --out.") from None


def complete(training: Training) -> None:
    """Two trainings, measurements; then two snapshots and a card, and the state goes."""
    options = training.options
    target, draft = train_both(training)
    report = measured(training, target, draft)
    minutes = (time.monotonic() - training.began) / 60
    steps = {part: training.state[name]["step"] for part, name in PARTS.items()}
    tokens = {part: training.state[name]["tokens"] for part, name in PARTS.items()}
    threads, what = torch.get_num_threads(), options.device
    facts = card.Training(options.command, options.seed, minutes, steps, tokens, threads, what, options.context)
    page = card.write(training.text, target, draft, facts, report)

    def save() -> None:
        snapshot.save(target, training.words, options.out / "target")
        snapshot.save(draft, training.words, options.out / "draft")
        write_whole(options.out / "target" / FILE, render(training.text).encode())
        write_whole(options.out / "README.md", page.encode())

    training.keeper.write(options.out, save)
    training.keeper.remove()


def refuse_leaks(text: corpus.Corpus, asked: exam.Exam) -> None:
    """The exam must stay unseen, or it says nothing."""
    leak = next(overlap.leaks(asked.phrasings, dialogue.trained_questions(text)), None)
    if leak is not None:
        raise LocalspecError(f"The exam leaks into the corpus: {leak}. Take that question out of the corpus.")


def measured(training: Training, target: network.Network, draft: network.Network) -> evaluate.Report:
    """The development set and the exam."""
    text, words = training.text, training.words
    known, end = evaluate.known_answers(text, words), tokenizer.control_ids(words)[tokenizer.TURN_END]
    click.echo("measuring the exits, the held-out questions and the exam", err=True)
    questions = evaluate.held_out(text, words, training.options.seed)
    report = evaluate.measure(target, draft, questions, known, end)
    return replace(report, exam=evaluate.sit_exam(target, words, known, exam.load()))


def keep_memory() -> None:
    """Tells the allocator to keep what it has: giving every large block back and fetching it anew costs a third."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another system's C library; Windows has none without a name
    no_mmap, trim = -4, -1
    mallopt(no_mmap, 0)
    mallopt(trim, 2**31 - 1)


def device_named(name: str) -> str:
    """cuda where there is one, when left to us."""
    if name == "cuda" and not torch.cuda.is_available():
        raise LocalspecError("There is no CUDA device here. Give --device cpu.")
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for target/, draft/ and README.md.")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--first-steps",
    default=FIRST_STEPS,
    show_default=True,
    type=click.IntRange(2),
    help="Of the first layers alone; then half as many, twice.",
)
@click.option("--steps", default=STEPS, show_default=True, type=click.IntRange(1), help="Steps of the target.")
@click.option("--draft-steps", default=DRAFT_STEPS, show_default=True, type=click.IntRange(1))
@click.option("--threads", default=THREADS, show_default=True, type=click.IntRange(1))
@click.option("--device", default="auto", show_default=True, type=click.Choice(("auto", "cpu", "cuda")))
@click.option("--context", default="", help="What else the machine was doing, for the card.")
def main(device: str, threads: int, **given: Any) -> None:  # Any: the options above
    """Train the built-in model and its draft model; go on where the same command was stopped."""
    keep_memory()
    torch.set_num_threads(threads)
    try:
        run(Options(device=device_named(device), threads=threads, **given))
    except (Stopped, KeyboardInterrupt) as stopped:
        click.echo(str(stopped) or "Stopped before the training began.", err=True)
        raise SystemExit(STOPPED) from None
    except LocalspecError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
