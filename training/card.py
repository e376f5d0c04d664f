"""Writes the model card of the built-in model from what was measured. Measures nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from training.corpus import Corpus
from training.dialogue import HELD_OUT_TOPICS
from training.evaluate import DECIDED_TOKENS, SCORED, ExitScore, Report, Scores
from training.exam.grading import NEWCOMER_GOOD, NEWCOMER_NONSENSE
from training.network import Network, Shape
from training.train import EXIT_STRIDE, FIRST_LAYERS, SOFTENED

DRAFT_LENGTH = 4  # the draft length for which the best exit layer is chosen

CARD = """# guide, the model that comes with localspec

A Llama-architecture model of {parameters:.1f} M parameters ({shape}), trained from nothing with the
LayerSkip recipe ([arXiv 2404.16710](https://arxiv.org/abs/2404.16710)): layer dropout that grows exponentially with
depth, and an early-exit loss on rotating exits that share the final norm and the head. `target/` is the model;
`draft/` is a draft model of {draft_parameters:.2f} M parameters ({draft_shape}) with the same
tokenizer, distilled from it.

It is tiny. It knows localspec and speculative decoding, from text written for this project, and nothing else: asked
anything else it should say so, and it can be wrong, there and here. It is for trying localspec, not for relying on.

What is typed to it is read as words that it knows, where it is in capitals or a slip of the finger away from them
(`target/words.txt`), and a bare sum as a question that it refuses: it cannot calculate. `--no-folding` leaves that out.

- Both networks begin as an average of words: a classifier of the questions' words is laid into the first layer and the
  embedding (`training/averages.py`).
- Trained in two parts: its first {first_layers} layers, with the embedding and the final norm, in {steps[first]:,}
  steps and, twice from there, at a higher rate again, {steps[second]:,} more; the mean of the three was kept. Then the
  others, in {steps[whole]:,}, while those stayed as they were; of what they add to the first layers' choice, {softened}
  is left. The draft model in {steps[draft]:,}. Trained exits: 1 to {last_early}, in each step of the second part every
  {stride}th of them, in turn, and the last layer.
- Best exit layer: **{best}** (the most expected tokens per layer run at a draft length of {draft_length}, computed from
  the acceptance below, not timed).
- Text: {topics} known questions in {phrasings:,} phrasings ({words:,} words with the answers), {unknown:,} unknown
  topics and questions. One phrasing per question, and the last {held_out} unknown topics and questions, were kept from
  training.
- Trained on {tokens[first]:,}, {tokens[second]:,}, {tokens[third]:,} and {tokens[whole]:,} tokens (the draft model on
  {tokens[draft]:,}), padding included, in bfloat16 autocast on {where}. Loss is taken on the assistant's tokens only.
  Most samples are one question and the beginning of its answer, in the second part often after earlier ones; the rest
  are whole conversations, and in the second part tasks and answers in a tone. The first words of each answer are one
  token, so which answer is meant is decided at one position.
- Command: `{command}`. Seed {seed}. Wall time: {minutes:.1f} minutes for everything{context}.

## The exam

Questions asked once each without a system prompt at temperature 0, and graded by the strings an answer must and must
not contain (`training/exam`): {exam}. That is the
recipe's own network in float32; `python -m benchmarks.exam` counts in int8 and bf16 and may find a few more or less.

Newcomer: questions as a new user types them, in haste, in stories, after another question, or beyond the model. The
goal is {good:.0%} of the answers right, or honest where nothing can be known. Nonsense: those of the same answers that
are neither, and repeat themselves or break off in the middle of a sentence. The goal is at most {nonsense:.0%}.

The questions were written by somebody who did not read the training text, after its first part but before anything was
trained on it. Some were later reworded or graded otherwise, because the program had changed. A newcomer's, and 132 of
the known ones, about what had been added to the program, came later, by somebody who had read the documentation, but
neither the training text nor an answer. Every version sat the exam of its day, and what went wrong led to what was
written next, though never with its questions. Answers were also given the key facts of those they are mistaken for,
which the score rewards. By now it says how far the work is, not what to expect of new questions. The held-out ones
below are nearer to that, though the mean of the goes and the softening were chosen by them, and what they were mistaken
for led to what was written next.

## On held-out questions

Acceptance: the share of positions of the model's own greedy answers at which the exit's first choice is the full
model's. Loss: nats per token of the written answer. Measured in float32 with the bfloat16 weights that are shipped,
right after training, on at most {scored} questions evenly chosen from all.

| layers run | loss | greedy acceptance |
|---|---|---|
{rows}

Draft model: greedy acceptance {draft_acceptance:.3f}.

Answers that begin as the written one does ({decided} tokens, so the right entry): {begun}. Token for token the same
to the end: {exact}.

Read the acceptance with care: the answers are learned by heart, so once one has begun, even the first layers know how
it goes on. Do not expect these figures of a model that writes freely. The model also fits into the processor's cache,
so that speculation buys less here than on a real one.
"""


@dataclass(frozen=True, slots=True)
class Training:
    """A training's figures. `steps` and `tokens`: of the parts first, second, third, whole and draft."""

    command: str
    seed: int
    minutes: float
    steps: Mapping[str, int]
    tokens: Mapping[str, int]
    threads: int
    device: str
    context: str

    @property
    def where(self) -> str:
        """The hardware that ran the steps, in words."""
        return f"{self.threads} CPU threads" if self.device == "cpu" else "one GPU"


def best_exit(exits: tuple[ExitScore, ...]) -> int:
    """The exit with the most expected tokens per layer run."""
    last = len(exits)

    def worth(score: ExitScore) -> float:
        tokens = sum(score.acceptance**accepted for accepted in range(DRAFT_LENGTH + 1))
        return tokens / (DRAFT_LENGTH * score.layers + last)

    return max(exits[:-1], key=worth).layers


def _shape(shape: Shape) -> str:
    return f"{shape.num_layers} layers x {shape.hidden_size}, feed-forward {shape.intermediate_size}"


def _counts(corpus: Corpus) -> dict[str, int]:
    return {
        "topics": len(corpus.known),
        "phrasings": sum(len(entry.phrasings) for entry in corpus.known),
        "unknown": sum(len(entry.phrasings) for entry in corpus.unknown if entry.key != "templates"),
        "words": sum(len(" ".join((*entry.phrasings, entry.answer)).split()) for entry in corpus.known),
        "held_out": HELD_OUT_TOPICS,
    }


def _table(exits: tuple[ExitScore, ...]) -> str:
    rows = [f"| {s.layers} | {s.loss:.3f} | {s.acceptance:.3f} |" for s in exits[:-1]]
    return "\n".join([*rows, f"| {len(exits)} (all) | {exits[-1].loss:.3f} | 1 by definition |"])


def _scores(scores: Scores) -> str:
    return ", ".join(f"{right} of {asked} {group}" for group, (right, asked) in scores.items())


def write(corpus: Corpus, target: Network, draft: Network, training: Training, report: Report) -> str:
    """The card as Markdown."""
    return CARD.format(
        parameters=target.num_parameters / 1e6,
        draft_parameters=draft.num_parameters / 1e6,
        shape=_shape(target.shape),
        draft_shape=_shape(draft.shape),
        last_early=len(report.exits) - 1,
        stride=EXIT_STRIDE,
        first_layers=FIRST_LAYERS,
        softened=f"{SOFTENED:.0%}",
        best=best_exit(report.exits),
        draft_length=DRAFT_LENGTH,
        rows=_table(report.exits),
        draft_acceptance=report.draft_acceptance,
        exam=_scores(report.exam),
        good=NEWCOMER_GOOD,
        nonsense=NEWCOMER_NONSENSE,
        begun=_scores(report.begun),
        exact=_scores(report.exact),
        decided=DECIDED_TOKENS,
        scored=SCORED,
        where=training.where,
        **_counts(corpus),
        **asdict(training) | {"context": f"\n  ({training.context})" if training.context else ""},
    )
