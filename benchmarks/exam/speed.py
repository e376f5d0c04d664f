"""How fast a model answers what its exam asks, with every drafter: `localspec bench` on the exam's known questions.

python -m benchmarks.exam.speed guide --format int8,fp32 --against transformers -n 16 -r 1
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.program import Arguments, run, show
from localspec.bench.formats import read_formats
from localspec.bench.measure import measure
from localspec.bench.prompts import GUIDE, BenchPrompt
from localspec.core.requests import LoadRequest
from localspec.runtime.draft_choice import check_threads
from training.exam import questions

TOKENS, REPEATS = 64, 3


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("exam.speed", __doc__)
    parser.add_argument("model", nargs="?", default="guide", help="a key, a folder or a file")
    parser.add_argument("--draft", default="auto", help="auto compares all that are known for the model")
    parser.add_argument("--format", metavar="FORMATS", help="weight formats; default: what localspec chooses")
    parser.add_argument("--against", choices=("transformers",), help="also measure its generate")
    parser.add_argument("--device", default="auto", help="as in localspec bench")
    parser.add_threads()
    parser.add_counts(TOKENS, REPEATS, of="runs of every question")
    parser.add_output()
    return parser.parse_args(words)


def exam_prompts() -> tuple[BenchPrompt, ...]:
    """Every phrasing of what the model must know."""
    return tuple(BenchPrompt(GUIDE, text) for question in questions.load().known for text in question.phrasings)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    check_threads(given.threads)
    request = LoadRequest.of(given.model, draft=given.draft, device=given.device, threads=given.threads)
    formats, prompts = read_formats(given.format), exam_prompts()
    counts = {"max_tokens": given.max_tokens, "repeats": given.repeats}
    show(
        lambda tell: measure(request, formats=formats, prompts=prompts, against=given.against, tell=tell, **counts),
        given.output,
    )


if __name__ == "__main__":
    sys.exit(run(main))
