"""`run` as the screen's rival: the same model in this process, its text to the same kind of terminal.

python -m localspec.cli.speaker SHAPE FORMAT TOKENS FD: a line on stdin asks, a line to FD tells that it was answered.
"""

from __future__ import annotations

import json
import os
import sys
from time import process_time
from typing import Any  # Any: JSON

from localspec.bench.forced import QUESTION, open_forced
from localspec.cli.run import Output, show
from localspec.core.drain import drain
from localspec.core.requests import GenerateRequest, LoadRequest, Message, WeightOptions
from localspec.runtime.api import LLM


def main(shape: str, kind: str, tokens: str, fd: str) -> None:
    def tell(**told: Any) -> None:
        os.write(int(fd), f"{json.dumps(told)}\n".encode())

    with LLM(drain(open_forced(LoadRequest(shape, weights=WeightOptions(kind, ctx=int(tokens)))))) as llm:
        tell(ready=True)
        for _ in sys.stdin:
            before = process_time()
            result = show(llm.answer(GenerateRequest(messages=(Message("user", QUESTION),))), Output())
            stats, cpu = result.stats, process_time() - before
            engine_seconds = (stats.prompt_ms + stats.predicted_ms) / 1000
            tell(tokens=stats.predicted_n, cpu_seconds=cpu, engine_seconds=engine_seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
