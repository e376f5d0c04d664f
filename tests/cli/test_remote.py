"""`localspec remote` and `chat --server`: names in models.toml, what is printed, and that only two of them ask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner, Result
from msgspec import to_builtins

from localspec.cli import main
from localspec.cli.remote_chat import named_remote
from localspec.core import paths
from localspec.core.errors import AccessDenied, LocalspecError, UsageError
from localspec.core.events import SpecCard, Stats
from localspec.models.catalog import Catalog
from localspec.models.catalog_file import RemoteTable, ServerKind
from localspec.remote import discovery
from localspec.remote.discovery import look
from localspec.remote.kinds import KINDS
from localspec.serve.metrics import AnswerTotals
from tests.support import recorded_servers as recorded
from tests.support.recorded_servers import models, vllm_metrics
from tests.support.remote_stage import serving
from tests.support.stand_in_server import Answer, stand_in


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main.cli, ["remote", *arguments], catch_exceptions=True)


def test_the_command_alone_prints_its_help():
    alone = run()
    assert (alone.exit_code, alone.output.split()[0]) == (0, "Usage:")


def test_a_server_is_named_listed_and_removed():
    file = paths.models_file()
    file.write_text('schema_version = 1\n\n# mine\n[models.own]\nrepo = "a/b"\n', encoding="utf-8")
    added = run("add", "box", "http://box:8000/v1", "--key-env", "BOX_KEY", "--kind", "vllm")
    assert "localspec chat box" in added.output
    assert Catalog.load().remotes == {"box": RemoteTable("http://box:8000", key_env="BOX_KEY", kind="vllm")}
    assert "http://box:8000" in run("ls").output
    assert json.loads(run("ls", "--json").stdout)[0]["key_env"] == "BOX_KEY"
    assert ", in place of http://box:8000. Try it" in run("add", "box", "http://other:1").output
    assert "in place of" not in run("add", "box", "http://other:1/v1").output
    assert run("rm", "box").exit_code == 0
    assert "# mine" in file.read_text(encoding="utf-8")
    assert Catalog.load().remotes == {}
    assert Catalog.load().models["own"].repo == "a/b"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("rm", "box"), "There is no server 'box'"),
        (("add", "guide", "http://box"), "names both a model and a server"),
        (("add", "box", "http://user:secret@box"), "holds no key"),
        (("add", "box", "ftp://box"), "is not the address of an HTTP server"),
        (("add", "a b", "http://box"), "'a b' cannot be a server's name. Take one of letters"),
        (
            ("add", "box", "http://box", "--key-env", "sk-123"),
            "takes the name of an environment variable, not the key.",
        ),
        (("probe", "box"), "There is no server 'box'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], sentence: str):
    fault = run(*arguments).exception
    assert isinstance(fault, LocalspecError)
    assert sentence in str(fault)
    assert "sk-123" not in str(fault)


def test_a_probe_says_what_it_is_and_what_it_reports():
    routes = serving("vllm", Answer(recorded.VLLM))
    routes["GET /v1/models"] = Answer.json(models("vllm", "Qwen3\x1b[2J-8B", max_model_len=4096))
    with stand_in({**routes, "GET /metrics": Answer.text(vllm_metrics(100, 400, 244, 900))}) as server:
        found = run("probe", server.url)
        assert found.output.splitlines() == [
            f"vLLM at {server.url} · Qwen3\u241b[2J-8B · 4,096 tokens",
            "speculation: on, accepted 61 % of all since its start",
            "per answer: reported if it was started with --per-request-spec-decode-metrics summary.",
        ]
        assert json.loads(run("probe", server.url, "--json").stdout)["kind"] == "vllm"
        assert server.questions == []  # nothing is written to find out


@pytest.mark.parametrize(
    ("spec", "drafted", "words"),
    [
        (SpecCard("early-exit", "early exit 2"), 100, "early exit 2 (auto), accepted 61 % of all since its start"),
        (SpecCard("lookup", "look-up\x1b", k=4, mode="on"), 0, "look-up\u241b (on, k 4)"),
        (SpecCard("model", "small", mode="off"), 0, "off"),
        (None, 0, "not known before its model is loaded"),
    ],
)
def test_a_probe_of_a_localspec_names_its_drafter_and_reads_its_totals(spec: SpecCard | None, drafted: int, words: str):
    totals = AnswerTotals()
    totals.add(Stats(predicted_n=90, draft_rounds=20, draft_n=drafted, draft_n_accepted=61 * drafted // 100))
    page = Answer.text(totals.text(answering=0, waiting=0, starts=1, is_loaded=True, parallel=1))
    own = {} if spec is None else {"localspec": {"spec": to_builtins(spec)}}
    listed = Answer.json(models("localspec", "guide", **own))
    with stand_in({"GET /v1/models": listed, "GET /metrics": page}) as server:
        assert f"speculation: {words}" in run("probe", server.url).output.splitlines()


def test_a_probe_that_is_refused_the_key_ends_with_4():
    with stand_in({"GET /v1/models": Answer.json({}, 401)}) as server:
        fault = run("probe", server.url).exception
    assert isinstance(fault, AccessDenied)
    assert fault.exit_code == 4


def test_find_shows_who_answers_and_who_wants_a_key(monkeypatch: pytest.MonkeyPatch):
    with (
        stand_in({"GET /v1/models": Answer.json(models("vllm", "a"))}) as open_one,
        stand_in({"GET /v1/models": Answer.json({}, 401)}) as closed_one,
        stand_in({"GET /v1/models": Answer.json({"error": "You may not ask."}, 403)}) as deaf_one,
        stand_in({}) as no_server,
    ):
        ports = (open_one.port, closed_one.port, deaf_one.port, no_server.port)
        monkeypatch.setattr(discovery.look, "__defaults__", (ports, discovery.QUICK))
        lines = run("find").output.splitlines()
        assert lines[0] == f"vLLM at {open_one.url} · a"
        assert "wants a key (401)" in lines[1]
        assert "may not ask" in lines[2]
        assert lines[3].startswith("Tried ports 11535")
        assert len(lines) == 4


def test_find_on_a_quiet_machine_says_where_it_looked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(discovery.look, "__defaults__", ((), discovery.QUICK))
    assert look() == []
    assert "No server answers on this machine. Tried ports 11535, 8080, 8000" in run("find").output


def test_the_kinds_of_the_command_line_are_those_that_there_are():
    from localspec.cli import remote

    assert list(KINDS) == remote.KINDS


def test_models_toml_takes_the_kinds_that_there_are():
    assert get_args(ServerKind) == (*KINDS,)


# --- chat


def test_a_server_is_meant_by_flag_name_address_or_kept_chat():
    run("add", "box", "http://box:8000", "--model", "big")
    by_name = named_remote("box", None, None, "")
    assert by_name is not None
    assert (by_name.url, by_name.model, by_name.title) == ("http://box:8000", "big", "box")
    by_flag = named_remote("other", "http://box:9000", "K", "")
    assert by_flag is not None
    assert (by_flag.url, by_flag.model, by_flag.key_env) == ("http://box:9000", "other", "K")
    by_address = named_remote("http://box:9000", None, None, "")
    assert by_address is not None
    assert by_address.title == "http://box:9000"
    by_chat = named_remote(None, None, None, "box")
    assert by_chat is not None
    assert by_chat.title == "box"
    assert named_remote("guide", None, None, "box") is None
    assert named_remote(None, None, None, "") is None


def test_a_key_without_a_server_is_refused():
    with pytest.raises(UsageError, match="is for a server"):
        named_remote("guide", None, "K", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--server", "http://127.0.0.1:1", "--quant", "int8"], "--quant is for models on this machine."),
        (["--server", "http://127.0.0.1:1", "--draft", "lookup"], "--draft is for models on this machine."),
        (["--server", "http://127.0.0.1:1", "--key-env", "NO_SUCH_KEY"], "is not set"),
        (["--server", "nonsense here"], "There is no server"),
        (["--server", "http://127.0.0.1:1"], "The chat needs a terminal."),
    ],
)
def test_chat_with_a_server_checks_what_it_was_given(arguments: list[str], sentence: str):
    fault = CliRunner().invoke(main.cli, ["chat", *arguments]).exception
    assert isinstance(fault, UsageError)
    assert sentence in str(fault)


IMPORTED = """
import sys
import localspec.cli.main, localspec.tui.app, localspec.cli.remote_chat
from localspec.cli.remote_chat import named_remote
assert named_remote("guide", None, None, "") is None
print(*sorted(name for name in sys.modules if name.startswith("localspec.remote") or name == "http.client"))
"""


def test_a_chat_with_a_model_here_imports_nothing_of_it():
    """Check 25."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout.split() == []
