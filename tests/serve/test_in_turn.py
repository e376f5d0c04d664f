"""One engine for several programs at once: curls that stream, each in its turn and whole."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.served import PATIENCE, Object, Server, until

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

QUESTIONS = "How do I stop an answer?", "What is speculative decoding?"


def body(question: str) -> Object:
    messages = [{"role": "user", "content": question}]
    return {"model": "guide", "messages": messages, "temperature": 0, "max_tokens": 40}


def curl(server: Server, question: str) -> subprocess.Popen[bytes]:
    """As in a terminal; -N: it prints what comes as it comes."""
    asked = json.dumps({**body(question), "stream": True})
    address = f"{server.address}/v1/chat/completions"
    command = ["curl", "-sN", address, "-H", "Content-Type: application/json", "-d", asked]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def text_of(printed: bytes) -> str:
    """Of a stream that came to its end."""
    *lines, last = [line[6:] for line in printed.splitlines() if line.startswith(b"data: ")]
    assert last == b"[DONE]"
    chunks: list[Any] = [json.loads(line) for line in lines]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def test_two_curls_are_answered_in_turn_as_if_each_were_alone(served: Server):
    alone = [served.send("POST", "/v1/chat/completions", body(question)).json for question in QUESTIONS]
    with ExitStack() as ends:
        with served.frozen():  # so that both are there before one is answered
            curls = []
            for count, question in enumerate(QUESTIONS, 1):
                curls.append(ends.enter_context(curl(served, question)))
                until(lambda count=count: sum(served.queue) == count, "it is in the queue")  # type: ignore[misc]
        printed = [one.communicate(timeout=PATIENCE)[0] for one in curls]
    assert [text_of(one) for one in printed] == [one["choices"][0]["message"]["content"] for one in alone]
    assert b": queued 1" not in printed[0]
    assert b": queued 1" in printed[1]


def test_many_at_once_are_answered_or_asked_to_come_back(served: Server):
    """Twelve curls, not held back: what is answered is whole, and what is not was refused before it began."""
    curls = [curl(served, QUESTIONS[count % 2]) for count in range(12)]
    printed = [one.communicate(timeout=PATIENCE)[0] for one in curls]
    refused = [one for one in printed if one.startswith(b"{")]
    answered = [text_of(one) for one in printed if not one.startswith(b"{")]
    assert all(json.loads(one)["error"]["code"] == "queue_full" for one in refused)
    assert len(answered) >= 5
    assert len(set(answered)) == 2
