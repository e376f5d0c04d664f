"""Writes answers.json: SmolLM2's own greedy answers to two questions of each kind, as ids. Run by `python -m`.

In int8, decoded plain, on the file that `make real` fetches; and a file of this project with three edits, which no
model so small would write without an error. Nothing but ids is kept.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.models import SMOLLM2
from benchmarks.recorded import FILE, REWRITE
from localspec import load
from localspec.bench.prompts import KINDS, PROMPTS
from localspec.core.events import Step
from localspec.core.requests import Message
from localspec.runtime.api import LLM

MOST = 256  # tokens of an answer
SOURCE = Path(__file__).parents[2] / "localspec" / "bench" / "tables.py"
EDITS = (
    ("out = io.StringIO()", "buffer = io.StringIO()"),
    ("def plus_minus(value", "def with_deviation(value"),
    ("{share:.0%}", "{share:.1%}"),
)
ASKED = "Rename plus_minus, show tenths of a percent, and call the buffer by its name. Write the whole file again.\n\n"


def edited(text: str) -> str:
    for old, new in EDITS:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def record(llm: LLM, question: str) -> dict[str, list[int]]:
    """The prompt's ids in the model's chat template, and the answer's."""
    ids: list[int] = []
    for event in llm.stream([Message("user", question)], temperature=0.0, max_tokens=MOST):
        if isinstance(event, Step):
            ids += [token.id for token in event.tokens]
    return {"prompt": llm._model.state.session.tokens[: -len(ids)], "answer": ids}


def rewrite(llm: LLM) -> dict[str, list[int]]:
    """A question with a file, and the file with three edits, in the model's tokens."""
    text = SOURCE.read_text(encoding="utf-8")
    tokenizer = llm._model.state.parts.prompter.tokenizer
    return {"prompt": record(llm, f"{ASKED}{text}")["prompt"], "answer": tokenizer.encode(edited(text)).ids}


def main() -> None:
    with load(str(SMOLLM2), quant="int8", draft="off") as llm:
        found: dict[str, list[dict[str, list[int]]]] = {REWRITE: [rewrite(llm)]}
        for kind in KINDS:
            found[kind] = [record(llm, prompt.text) for prompt in PROMPTS if prompt.kind == kind]
    lines = (f"{json.dumps(kind)}: {json.dumps(ids, separators=(',', ':'))}" for kind, ids in found.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
