"""The exam of the built-in model: what it gets right, plain and with every drafter, which must not change the scores.

    python -m benchmarks.exam
    python -m benchmarks.exam --format int8 --wrong

Prints a table and then fails where speculation has changed what it must not change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.exam.measure import FORMATS, measure_exam
from benchmarks.exam.report import ExamReport
from benchmarks.program import Arguments, run, show
from localspec.bench.formats import read_formats
from localspec.bench.progress import Tell
from localspec.core.errors import EngineError
from localspec.core.requests import LoadRequest
from localspec.runtime.draft_choice import check_threads


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("exam", __doc__)
    parser.add_argument("model", nargs="?", default="guide", help="who sits the exam: a key, a folder or a file")
    parser.add_argument("--draft", default="auto", help="auto compares all that are known for the model")
    parser.add_argument("--format", default=",".join(FORMATS), metavar="FORMATS", help="weight formats")
    parser.add_argument("--device", default="auto", help="as in localspec bench")
    parser.add_threads()
    parser.add_tokens(None)
    parser.add_argument("--wrong", action="store_true", help="show the wrong answers below the table")
    parser.add_output()
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    check_threads(given.threads)
    request = LoadRequest.of(given.model, draft=given.draft, device=given.device, threads=given.threads)
    formats = read_formats(given.format)

    def measure(tell: Tell) -> ExamReport:
        return measure_exam(request, formats=formats, max_tokens=given.max_tokens, list_wrong=given.wrong, tell=tell)

    report = show(measure, given.output)
    if report.losses:
        raise EngineError(" ".join(report.losses))


if __name__ == "__main__":
    sys.exit(run(main))
