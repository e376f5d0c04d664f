"""SmolLM2's own greedy answers, as ids: two of each kind of prompt; and a file that is written again, edited."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("answers.json")
REWRITE = "file, three edits"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One prompt's ids, in the model's chat template, and its answer's."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


@cache
def recorded() -> dict[str, tuple[Recorded, ...]]:
    """All of them by kind."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        kind: tuple(Recorded(tuple(each["prompt"]), tuple(each["answer"])) for each in answers)
        for kind, answers in found.items()
    }
