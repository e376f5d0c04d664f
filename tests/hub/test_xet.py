"""--xet with hf_xet itself: its storage is a folder, which the fake hub names in place of Xet's servers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from localspec.core.errors import HubAway
from localspec.core.events import Notice
from localspec.hub import blobs
from localspec.hub.child import SILENT
from localspec.hub.download import Happening, fetch
from localspec.hub.integrity import FilesVerified, mend, verify_files
from localspec.hub.process import HubProcess
from localspec.hub.records import AskPull, Fetched, Go, PullRequest
from localspec.models import hub_cache
from tests.support.fake_hub import FakeHub, FakeRepository
from tests.support.fake_hub.routes import XET_TOKEN
from tests.support.pull_stage import ANA, MEBI, NAME, QUICK, WEIGHTS, a_plan, as_planned, hub, model
from tests.support.xet_storage import stored_by_xet

pytestmark = pytest.mark.heavy
__all__ = ["hub"]

PATIENT = replace(QUICK, silence=20)
TOLD = "The hub's library fetches the weights (--xet): a stopped download starts over."
FAILED = f"Xet could not fetch {WEIGHTS}; localspec fetches it itself."


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the hub's process is, where alone the library is imported."""
    for name, value in SILENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def offered(hub: FakeHub, tmp_path: Path) -> FakeRepository:
    """A model whose weights Xet's storage has."""
    return stored_by_xet(hub, model(), tmp_path)


def by_xet(repository: FakeRepository, *, xet: bool = True) -> list[Happening]:
    return list(fetch(a_plan(repository), PullRequest(NAME, xet=xet), PATIENT))


def notes(events: list[Happening]) -> list[str]:
    return [event.message for event in events if isinstance(event, Notice)]


def checked(events: list[Happening]) -> int:
    (fetched,) = (event for event in events if isinstance(event, Fetched))
    return fetched.checked


def weights(repository: FakeRepository) -> Path:
    return blobs.snapshot_dir(NAME, repository.commit) / WEIGHTS


def is_whole(repository: FakeRepository) -> bool:
    return weights(repository).read_bytes() == repository.files[WEIGHTS] and blobs.is_complete(as_planned(repository))


def test_weights_come_by_xet_and_are_hashed_all_the_same(hub: FakeHub, offered: FakeRepository):
    events = by_xet(offered)
    assert (notes(events), checked(events), is_whole(offered)) == ([TOLD], 1, True)
    assert (hub.weight_bytes, len(hub.seen("xet-read-token"))) == (0, 1)
    ours = [request for request in hub.log if request.has_authorization]
    assert all(request.headers["authorization"] == f"Bearer {ANA.token}" for request in ours)
    hub.forget()
    assert (notes(by_xet(offered)), hub.log) == ([TOLD], ()), "it is here"


def test_without_the_flag_nothing_is_asked_of_xet(hub: FakeHub, offered: FakeRepository):
    """Though the hub offers it, and the library would take it."""
    events = by_xet(offered, xet=False)
    assert (notes(events), checked(events), is_whole(offered)) == ([], 1, True)
    assert (hub.weight_bytes, hub.seen("xet-read-token")) == (weights(offered).stat().st_size, ())
    assert not weights(offered).resolve().is_relative_to(hub_cache.folder() / "blobs")


def test_the_wrong_bytes_of_xet_are_not_used_and_the_next_try_is_our_own(hub: FakeHub, tmp_path: Path):
    """The library keeps by Xet's hash what it brought, and would give the same again."""
    other, wanted = stored_by_xet(hub, model(seed=7), tmp_path), model()
    hub.push(wrong := replace(wanted, xet=other.xet))
    events = by_xet(wrong)
    assert (notes(events), checked(events), is_whole(wrong)) == ([TOLD, FAILED], 1, True)


def test_a_file_that_went_bad_in_the_store_of_xet_is_found_and_mended(offered: FakeRepository):
    """Newer libraries have a store for all repositories, out of which they would give the bad bytes again."""
    by_xet(offered)
    stored = weights(offered).resolve()
    is_shared = stored.is_relative_to(hub_cache.folder() / "blobs")
    stored.write_bytes(bytes(stored.stat().st_size))
    found = [event for event in verify_files(weights(offered).parent) if isinstance(event, FilesVerified)][-1]
    assert [file.path for file in found.bad] == [WEIGHTS]
    assert mend(found) == (WEIGHTS,)
    assert notes(by_xet(offered)) == ([TOLD, FAILED] if is_shared else [TOLD])
    assert is_whole(offered)


class Refuses(BaseHTTPRequestHandler):
    """Xet's storage, which has nothing; `asked`: what it was sent."""

    asked: list[dict[str, str]] = []  # noqa: RUF012 - one server at a time

    def do_GET(self) -> None:
        self.asked.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def storage_that_has_nothing() -> Iterator[str]:
    Refuses.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_what_xet_cannot_fetch_is_fetched_by_us_and_xet_never_sees_the_token(hub: FakeHub, offered: FakeRepository):
    with storage_that_has_nothing() as hub.switches.cas:
        events = by_xet(offered)
    assert (notes(events), checked(events), is_whole(offered)) == ([TOLD, FAILED], 1, True)
    assert {asked["authorization"] for asked in Refuses.asked} == {f"Bearer {XET_TOKEN}"}
    assert not any(ANA.token in value for asked in Refuses.asked for value in asked.values())


def test_a_storage_that_cannot_be_reached_ends_it_with_the_way_round(hub: FakeHub, offered: FakeRepository):
    """hf_xet itself tries for minutes, says nothing, and ends with its process alone, which frees the file's lock."""
    hub.switches.cas = "http://127.0.0.1:1"
    with HubProcess(silence=2) as process, pytest.raises(HubAway) as raised:
        pull(process, xet=True)
    assert "Without --xet localspec fetches the weights itself." in raised.value.hint
    logs = [log.read_text("utf-8") for log in Path(os.environ["HF_XET_CACHE"]).rglob("*.log")]
    assert logs
    assert not any(ANA.token in log or XET_TOKEN in log for log in logs)
    with HubProcess(silence=20) as process:
        pull(process, xet=False)
    assert is_whole(offered)


def pull(process: HubProcess, *, xet: bool) -> None:
    for question in (AskPull(PullRequest(NAME, draft="none", xet=xet)), Go()):
        for _ in process.ask(question):
            pass


def test_hf_xet_sends_no_telemetry_of_its_own():
    """It has one since 1.8, which the variable of the hub's library switches off."""
    told = dict(pytest.importorskip("hf_xet").XetConfig().items())
    assert told.get("telemetry.enabled", False) is False


def test_several_files_come_by_xet_at_once(hub: FakeHub, tmp_path: Path):
    shards = stored_by_xet(hub, model(NAME, MEBI, 2 * MEBI, MEBI), tmp_path)
    events = by_xet(shards)
    assert (notes(events), checked(events), hub.weight_bytes) == ([TOLD], 3, 0)
    assert blobs.is_complete(as_planned(shards))
