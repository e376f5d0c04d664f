"""Requests of programs that are too large to install beside us, sent as they send them.

Each file in recorded/ says in `from` whether it was recorded or written from the program's source; the checks here are
what the program reads of the answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.served import Server, events

pytestmark = pytest.mark.heavy

RECORDED = Path(__file__).parent / "recorded"
FILES = sorted(RECORDED.glob("*.json"))


def requests(file: Path) -> list[dict[str, Any]]:
    found = json.loads(file.read_text())
    assert found["from"]
    return list(found["requests"])


REQUESTS = [
    pytest.param(request, id=f"{file.stem} {number}") for file in FILES for number, request in enumerate(requests(file))
]


def chunks_of(served: Server, request: dict[str, Any]) -> list[Any]:
    with served.opened(request["method"], request["path"], request["body"], request["headers"]) as response:
        assert response.status == 200
        assert (response.getheader("Content-Type") or "").startswith("text/event-stream")
        return list(events(response))


def check_models(found: Any) -> None:
    """Open WebUI's get_all_models: `data`, and of each `id`; `name` may be absent, and must not be null."""
    (model,) = found["data"]
    assert model["id"] == "guide"
    assert model.get("name", "guide") is not None


def check_whole(found: Any) -> None:
    """litellm, which aider asks through, makes a ModelResponse of it; Open WebUI reads choices[0].message.content."""
    assert found["choices"][0]["message"]["content"]
    assert found["choices"][0]["finish_reason"] in ("stop", "length")
    assert found["usage"]["prompt_tokens"] > 0
    assert found["usage"]["completion_tokens"] > 0


def check_stream(chunks: list[Any], *, with_usage: bool) -> None:
    *chunks, last = chunks
    assert last == "[DONE]"
    assert not any("error" in chunk for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]][-1] in ("stop", "length")
    assert ("usage" in chunks[-1]) == with_usage
    assert chunks[-1]["timings"]["predicted_n"] > 0  # Open WebUI shows it beside the usage


def test_there_is_a_file_of_each_program():
    assert [file.stem for file in FILES] == ["aider", "open-webui"]


@pytest.mark.parametrize("request_", REQUESTS)
def test_the_answer_has_what_the_program_reads(served, request_):
    body = request_["body"]
    if body is not None and body.get("stream"):
        check_stream(chunks_of(served, request_), with_usage="stream_options" in body)
        return
    response = served.send(request_["method"], request_["path"], body, request_["headers"])
    assert response.status == 200, response.content
    (check_models if body is None else check_whole)(response.json)
