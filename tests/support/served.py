"""`localspec serve` as users start it, a process on a free port of 127.0.0.1 with its engine in another, and what tests
ask of it. Every wait ends with what it waits for; its bound is never asserted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil

PATIENCE = 120.0  # what hangs fails
TICK = 0.02
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
FOLDERS = ("LOCALSPEC_DATA_DIR", "LOCALSPEC_CONFIG_DIR", "HF_HUB_CACHE")
TRAP = "localspec localspec localspec"  # guide goes on with it until the context is full
SAMPLE = re.compile(r"^(?P<name>[a-z_]+:[a-z_]+(?:\{[^}]*\})?) (?P<value>\S+)$", re.MULTILINE)

Object = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def error(self) -> Object:
        """In OpenAI's shape, or the test fails."""
        (name, error), *others = self.json.items()
        assert name == "error"
        assert others == []
        assert {"message", "type", "param", "code"} <= set(error)
        assert error["message"]
        return dict(error)


@dataclass(frozen=True, slots=True)
class Server:
    """`state`: where it keeps what it has checked and measured, its log and its line for `ps`; `folder`: all else."""

    process: subprocess.Popen[bytes]
    port: int
    state: Path
    folder: Path
    output: Path

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def printed(self) -> str:
        return self.output.read_text()

    # --- one request

    @contextmanager
    def opened(
        self, method: str, path: str, body: Object | bytes | None = None, headers: dict[str, str] | None = None
    ) -> Iterator[HTTPResponse]:
        """The answer as it begins; whoever leaves before its end is a client that is gone. Headers in lower case."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if body is None else {"content-type": "application/json"}
        line = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            line.request(method, path, content, {**kind, **(headers or {})})
            with line.getresponse() as response:
                yield response
        finally:
            line.close()

    def send(
        self, method: str, path: str, body: Object | bytes | None = None, headers: dict[str, str] | None = None
    ) -> Response:
        with self.opened(method, path, body, headers) as response:
            found = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, found, response.read())

    def get(self, path: str) -> Response:
        return self.send("GET", path)

    def complete(self, prompt: str, **fields: Any) -> Object:
        response = self.send("POST", "/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
        assert response.status == 200, response.content
        return dict(response.json)

    # --- how it is

    def metrics(self) -> dict[str, float]:
        text = self.get("/metrics").content.decode()
        return {found["name"]: float(found["value"]) for found in SAMPLE.finditer(text)}

    @property
    def queue(self) -> tuple[int, int]:
        """How many are answered, and how many wait."""
        found = self.metrics()
        return int(found["llamacpp:requests_processing"]), int(found["llamacpp:requests_deferred"])

    def predicted(self) -> int:
        return int(self.metrics()["llamacpp:tokens_predicted_total"])

    def ended(self, reason: str) -> int:
        return int(self.metrics().get(f'localspec:answers_total{{finish_reason="{reason}"}}', 0))

    def wait_until_ready(self) -> None:
        until(lambda: self.get("/health").status == 200, f"{self.address} has loaded its model")

    def wait_until_idle(self) -> None:
        until(lambda: self.queue == (0, 0), f"{self.address} answers no one")

    # --- its engine

    @property
    def engine(self) -> psutil.Process:
        (found,) = [
            child
            for child in psutil.Process(self.process.pid).children()
            if "--multiprocessing-fork" in child.cmdline()
        ]
        return found

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The engine does nothing until the end of the block."""
        engine = self.engine
        engine.suspend()
        until(lambda: engine.status() == psutil.STATUS_STOPPED, "the engine stands still")
        try:
            yield
        finally:
            engine.resume()

    @contextmanager
    def crowd(self, count: int) -> Iterator[None]:
        """This many requests, which are there until the end of the block."""
        asked = {"prompt": TRAP, "stream": True}
        content = json.dumps(asked).encode()
        with ExitStack() as lines:
            for _ in range(count):
                line = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
                lines.callback(line.close)
                line.request("POST", "/v1/completions", content, {"content-type": "application/json"})
            until(lambda: sum(self.queue) == count, f"{count} requests are there")
            yield


def until(is_so: Callable[[], bool], what: str) -> None:
    end = monotonic() + PATIENCE
    while not is_so():
        assert monotonic() < end, f"It never came to this: {what}."
        sleep(TICK)


def environment(state: Path, folder: Path) -> dict[str, str]:
    """Of a process whose files are all in these two."""
    kept = {name: value for name, value in os.environ.items() if name != "LOCALSPEC_API_KEY"}
    return {**kept, **{name: str(folder / name.lower()) for name in FOLDERS}, "LOCALSPEC_STATE_DIR": str(state)}


@contextmanager
def started(state: Path, folder: Path, *words: str, model: str = "guide") -> Iterator[Server]:
    """A server that is loading; it is ended with the block, if it has not ended itself."""
    command = [sys.executable, "-m", "localspec", "serve", model, "--port", "0", "--threads", "1", *words]
    own = environment(state, folder)
    output = folder / f"{len(list(folder.glob('*.output')))}.output"
    with open(output, "wb") as opened:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=opened, stderr=opened, env=own)
    try:
        yield Server(process, port_of(process, output), state, folder, output)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


def port_of(process: subprocess.Popen[bytes], output: Path) -> int:
    until(lambda: ADDRESS.search(output.read_text()) is not None or process.poll() is not None, "it says where it is")
    found = ADDRESS.search(output.read_text())
    assert found, output.read_text()
    return int(found[1])


def events(response: HTTPResponse) -> Iterator[Any]:
    """The objects of a stream, to its end; [DONE] as that word."""
    for line in response:
        if line.startswith(b"data: "):
            content = line[len(b"data: ") :].strip()
            yield "[DONE]" if content == b"[DONE]" else json.loads(content)
