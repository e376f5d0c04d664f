"""The commands serve, ps and stop: what is refused before anything is loaded, and what is printed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from time import time
from typing import Any

import pytest
from msgspec.structs import replace

from localspec.cli import server
from localspec.core import paths
from localspec.core.requests import LoadRequest, SamplingOptions
from localspec.serve import registry
from localspec.serve.registry import Running
from localspec.serve.server import BindAddress, Serving
from tests.conftest import Program


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[LoadRequest]:
    """What engines were made of."""
    found: list[LoadRequest] = []
    monkeypatch.setattr(server, "EngineProcess", found.append)
    return found


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Serving, BindAddress]]:
    """What would be served; it listens at once, and ends."""
    found: list[tuple[Serving, BindAddress]] = []

    def serve(what: Serving, address: BindAddress, listening: Any, seen: Any) -> None:  # noqa: ARG001
        found.append((what, address))
        listening(f"http://{address.host}:{address.port}")

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.delenv("LOCALSPEC_API_KEY", raising=False)
    return found


def test_the_first_lines_say_where_what_and_how_to_try_it(localspec: Program, served: list[Any]):
    code, out, err = localspec("serve")
    assert (code, err) == (0, "")
    first, curl = out.splitlines()
    assert first == (
        "http://127.0.0.1:11535/v1   model guide   up to 4 answers at a time, 4 may wait   only this machine; no key"
    )
    assert curl.startswith("curl http://127.0.0.1:11535/v1/chat/completions -H 'Content-Type: application/json' -d ")
    body = json.loads(curl.partition(" -d ")[2].strip("'"))
    assert body == {"model": "guide", "messages": [{"role": "user", "content": "Hello"}]}
    (what, address) = served[0]
    assert (address, what.ttl) == (BindAddress(), 1800)


def test_flags_reach_the_server(localspec: Program, served: list[Any], loads: list[LoadRequest], tmp_path: Path):
    file = tmp_path / "key"
    file.write_text("s3cret")
    file.chmod(0o600)
    flags = ["--host", "0.0.0.0", "--port", "9", "--key-file", str(file), "--cors", "http://localhost:3000"]
    more = ["--allow-host", "box.local", "--ttl", "90s", "--k", "3", "--temperature", "0", "--preset", "creative"]
    code, out, err = localspec("serve", "guide", *flags, *more)
    assert (code, err) == (0, "")
    assert "this machine and others; clients need the key" in out
    assert f"Bearer $(cat {file})" in out
    assert "s3cret" not in out
    (what, address) = served[0]
    assert (address, what.ttl) == (BindAddress("0.0.0.0", 9), 90)
    what.make()
    assert (loads[0].model, loads[0].k) == ("guide", 3)
    assert what.rules.hosts == {"box.local"}
    assert what.rules.origins == {"http://localhost:3000"}
    completed = what.served.sampling(SamplingOptions(top_k=5), SamplingOptions(temperature=1.0, top_p=0.5))
    assert completed.given == {"temperature": 0, "top_k": 5, "top_p": 0.5, "min_p": 0.05}


@pytest.mark.usefixtures("served")
def test_a_key_of_the_environment_is_found_there(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_API_KEY", "s3cret")
    _, out, _ = localspec("serve")
    assert 'Bearer $LOCALSPEC_API_KEY"' in out
    assert "s3cret" not in out


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(("host", "is_noted"), [("0.0.0.0", True), ("::", True), ("192.168.1.2", False)])
def test_every_address_has_no_name_before_one_is_given(
    localspec: Program, monkeypatch: pytest.MonkeyPatch, host: str, is_noted: bool
):
    monkeypatch.setenv("LOCALSPEC_API_KEY", "s3cret")
    assert ("--allow-host NAME" in localspec("serve", "--host", host)[2]) is is_noted
    assert localspec("serve", "--host", host, "--allow-host", "box.local")[2] == ""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--host", "0.0.0.0"], "Other machines could reach 0.0.0.0, so clients need a key."),
        (["--host", "300.1.1.1"], "'300.1.1.1' is not an address."),
        (["--ttl", "soon"], "'soon' is not a duration."),
        (["--cors", "*"], "'*' is not an origin."),
        (["--allow-host", "http://x"], "--allow-host takes a name"),
        (["--key-file", "none"], "The key file 'none' cannot be read"),
        (["--port", "70000"], "70000"),
        (["--temperature", "-1"], "temperature is a number from 0"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_loaded(
    localspec: Program, served: list[Any], flags: list[str], message: str
):
    code, out, err = localspec("serve", "guide", *flags)
    assert (code, out, served) == (2, "", [])
    assert message in err


def test_a_model_that_is_not_here_has_its_own_exit_code(localspec: Program, served: list[Any]):
    code, _, err = localspec("serve", "no-such-model")
    assert (code, served) == (3, [])
    assert "no-such-model" in err


@pytest.mark.usefixtures("served")
def test_a_path_is_served_under_the_models_name(localspec: Program, tmp_path: Path):
    """The folders of a user's disk are nothing for clients to know."""
    folder = tmp_path / "my-model"
    folder.symlink_to(paths.packaged("assets/guide") / "target")
    code, out, _ = localspec("serve", str(folder))
    assert code == 0
    assert "model my-model " in out
    assert str(tmp_path) not in out


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_its_packages_it_says_how_to_get_them(
    localspec: Program, served: list[Any], monkeypatch: pytest.MonkeyPatch, missing: str
):
    monkeypatch.setattr("localspec.cli.serve.find_spec", lambda name: None if name == missing else object())
    code, _, err = localspec("serve")
    assert (code, served) == (2, [])
    assert err == (f"error: The server needs {missing}, which is not installed. Run: pip install 'localspec[serve]'\n")


