"""Speed on a real model: ours with every drafter, beside llama.cpp and transformers on the same file. Prints Markdown.

    .venv/bin/python -m benchmarks.real_model                      SmolLM2, which `make real` fetches
    .venv/bin/python -m benchmarks.real_model ./model.gguf -n 128

A section of docs/measurements.md, in less than ten minutes on a quiet machine. Everybody answers every prompt in turn,
greedily; speed is tokens of the whole answer over its time, prompt included; medians ± median absolute deviation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.models import SMOLLM2
from benchmarks.peers import Llama, transformers
from benchmarks.program import Arguments, run, show
from localspec.bench.measure import Contender, interleave, names, open_targets, ours, report
from localspec.bench.progress import Tell, shares
from localspec.bench.prompts import PROMPTS
from localspec.bench.report import PLAIN, Report
from localspec.core.events import Loading
from localspec.core.requests import LoadRequest
from localspec.core.sanitize import one_line
from localspec.engine.foreign import keep_offline

FORMATS = ("int8", "int4")
DRAFTERS = {PLAIN: "off", "look-up": "lookup", "early exit": "early-exit"}  # that need no second model
TOKENS, REPEATS = 64, 2
NOTE = (
    "llama.cpp has the file's own format, and flash attention or not; transformers makes floats of the file's weights;"
    " each with one thread or all, whichever won a trial."
)


def measure(file: Path, *, max_tokens: int, repeats: int, tell: Tell) -> Report:
    targets, _ = open_targets(LoadRequest(str(file)), FORMATS, tell, compared=True)
    everybody: list[Contender] = [
        ours(opened, name, way, "auto") for opened in targets for name, way in DRAFTERS.items()
    ]
    tell(Loading("trying llama.cpp's attention and threads", 0, 1, "steps"))
    llama = Llama(targets[0], file)
    tell(Loading("trying transformers' threads", 0, 1, "steps"))
    everybody += [llama.fastest, *transformers(targets[0])]
    questions = [prompt.text for prompt in PROMPTS]
    runs = interleave(everybody, max_tokens, repeats, shares(tell, names(everybody)), questions)
    llama.close()
    theirs = [one_line(f"{one.way.name}: {note}") for one in everybody for note in one.notes]
    notes = tuple(dict.fromkeys([*theirs, NOTE]))
    found = report(targets[0], everybody, runs, max_tokens, repeats, notes)
    return replace(found, kinds=tuple(prompt.kind for prompt in PROMPTS))


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("real_model", __doc__)
    parser.add_argument("file", nargs="?", type=Path, help="a GGUF file; default: SmolLM2's")
    parser.add_counts(TOKENS, REPEATS, of="runs of every prompt")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    given = read_arguments(words)
    keep_offline()
    file = given.file or SMOLLM2
    show(lambda tell: measure(file, max_tokens=given.max_tokens, repeats=given.repeats, tell=tell), "md")


if __name__ == "__main__":
    sys.exit(run(main))
