"""`run` for comparison with the screen: the same model in this process, its text to the same kind of terminal.

python -m benchmarks.ui.run_program SHAPE FORMAT TOKENS FD: a line on stdin asks, a line of JSON to FD reports
the answer.
"""

from __future__ import annotations

import json
import os
import sys
from time import process_time
from typing import Any  # Any: JSON

from benchmarks.ui.forced_model import QUESTION, open_forced
from localspec.cli.run import Output, show
from localspec.core.drain import drain
from localspec.core.requests import GenerateRequest, LoadRequest, Message, WeightOptions
from localspec.runtime.api import LLM


def main(shape: str, kind: str, tokens: str, fd: str) -> None:
    def report(**figures: Any) -> None:
        os.write(int(fd), f"{json.dumps(figures)}\n".encode())

    with LLM(drain(open_forced(LoadRequest(shape, weights=WeightOptions(kind, ctx=int(tokens)))))) as llm:
        report(ready=True)
        for _ in sys.stdin:
            before = process_time()
            result = show(llm.answer(GenerateRequest(messages=(Message("user", QUESTION),))), Output())
            stats, cpu = result.stats, process_time() - before
            engine_seconds = (stats.prompt_ms + stats.predicted_ms) / 1000
            report(tokens=stats.predicted_n, cpu_seconds=cpu, engine_seconds=engine_seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
