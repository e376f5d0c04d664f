"""The key: from the environment or a file that is its user's alone, and never beyond loopback without one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from localspec.core.errors import UsageError
from localspec.serve.app import Served
from localspec.serve.faults import RequestRefused
from localspec.serve.keys import VARIABLE, find_key
from localspec.serve.security import AccessRules, check_host
from localspec.serve.server import BindAddress, Serving, reached_at, rules_of, serve
from tests.support.scripted_engine import ScriptedEngine


def key_file(folder: Path, content: bytes = b"s3cret\n", mode: int = 0o600) -> Path:
    file = folder / "key"
    file.write_bytes(content)
    file.chmod(mode)
    return file


def test_a_file_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_key(None) is None
    monkeypatch.setenv(VARIABLE, "from-the-environment")
    assert find_key(None) == "from-the-environment"
    assert find_key(key_file(tmp_path)) == "s3cret"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606, 0o660])
def test_a_key_that_others_can_read_is_none(tmp_path: Path, mode: int):
    with pytest.raises(UsageError, match="Others can read") as caught:
        find_key(key_file(tmp_path, mode=mode))
    assert "chmod 600" in caught.value.hint


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", "schlüssel".encode(), b"\xff\xfe", b"x" * 2000])
def test_a_key_is_one_word(tmp_path: Path, content: bytes):
    with pytest.raises(UsageError) as caught:
        find_key(key_file(tmp_path, content))
    assert "two words" not in str(caught.value)


def test_an_empty_variable_is_no_key_and_is_said(monkeypatch: pytest.MonkeyPatch):
    """Else `LOCALSPEC_API_KEY=$UNSET localspec serve` would be open to all."""
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(UsageError, match=VARIABLE):
        find_key(None)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path):
    with pytest.raises(UsageError, match="cannot be read"):
        find_key(tmp_path / "none")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "box.local"])
def test_beyond_this_machine_no_server_starts_without_a_key(host: str):
    """About 300,000 servers of another project stood open (CVE-2026-7482)."""
    with pytest.raises(UsageError, match="need a key"):
        rules_of(BindAddress(host), (), (), None)
    rules = rules_of(BindAddress(host), (), (), "s3cret")
    assert rules.key == "s3cret"


def test_a_name_that_means_more_than_this_machine_needs_one_too(monkeypatch: pytest.MonkeyPatch):
    """`localhost` is what a file of the system says it is."""
    everywhere = socket.socket()
    everywhere.bind(("0.0.0.0", 0))
    monkeypatch.setattr("localspec.serve.server.bind", lambda *_: everywhere)
    rules = rules_of(BindAddress("localhost"), (), (), None)
    with pytest.raises(UsageError, match="need a key"):
        serve(Serving(ScriptedEngine, Served("guide"), rules), BindAddress("localhost"), pytest.fail)
    assert everywhere.fileno() == -1


def test_the_address_that_was_asked_for_is_a_host_and_every_address_is_not():
    assert rules_of(BindAddress("192.168.1.2"), ("Box.local",), (), "k").hosts == {"192.168.1.2", "box.local"}
    assert rules_of(BindAddress("fd00::1"), (), (), "k").hosts == {"[fd00::1]"}
    assert rules_of(BindAddress("0.0.0.0"), (), (), "k").hosts == frozenset()
    assert rules_of(BindAddress("::"), (), (), "k").hosts == frozenset()


@pytest.mark.parametrize("host", ["fe80::1%eth0", "bücher.local"])
def test_an_address_that_is_no_host_name_lets_no_nameless_host_in(host: str):
    """host_name is "" for every malformed Host, and that must be nobody's name."""
    rules = rules_of(BindAddress(host), (), (), "k")
    assert rules.hosts == frozenset()
    for sent in ("", ".", "evil.com/", host):
        for one in (rules, AccessRules(frozenset({""}))):
            with pytest.raises(RequestRefused, match="is not served"):
                check_host(one, [sent])


@pytest.mark.parametrize(
    ("announced", "host"),
    [
        ("http://192.168.1.2:9", "192.168.1.2"),
        ("http://[fd00::1]:9", "[fd00::1]"),
        ("http://[fe80::1%eth0]:9", "[fe80::1]"),
    ],
)
def test_the_address_that_is_announced_answers(announced: str, host: str):
    """A --host that is a name is announced as the address behind it."""
    rules = reached_at(rules_of(BindAddress("box.local"), (), (), "k"), announced)
    assert rules.hosts == {"box.local", host}
    assert check_host(rules, [f"{host}:9"])


def test_the_loopback_is_a_host_already():
    assert reached_at(AccessRules(), "http://127.0.0.1:9") == AccessRules()


@pytest.mark.parametrize("host", ["http://box", "a/b", "*", "", "a b"])
def test_an_allowed_host_is_a_name(host: str):
    with pytest.raises(UsageError, match="--allow-host"):
        rules_of(BindAddress(), (host,), (), None)


@pytest.mark.parametrize("origin", ["*", "null", "localhost:3000", "http://localhost:3000/", "http://a/b", ""])
def test_an_origin_is_one_site(origin: str):
    with pytest.raises(UsageError, match="is not an origin"):
        rules_of(BindAddress(), (), (origin,), None)
