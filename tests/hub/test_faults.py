"""Every error of the hub's library, of its HTTP client and of the line becomes one of ours, with a next step."""

from __future__ import annotations

import errno
import json
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest
from huggingface_hub import errors

from localspec.core.errors import (
    AccessDenied,
    CheckpointError,
    DoesNotFit,
    HubAway,
    LocalspecError,
    NotDownloaded,
    PullError,
    UsageError,
)
from localspec.hub.faults import BY_NAME, error_for, hub_faults
from localspec.hub.login import VARIABLES

KINDS = {
    "GatedRepoError": AccessDenied,
    "DisabledRepoError": AccessDenied,
    "RepositoryNotFoundError": NotDownloaded,
    "RevisionNotFoundError": NotDownloaded,
    "RemoteEntryNotFoundError": PullError,
    "LocalEntryNotFoundError": NotDownloaded,
    "IncompleteSnapshotError": NotDownloaded,
    "OfflineModeIsEnabled": PullError,
    "HFValidationError": UsageError,
    "LocalTokenNotFoundError": AccessDenied,
    "NotASafetensorsRepoError": CheckpointError,
    "BadRequestError": PullError,
    "ConnectError": HubAway,
    "ConnectTimeout": HubAway,
    "ReadTimeout": HubAway,
    "RemoteProtocolError": HubAway,
}
SECRET = "hf_secretToken"


def classes(module: object) -> dict[str, type[BaseException]]:
    found = {name: kind for name, kind in vars(module).items() if isinstance(kind, type)}
    return {name: kind for name, kind in found.items() if issubclass(kind, BaseException)}


EVERY = classes(errors) | classes(httpx2)


def made(kind: type[BaseException], *, status: int = 400, message: str = "") -> BaseException:
    """An error of a class, whatever its constructor wants: what the mapping reads of it is there."""
    fault = kind.__new__(kind)
    fault.__dict__.update(response=SimpleNamespace(status_code=status), server_message=message)
    return fault


@pytest.mark.parametrize("name", EVERY)
def test_every_error_of_the_library_and_its_client_is_one_of_ours(name: str):
    """By class; a new one of a later version is a PullError that names it."""
    found = error_for(made(EVERY[name]), "org/model")
    assert type(found) is not LocalspecError
    assert type(found) is KINDS.get(name, type(found))
    assert found.message.endswith(".")
    assert found.hint


def test_the_names_in_the_table_are_classes():
    """A name that nothing has would match nothing."""
    pythons = {"gaierror", "SSLError", "TimeoutError", "ConnectionError", "ConnectionRefusedError"}
    assert set(BY_NAME) - set(EVERY) - pythons == set()
    assert set(KINDS) - set(EVERY) == set()


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, AccessDenied, "does not accept the login"),
        (403, AccessDenied, "refuses org/model (no scope)"),
        (404, NotDownloaded, "no model"),
        (429, HubAway, "too many requests"),
        (500, HubAway, "status 500"),
        (503, HubAway, "status 503"),
        (418, PullError, "status 418"),
    ],
)
def test_an_answer_without_a_code_is_judged_by_its_status(status: int, kind: type[LocalspecError], words: str):
    found = error_for(made(errors.HfHubHTTPError, status=status, message="no scope."), "org/model")
    assert type(found) is kind
    assert words in found.message


@pytest.mark.parametrize(
    ("variable", "saved", "hint"),
    [
        ("", "hf_saved", "Log in: hf auth login"),
        ("HF_TOKEN", "hf_saved", "HF_TOKEN overrides the saved login. To use that one: unset HF_TOKEN"),
        ("HF_TOKEN", "", "HF_TOKEN is used. Set another token there, or unset HF_TOKEN and log in: hf auth login"),
        ("HUGGING_FACE_HUB_TOKEN", "hf_saved", "To use that one: unset HUGGING_FACE_HUB_TOKEN"),
    ],
)
def test_a_refused_login_says_where_it_comes_from(
    variable: str, saved: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Logging in again changes nothing while a variable gives the token."""
    (tmp_path / "token").write_text(saved)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, SECRET)
    found = error_for(made(errors.HfHubHTTPError, status=401), "org/model")
    assert hint in found.hint
    assert SECRET not in str(found)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (socket.gaierror("x"), "cannot be reached"),
        (ConnectionRefusedError("x"), "cannot be reached"),
        (ssl.SSLError("x"), "cannot be reached"),
        (TimeoutError("x"), "stopped answering"),
        (ConnectionResetError("x"), "was lost"),
        (KeyError("sha"), "'sha'"),
        (json.JSONDecodeError("bad", "", 0), "bad"),
        (RuntimeError("https://storage/?signature=secret"), "(RuntimeError)"),
    ],
)
def test_faults_of_the_line_are_sentences(fault: BaseException, words: str):
    assert words in error_for(fault, "org/model").message


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("", "Hugging Face (huggingface.co)"),
        ("https://mirror.example/hub/", "mirror.example"),
        (f"http://me:{SECRET}@localhost:8080", "localhost:8080"),
    ],
)
def test_a_hub_that_cannot_be_reached_is_named_and_progress_only_where_there_is_some(
    address: str, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(HubAway) as asked, hub_faults("org/model"):
        raise httpx2.ConnectError("x")
    works = "what is on this machine works: localspec ls"
    assert str(asked.value) == f"{name} cannot be reached. Check the connection; {works}"
    with pytest.raises(HubAway) as begun, hub_faults("org/model", keeps=True):
        raise httpx2.ConnectError("x")
    again = "Repeat the command: progress is kept."
    assert str(begun.value) == f"{name} cannot be reached. Check the connection. {again}"


@pytest.mark.parametrize("fault", [TimeoutError("x"), ConnectionResetError("x"), KeyError("sha")])
def test_progress_is_promised_only_of_a_download_that_was_begun(fault: Exception):
    for keeps in (False, True):
        with pytest.raises(PullError) as raised, hub_faults("org/model", keeps=keeps):
            raise fault
        assert ("progress is kept" in raised.value.hint) == keeps


def test_a_full_disk_is_no_fault_of_the_hub():
    assert isinstance(error_for(OSError(errno.ENOSPC, "full"), "org/model"), DoesNotFit)


def test_no_request_is_kept_with_the_error():
    """Its headers have the token, and a traceback would show them."""
    fault = httpx2.ConnectError(f"Authorization: Bearer {SECRET}")
    with pytest.raises(PullError) as raised, hub_faults("org/model"):
        raise fault
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert SECRET not in f"{raised.value}"


def test_hostile_words_of_the_hub_are_made_safe():
    """CRLF and escape codes of X-Error-Message never reach a terminal."""
    said = "no\r\nSet-Cookie: x\x1b]0;owned\x07"
    found = error_for(made(errors.HfHubHTTPError, status=403, message=said), "o/\x1b[2Jm")
    assert not any(ord(sign) < 32 for sign in f"{found}")
