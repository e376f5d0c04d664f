"""Everything that can be measured here within a budget of time, as a dated section for docs/measurements-archive.md.

python -m benchmarks.survey, or `make measure`. It takes torch, transformers, safetensors and msgspec, and for four
bits bitsandbytes; the CPU engine takes numba. What was not reached is listed as unmeasured, and has no figure.
"""

from __future__ import annotations

import argparse
import gc
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.program import Arguments
from benchmarks.shapes.measure import SEED, Watch, free_memory
from benchmarks.shapes.random_weights import SHAPES, random_tensors
from benchmarks.survey.parts import PARTS, Survey
from localspec.bench.machine import describe_machine
from localspec.core.errors import LocalspecError, first_line
from localspec.core.sanitize import one_line
from localspec.core.whole_file import write_whole
from localspec.engine.transformers_faults import keep_offline

BUDGET = 480  # seconds: with what cannot be stopped in the middle, less than nine minutes
LEAST_SHARE = 0.03  # of the budget: with less left, a part is not begun
DESCRIPTION = "Measure what this machine can show, within a budget of time, as a section for the archive."
USUAL_SHAPES = {"cpu": ("llama-1b", "135m"), "cuda": ("llama2-7b", "llama-1b")}  # and where memory is short
PATIENCE = 1.5  # shares that a part may take before it is stopped: some of every budget is left for the last
BYTES = 12  # of memory to a weight: what all are made from, every format of ours, and transformers'


class OutOfTimeError(Exception):
    """Raised inside a part; its figures are not taken."""


class Clock:
    """A budget of seconds. A part may take its share of what is left, and the last some less: what it has begun by then
    it may end. It is stopped at half as much again: a machine that is too slow for one part may do for the next."""

    def __init__(self, budget: float, now: Callable[[], float] = perf_counter) -> None:
        self.budget, self.now, self.began = budget, now, now()
        self.due = self.end = budget

    @property
    def spent(self) -> float:
        return self.now() - self.began

    def begin(self, share: float) -> None:
        """A part that may take this share of what is left."""
        left = self.budget - self.spent
        if left < LEAST_SHARE * self.budget:
            raise OutOfTimeError
        own = min(share, 1 / PATIENCE) * left
        self.due, self.end = self.spent + own, self.spent + PATIENCE * own

    def late(self) -> bool:
        return self.spent > self.due

    def check(self) -> None:
        if self.spent > self.end:
            raise OutOfTimeError


@dataclass(frozen=True, slots=True)
class Outcome:
    """A part's tables, or why it has none."""

    title: str
    text: str = ""
    unmeasured: str = ""


def conduct(survey: Survey, clock: Clock, say: Callable[[str], None]) -> list[Outcome]:
    """Every part in turn; those of another device are listed."""
    here = [part for part in PARTS if part.device == survey.device]
    found: list[Outcome] = []
    for place, part in enumerate(here):
        say(part.title)
        share = part.weight / sum(one.weight for one in here[place:])
        found.append(attempt(part.title, partial(part.run, survey), clock, share))
    other = "no CUDA device is used here" if survey.device == "cpu" else "this run is of the GPU; --device cpu"
    return [*found, *(Outcome(part.title, unmeasured=other) for part in PARTS if part.device != survey.device)]


def attempt(title: str, run: Callable[[], str], clock: Clock, share: float) -> Outcome:
    """Runs one part; whatever it raises becomes its line in the report, and the others go on."""
    try:
        clock.begin(share)
        return Outcome(title, run())
    except OutOfTimeError:
        return Outcome(title, unmeasured="there was no time left")
    except LocalspecError as fault:
        return Outcome(title, unmeasured=one_line(fault.message))
    except Exception as fault:
        return Outcome(title, unmeasured=one_line(f"{type(fault).__name__}: {first_line(fault)}")[:300])
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def section(survey: Survey, outcomes: Sequence[Outcome], command: str, spent: float) -> str:
    """A section as docs/measurements-archive.md has them."""
    machine = describe_machine(survey.threads, survey.device)
    localspec, threads = machine.pop("localspec"), machine.pop("threads")
    found = installed()
    versions = ", ".join(f"{name} {value}" for name, value in {**machine, **found}.items() if name != "processor")
    head = f"## {datetime.now(UTC):%Y-%m-%d} · {survey.shape} on {machine['processor']}, measured by `make measure`"
    about = (
        f"{machine['processor']}, {threads} threads used; {versions}. `{command}`, localspec {localspec}: random"
        f" weights, seed {SEED}, one process, taking turns, medians ± median absolute deviation; {spent:.0f} s in all."
    )
    parts = [f"### {one.title}\n\n{one.text}" for one in outcomes if not one.unmeasured]
    missing = [f"- {one.title}: {one.unmeasured}." for one in outcomes if one.unmeasured]
    unmeasured = ["\n".join(["### Unmeasured", "", *missing])] if missing else []
    return "\n\n".join([head, about, *parts, *unmeasured]) + "\n"


def installed() -> dict[str, str]:
    """bitsandbytes, which may be missing."""
    try:
        return {"bitsandbytes": version("bitsandbytes")}
    except PackageNotFoundError:
        return {}


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Arguments("survey", DESCRIPTION)
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto takes a GPU if there is one"
    )
    parser.add_argument(
        "--shape", choices=tuple(SHAPES), help="default: llama2-7b on a GPU, else llama-1b; or what fits"
    )
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS", help="for everything")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="torch's")
    parser.add_argument("--out", type=Path, metavar="FILE", help="instead of stdout; it is replaced")
    return parser.parse_args(words)


def usual_shape(device: str) -> str:
    """The larger one that every format fits into memory of at once; where memory is unknown, the smaller one."""
    large, small = USUAL_SHAPES[device]
    try:
        return large if free_memory(device) >= BYTES * SHAPES[large].num_weights else small
    except ImportError:
        return small


def main(words: Sequence[str]) -> int:
    keep_offline()
    given = read_arguments(words)
    device = ("cuda" if torch.cuda.is_available() else "cpu") if given.device == "auto" else given.device
    clock = Clock(given.budget)

    def say(what: str) -> None:
        print(f"{clock.spent:4.0f} s  {what}", file=sys.stderr, flush=True)

    def made(what: str) -> None:
        say(f"  {what}")
        clock.check()

    shape = given.shape or usual_shape(device)
    say(f"random weights of {shape}")
    source = random_tensors(SHAPES[shape], SEED, device)
    survey = Survey(shape, device, given.threads, source, Watch(lambda _share: clock.check(), made, clock.late))
    outcomes = conduct(survey, clock, say)
    command = shlex.join(["python", "-m", "benchmarks.survey", *words])
    text = section(survey, outcomes, command, clock.spent)
    if given.out:
        write_whole(given.out, text.encode())
    else:
        sys.stdout.write(text)
    return 0 if any(not one.unmeasured for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
