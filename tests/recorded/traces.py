"""Writes traces.json: SmolLM2's own greedy answers to two questions of each kind, as ids. Run by `python -m`.

In int8, decoded plain, on the file that `make real` fetches. The policies' tests copy and draft along them in virtual
time; nothing but ids is kept.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.prompts import KINDS, PROMPTS

from benchmarks.models import SMOLLM2
from localspec import load
from localspec.core.events import Step
from localspec.core.requests import Message
from localspec.runtime.api import LLM

FILE = Path(__file__).with_suffix(".json")
MOST = 256  # tokens of an answer


def record(llm: LLM, question: str) -> dict[str, list[int]]:
    """The prompt's ids in the model's chat template, and the answer's."""
    ids: list[int] = []
    for event in llm.stream([Message("user", question)], temperature=0.0, max_tokens=MOST):
        if isinstance(event, Step):
            ids += [token.id for token in event.tokens]
    return {"prompt": llm._model._session.tokens[: -len(ids)], "answer": ids}


def main() -> None:
    with load(str(SMOLLM2), quant="int8", draft="off") as llm:
        found = {kind: [record(llm, prompt.text) for prompt in PROMPTS if prompt.kind == kind] for kind in KINDS}
    lines = (f"{json.dumps(kind)}: {json.dumps(ids, separators=(',', ':'))}" for kind, ids in found.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
