"""What the client asks of the hub and believes: ranges, deadlines, hostile answers, and where the token goes."""

from __future__ import annotations

import time

import pytest

from localspec.core.errors import AccessDenied, CheckpointError, HubAway, PullError
from localspec.hub.client import Client, named_seconds
from localspec.hub.login import Login, read_login
from tests.support.fake_hub import Account, Answer, Cut, FakeHub, limited, refused
from tests.support.hub_clients import client_of, guide

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("online")]
SHORT = 0.3  # seconds that a hanging hub is given
WEIGHTS = "model.safetensors"


def test_a_range_is_what_was_asked_for_whatever_the_hub_sends():
    """Also where it sends the whole file instead, and where the line is cut once."""
    with FakeHub(pushed := guide()) as hub:
        client, commit = client_of(hub), pushed.commit
        whole = b"".join(pushed.tree[WEIGHTS].pieces(0, 5000))
        assert client.read_range("org/guide", commit, WEIGHTS, 100, 4000) == whole[100:4000]
        hub.switches.ignore_range = True
        assert client.read_range("org/guide", commit, WEIGHTS, 100, 4000) == whole[100:4000]
        hub.switches.ignore_range = False
        hub.switches.cut = Cut(10)
        assert client.read_range("org/guide", commit, WEIGHTS, 100, 4000) == whole[100:4000]
        hub.switches.cut = Cut(10, times=2)
        with pytest.raises(PullError, match="lost"):
            client.read_range("org/guide", commit, WEIGHTS, 100, 4000)


def test_the_token_goes_to_the_hub_alone():
    """Not to the CDN, and to no host that a page of a search names as the next."""
    with FakeHub(pushed := guide(), guide("org/other"), account=Account()) as hub:
        client = client_of(hub)
        client.read_range("org/guide", pushed.commit, WEIGHTS, 0, 10)
        assert [one.has_authorization for one in hub.seen("cdn")] == [False]
        assert all(one.has_authorization for one in hub.log if one.server == "hub")
        stolen = Answer(200, {"Link": '<https://evil.example/api/models?cursor=1>; rel="next"'}, b"[]")
        hub.instead("search", stolen)
        assert client.search("search=x").cursor == "cursor=1"
        hub.forget()
        assert client.search("cursor=1").rows
        assert [one.server for one in hub.log] == ["hub"]
    assert "hf_fake" not in repr(client.login)


def test_nothing_else_is_asked():
    """No telemetry, no tree, no HEAD: one request for a repository."""
    with FakeHub(guide()) as hub:
        client_of(hub).info("org/guide")
        assert [(one.kind, one.method) for one in hub.log] == [("info", "GET")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["info", "auth-check", "search", "resolve", "cdn"])
def test_a_hub_that_never_answers_is_left_in_time(kind: str):
    """Check 5, for what is asked before a download."""
    with FakeHub(pushed := guide()) as hub:
        client = client_of(hub, seconds=SHORT)
        hub.switches.hang.add(kind)  # type: ignore[arg-type]
        ask = {
            "info": lambda: client.info("org/guide"),
            "auth-check": lambda: client.may_read("org/guide"),
            "search": lambda: client.search("search=x"),
        }.get(kind, lambda: client.read_range("org/guide", pushed.commit, WEIGHTS, 0, 10))
        with pytest.raises(PullError, match="stopped answering"):
            ask()


@pytest.mark.parametrize(("seconds", "num_bytes"), [(0.0, 1 << 20), (5.0, 100)])
def test_an_answer_has_an_end_in_time_and_in_bytes(monkeypatch: pytest.MonkeyPatch, seconds: float, num_bytes: int):
    """However steadily it drips."""
    monkeypatch.setattr("localspec.hub.client.MAX_JSON_BYTES", num_bytes)
    with FakeHub(guide()) as hub:
        client = Client(hub.endpoint, seconds=5, answer_seconds=seconds)
        with pytest.raises(PullError, match="does not end"):
            client.info("org/guide")


ANSWERS = {
    "no JSON": b"<html>",
    "a list": b"[]",
    "another type": b'{"id": 7}',
    "a hash that is none": b'{"id": "org/guide", "siblings": [{"rfilename": ["x"]}]}',
    "deep": b'{"id": "org/guide", "cardData": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "not text": b'{"id": "\xff"}',
}


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_of_another_shape_is_a_sentence(what: str):
    with FakeHub(guide()) as hub:
        hub.instead("info", Answer(200, {"Content-Type": "application/json"}, ANSWERS[what]))
        with pytest.raises(PullError, match="The hub's answer about org/guide cannot be read"):
            client_of(hub).info("org/guide")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_in_trouble_is_a_sentence(status: int):
    with FakeHub(guide()) as hub:
        hub.always("info", refused(status, "busy"))
        with pytest.raises(PullError, match="too many requests" if status == 429 else f"status {status}"):
            client_of(hub).info("org/guide")


