"""`localspec bench` as a program of its own, and what its figures say in a few lines. Knows no widgets and no torch."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence

import msgspec

from localspec.core.errors import EngineError
from localspec.core.events import Loading
from localspec.core.requests import LoadRequest
from localspec.core.sanitize import one_line
from localspec.runtime.bench_table import RowLength, bench_table, conclusion, which_counts
from localspec.tui.panels.stats_line import loading_words

TOKENS, REPEATS = 64, 1  # a look, in the middle of a chat; the command measures longer
TO_TRY = "/why lists what could draft for it, and /draft NAME loads that."
LONGEST_LINE = 1 << 20  # the figures come in one
BAR = 10


class ShownRow(msgspec.Struct, frozen=True):
    """Holds those columns of the bench command's output that the chat shows. None: there was nothing to measure."""

    method: str
    k: RowLength
    quant: str = ""
    tokens_per_second: float | None = None
    speedup: float | None = None
    speedup_spread: float | None = None
    acceptance: float | None = None
    same: str | None = None


class Measured(msgspec.Struct, frozen=True, rename={"to_try": "try"}):
    """The command's JSON. `to_try`: commands for a shell."""

    model: str
    quant: str
    rows: list[ShownRow]
    notes: list[str] = []
    to_try: list[str] = []


def arguments(load: LoadRequest) -> list[str]:
    """The arguments of the bench command for this model as it is loaded."""
    weights = load.weights
    options: dict[str, object] = {
        "--draft": load.draft,
        "--k": load.k,
        "--quant": weights.weight_format,
        "--device": weights.device,
        "--max-memory": weights.max_memory,
        "--ctx": weights.ctx,
        "--threads": weights.threads,
        "--int8-threshold": weights.int8_threshold,
        "-n": TOKENS,
        "-r": REPEATS,
        "-o": "jsonl",
    }
    flags = [word for flag, value in options.items() if value is not None for word in (flag, str(value))]
    flags += ["--draft-quant", weights.draft_format] if weights.draft_format != "auto" else []
    flags += ["--keep-head"] * weights.keep_head + ["--no-folding"] * (not load.folding)
    return ["bench", *flags, "--", load.model]


def command(load: LoadRequest) -> list[str]:
    """-P: nothing in the folder in which the chat was begun is imported."""
    return [sys.executable, "-P", "-m", "localspec", *arguments(load)]


async def measured(command: Sequence[str], tell: Callable[[Loading], object]) -> Measured:
    """Runs to its end and reports progress; a cancel ends it. EngineError with its own message where it refuses."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, limit=LONGEST_LINE
        )
    except OSError as fault:
        raise EngineError(f"The benchmark could not be started ({fault.strerror or type(fault).__name__}).") from fault
    assert process.stdout is not None  # both are pipes
    assert process.stderr is not None
    try:
        figures, complaint = await asyncio.gather(last_line(process.stdout, tell), process.stderr.read())
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = (complaint.decode(errors="replace").strip().splitlines() or ["It printed no error."])[-1]
        raise EngineError(f"The benchmark failed: {one_line(last).removeprefix('error: ')}")
    return read_figures(figures)


def read_figures(line: bytes) -> Measured:
    """Parses the command's JSON, in which a draft length is text."""
    try:
        return msgspec.json.decode(line, type=Measured, strict=False)
    except msgspec.DecodeError as fault:
        raise EngineError(f"The benchmark's figures cannot be read ({fault}).", hint="Try: localspec bench") from fault


async def last_line(lines: asyncio.StreamReader, tell: Callable[[Loading], object]) -> bytes:
    """Waits for the program's last line, the figures; passes the lines before it on."""
    last = b""
    async for line in lines:
        try:
            tell(msgspec.json.decode(line, type=Loading))
        except msgspec.DecodeError:
            last = line
    return last


def progress(event: Loading, ends: str) -> str:
    """One line that a narrow screen may cut: how far the bench is, what `ends` it, what is measured."""
    if event.unit != "percent":
        return f"{loading_words(event)} · {ends}"
    bar = "█" * (event.done * BAR // event.total)
    eta = [f"eta {event.eta_s:.0f} s"] if event.eta_s is not None else []
    return " · ".join([f"measuring {bar:░<{BAR}} {event.done} %", *eta, ends, one_line(event.stage)])


def as_text(found: Measured) -> str:
    title = f"{one_line(found.model)} · {one_line(found.quant)} · greedy · {TOKENS} tokens an answer"
    below = (*found.notes, TO_TRY if found.to_try else "", which_counts(found.rows), conclusion(found.rows))
    return "\n".join([title, bench_table(found.rows), *map(one_line, filter(None, below))])
