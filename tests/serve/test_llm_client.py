"""Simon Willison's `llm`, as its users run it: a process of its own, pointed at us by extra-openai-models.yaml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.served import PATIENCE, Server

pytestmark = pytest.mark.heavy

MODELS = """\
- model_id: ours
  model_name: guide
  api_base: "{address}"
- model_id: ours-text
  model_name: guide
  api_base: "{address}"
  completion: true
- model_id: other
  model_name: gpt-4o
  api_base: "{address}"
"""
QUESTION = "How do I stop an answer?"


def llm(folder: Path, address: str, *words: str) -> subprocess.CompletedProcess[str]:
    return llm_of(MODELS.format(address=address), folder, *words)


def llm_of(models: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program with a folder of its own, in which these models stand as a user writes them."""
    folder.mkdir(exist_ok=True)
    (folder / "extra-openai-models.yaml").write_text(models)
    environment = {"PATH": "/usr/bin:/bin", "LLM_USER_PATH": str(folder), "HOME": str(folder), "LLM_LOAD_PLUGINS": ""}
    command = [sys.executable, "-m", "llm", *words]
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def expected(served: Server) -> str:
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    return str(served.send("POST", "/chat/completions", asked).json["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    ("path", "stream"),
    [
        pytest.param("", (), id="without v1, streamed"),
        pytest.param("/v1", ("--no-stream",), id="with v1, whole", marks=pytest.mark.slow),
        pytest.param("", ("--no-stream",), id="without v1, whole", marks=pytest.mark.slow),
        pytest.param("/v1", (), id="with v1, streamed", marks=pytest.mark.slow),
    ],
)
def test_a_question_is_answered(served, expected, tmp_path, path, stream):
    done = llm(tmp_path, served.address + path, "-m", "ours", "-o", "temperature", "0", *stream, QUESTION)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == expected.strip()


@pytest.mark.slow
def test_a_chat_goes_on_and_text_is_completed(served, tmp_path):
    asked = ("-o", "temperature", "0", "-o", "max_tokens", "9")
    first = llm(tmp_path, served.address, "-m", "ours", *asked, QUESTION)
    second = llm(tmp_path, served.address, "-c", "And then?")
    text = llm(tmp_path, served.address, "-m", "ours-text", *asked, "To stop a model,")
    for done in (first, second, text):
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.strip()


@pytest.mark.slow
def test_what_we_refuse_is_a_sentence_of_ours(served, tmp_path):
    done = llm(tmp_path, served.address, "-m", "other", QUESTION)
    assert done.returncode == 1
    assert "this server has 'guide'" in done.stderr
    assert "Traceback" not in done.stderr