@pytest.mark.parametrize("kind", ["info", "auth-check", "search", "resolve", "cdn"])
def test_a_fault_that_passes_is_asked_again(kind: str):
    """As during a download. What the hub names as its wait is waited for."""
    with FakeHub(pushed := guide(), account=Account()) as hub:
        client = client_of(hub)
        hub.instead(kind, refused(503, "busy"), Answer(429, {"Retry-After": "1"}))  # type: ignore[arg-type]
        began = time.monotonic()
        match kind:
            case "info":
                assert client.info("org/guide").sha == pushed.commit
            case "auth-check":
                assert client.may_read("org/guide").status == 200
            case "search":
                assert client.search("search=guide").rows
            case _:
                assert client.read_range("org/guide", pushed.commit, WEIGHTS, 0, 10)
        assert time.monotonic() - began >= 1
        assert len(hub.seen(kind)) == 3  # type: ignore[arg-type]


def test_the_wait_that_the_hub_names_in_its_own_header_is_waited_for():
    """It sends `ratelimit`, and no Retry-After."""
    with FakeHub(pushed := guide()) as hub:
        hub.instead("info", limited(1))
        began = time.monotonic()
        assert client_of(hub).info("org/guide").sha == pushed.commit
        assert time.monotonic() - began >= 1
        assert len(hub.seen("info")) == 2


NAMED = [
    ({"ratelimit": '"api";r=0;t=6'}, 7),
    ({"RateLimit": '"resolvers"; r = 0; t = 6', "Retry-After": "2"}, 7),
    ({"ratelimit": '"api";r=12;t=6', "Retry-After": "2"}, 2),
    ({"ratelimit": "a minute", "Retry-After": "soon"}, 0),
    ({}, 0),
]


@pytest.mark.parametrize(("headers", "seconds"), NAMED)
def test_a_wait_is_named_by_the_hubs_header_or_by_retry_after(headers: dict[str, str], seconds: float):
    assert named_seconds(headers) == seconds


@pytest.mark.parametrize("answer", [Answer(429, {"Retry-After": "60"}), limited(60)])
def test_a_wait_beyond_the_time_for_an_answer_is_not_waited_for(answer: Answer):
    with FakeHub(guide()) as hub:
        hub.always("info", answer)
        with pytest.raises(HubAway, match="too many requests"):
            client_of(hub).info("org/guide")
        assert len(hub.seen("info")) == 1


def test_no_hub_at_all_is_no_route():
    with FakeHub() as hub:
        gone = client_of(hub, seconds=SHORT)
    with pytest.raises(PullError, match="cannot be reached"):
        gone.info("org/guide")


def test_offline_is_said_as_such(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with FakeHub(guide()) as hub:
        with pytest.raises(PullError, match="switched off"):
            client_of(hub).info("org/guide")
        assert hub.log == ()


def test_a_small_file_that_is_longer_than_listed_is_refused():
    with FakeHub(pushed := guide()) as hub, pytest.raises(CheckpointError, match="at most 10 bytes"):
        client_of(hub).read("org/guide", pushed.commit, "config.json", 10)


def test_a_token_that_the_hub_does_not_know_is_said():
    with FakeHub(guide(gated="manual"), account=Account()) as hub:
        client = Client(hub.endpoint, Login("hf_old", "HF_TOKEN"), seconds=5)
        with pytest.raises(AccessDenied, match="does not accept the login"):
            client.info("org/guide")
        assert client.account() == ""


def test_the_account_is_named_and_asked_for_only_with_a_login():
    with FakeHub(account=Account()) as hub:
        assert client_of(hub).account() == "ana"
        hub.forget()
        assert client_of(hub, logged_in=False).account() == ""
        assert hub.log == ()


def test_where_the_login_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """HF_TOKEN goes before the saved one, and hides another."""
    saved = tmp_path / "token"
    saved.write_text("hf_saved")
    monkeypatch.setenv("HF_TOKEN_PATH", str(saved))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(saved))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert (read_login().source, read_login().hides_saved) == ("hf auth login", False)
    monkeypatch.setenv("HF_TOKEN", "hf_given")
    assert (read_login().token, read_login().source, read_login().hides_saved) == ("hf_given", "HF_TOKEN", True)
    monkeypatch.setenv("HF_TOKEN", "hf_saved")
    assert not read_login().hides_saved
    saved.unlink()
    monkeypatch.delenv("HF_TOKEN")
    assert read_login() == Login()


def test_a_slow_hub_is_heard(monkeypatch: pytest.MonkeyPatch):
    """Now and then while bytes arrive, so that nobody takes it for a silent one."""
    monkeypatch.setattr("localspec.hub.client.HEARD_SECONDS", 0.0)
    heard: list[int] = []
    with FakeHub(pushed := guide()) as hub:
        client = Client(hub.endpoint, heard=lambda: heard.append(client.bytes_read))
        client.read("org/guide", pushed.commit, "tokenizer.json", 1 << 20)
    assert heard == sorted(heard)
    assert len(heard) > 1