def own_server(**fields: Any) -> Running:
    started = registry.own_start()
    return Running(
        os.getpid(), started, "http://127.0.0.1:11535", "guide", **{"since": 1.0, "state": "ready", **fields}
    )


def test_ps_lists_what_runs(localspec: Program):
    loaded = {"quant": "int8", "device": "cpu", "context": 2048, "num_bytes": 1_500_000_000}
    registry.write(own_server(speculation="early exit 2 (auto)", **loaded, answering=1, waiting=2, until=2.0))
    code, out, _ = localspec("ps")
    assert code == 0
    head, row = out.splitlines()
    assert head.split() == [
        *("ADDRESS", "MODEL", "STATE", "FORMAT", "SIZE", "CONTEXT", "SPECULATION", "ANSWERING", "WAITING", "UNTIL")
    ]
    for word in ("http://127.0.0.1:11535", "guide", "ready", "int8 on cpu", "1.5 GB", "2,048", "early exit 2 (auto)"):
        assert word in row
    assert row.split()[-3:] == ["1", "2", "–"]  # what answers is not unloaded
    code, out, _ = localspec("ps", "--json")
    assert json.loads(out)[0]["waiting"] == 2


def test_ps_says_when_an_idle_model_is_unloaded(localspec: Program):
    registry.write(own_server(until=time()))
    assert re.fullmatch(r"\d\d:\d\d", localspec("ps")[1].split()[-1])
    registry.write(own_server(state="unloaded"))
    assert localspec("ps")[1].splitlines()[1].split()[2:] == ["unloaded", "–", "–", "–", "–", "0", "0", "–"]


def test_ps_without_a_server(localspec: Program):
    code, out, err = localspec("ps")
    assert (code, out) == (0, "")
    assert "localspec serve" in err


@pytest.mark.parametrize("named", [[], ["guide"], ["11535"], ["http://127.0.0.1:11535"], ["--all"]])
def test_stop_ends_the_server_that_was_meant(localspec: Program, monkeypatch: pytest.MonkeyPatch, named: list[str]):
    stopped: list[Running] = []
    monkeypatch.setattr(registry, "stop", stopped.append)
    registry.write(own_server())
    code, _, err = localspec("stop", *named)
    assert (code, [one.address for one in stopped]) == (0, ["http://127.0.0.1:11535"])
    assert "Stopped http://127.0.0.1:11535 (guide)." in err


def test_stop_takes_one_server_or_all(localspec: Program):
    code, _, err = localspec("stop", "--all", "11535")
    assert code == 2
    assert "Give a server or --all, not both." in err


def test_stop_asks_which_of_several(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    both = [own_server(), replace(own_server(), address="http://127.0.0.1:9", model="other")]
    stopped: list[Running] = []
    monkeypatch.setattr(registry, "running", lambda: both)
    monkeypatch.setattr(registry, "stop", stopped.append)
    code, _, err = localspec("stop")
    assert (code, stopped) == (2, [])
    assert "Several servers are running." in err
    assert localspec("stop", "other")[0] == 0
    assert stopped == both[1:]


@pytest.mark.parametrize(
    ("named", "next_command"), [([], "localspec serve"), (["guide"], "localspec ps"), (["11535"], "localspec ps")]
)
def test_stop_without_a_server(localspec: Program, named: list[str], next_command: str):
    code, _, err = localspec("stop", *named)
    assert code == 3
    assert next_command in err
