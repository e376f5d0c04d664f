"""What docs/serve.md and the server's own first lines tell people to type, typed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.serve.test_llm_client import llm_of
from tests.support.served import PATIENCE, Server

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
PAGE, README = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/serve.md", "README.md"))


def block(title: str, language: str, server: Server) -> str:
    """The page's lines for this client, with the address of this server."""
    found = re.search(rf"\*\*{title}\*\*.*?```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found, title
    assert ":11535" in found[1]
    return found[1].replace("127.0.0.1:11535", f"127.0.0.1:{server.port}")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_command_that_the_server_prints_asks_it(served: Server):
    command = served.printed.splitlines()[1]
    assert command.startswith(f"curl {served.address}/v1/chat/completions ")
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=PATIENCE, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_readmes_lines_start_a_server_and_ask_it(served: Server):
    started_by, asks = re.findall(r"^\$ (localspec serve .*|curl .*)$", README, re.MULTILINE)
    assert isinstance(served.process.args, list)
    assert served.process.args[2:5] == shlex.split(started_by, comments=True)  # it has a port of its own besides
    assert "localhost:11535/" in asks
    command = asks.replace(":11535", f":{served.port}")
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=PATIENCE, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_the_pages_python_prints_an_answer(served: Server, capsys: pytest.CaptureFixture[str]):
    names: dict[str, object] = {}
    exec(block("Python", "python", served), names)
    client = names["client"]
    client.close()  # type: ignore[attr-defined]
    assert len(capsys.readouterr().out) > 20


@pytest.mark.slow
def test_the_pages_lines_for_llm_make_a_model_of_it(served: Server, tmp_path: Path):
    done = llm_of(block("llm", "yaml", served), tmp_path, "-m", "localspec", "-o", "max_tokens", "9", "Hello")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
