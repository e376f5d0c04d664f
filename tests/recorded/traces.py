"""Writes traces.json: SmolLM2's own greedy answers to one question of each kind, as ids: `python -m tests.recorded.traces`.

In int8, decoded plain, on the file that `make real` fetches. The policies' tests copy and draft along them in virtual
time; nothing but ids is kept.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.models import SMOLLM2
from benchmarks.prompts import KINDS, PROMPTS
from localspec import load
from localspec.core.events import Step

FILE = Path(__file__).with_suffix(".json")
MOST = 256  # tokens of an answer


def record() -> dict[str, dict[str, list[int]]]:
    """Of every kind the first question that is answered with 64 tokens or more, and that answer."""
    found: dict[str, dict[str, list[int]]] = {}
    with load(str(SMOLLM2), quant="int8", draft="off") as llm:
        for prompt in PROMPTS:
            ids: list[int] = []
            for event in llm.stream(prompt.text, temperature=0.0, max_tokens=MOST):
                if isinstance(event, Step):
                    ids += [token.id for token in event.tokens]
            if len(ids) > len(found.get(prompt.kind, {"answer": []})["answer"]):
                found[prompt.kind] = {"prompt": llm._model._session.tokens[: -len(ids)], "answer": ids}
    return {kind: found[kind] for kind in KINDS}


def main() -> None:
    lines = (f"{json.dumps(kind)}: {json.dumps(ids, separators=(',', ':'))}" for kind, ids in record().items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
