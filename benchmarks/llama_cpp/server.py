"""llama.cpp's own server, plain and with each of its look-ups (`--spec-type ngram-…`), as contenders of bench.measure.

Their lengths are the server's defaults. It gets the prompt's ids, keeps no prompt from the answer before, and times
itself, so that HTTP costs it nothing.
"""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any  # Any: JSON
from urllib.request import Request, urlopen

from benchmarks.server import PATIENCE, served
from localspec.bench.report import PLAIN, TimedRun, Way
from localspec.core import processor
from localspec.core.requests import Message
from localspec.runtime.open_target import OpenTarget

ENGINE = "llama-server"
NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")


class LlamaServer:
    """One of its kinds of speculative decoding, or none."""

    failed, fault = False, ""

    def __init__(self, opened: OpenTarget, url: str, kind: str, name: str) -> None:
        self.opened, self.url = opened, url
        threads = processor.physical_cores()
        self.way = Way(f"{ENGINE} {name}", "its own", opened.snapshot.stored_as, kind, ENGINE, threads)
        self.notes: list[str] = []

    def answer(self, question: str, max_tokens: int) -> TimedRun:
        prompt = self.opened.prompter.chat([Message("user", question)])
        body = {"prompt": list(prompt), "n_predict": max_tokens, "temperature": 0, "cache_prompt": False}
        found = self._post({**body, "return_tokens": True})
        seconds = (found["timings"]["prompt_ms"] + found["timings"]["predicted_ms"]) / 1000
        return TimedRun(tuple(found["tokens"]), seconds)

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        request = Request(f"{self.url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=PATIENCE) as got:
            found: dict[str, Any] = json.load(got)
        return found


def servers(opened: OpenTarget, file: Path, program: Path, kind: str, closing: ExitStack) -> list[LlamaServer]:
    """A server for plain decoding and one for each look-up, all on this file; `closing` ends them."""
    found = []
    for name in (PLAIN, *NGRAMS):
        port = free_port()
        command = [str(program), "-m", str(file), "--port", str(port), "-np", "1", "-c", str(opened.plan.context)]
        command += ["-t", str(processor.physical_cores()), *(() if name == PLAIN else ("--spec-type", name))]
        url = f"http://127.0.0.1:{port}"
        closing.enter_context(served(command, url))
        found.append(LlamaServer(opened, url, PLAIN if name == PLAIN else kind, name))
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
