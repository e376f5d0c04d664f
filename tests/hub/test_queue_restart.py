"""The queue of downloads after a restart, a kill or a lost line: it says what is on the disk, and asks again."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import sleep

import pytest
from msgspec.structs import replace

from localspec.core.errors import HubAway
from localspec.hub import blobs, pulls
from localspec.hub.queue import Download, DownloadQueue, kept_downloads
from localspec.hub.records import AskPull, Go, Progress, PullRequest, RemoteFile, Repository, Retrying
from tests.support.paced_hub import PacedHub
from tests.support.scripted_hub import GB, a_plan, a_pulled, a_repository

LONGEST, LOOK_SECONDS = 60.0, 0.002
ONE, SMALL = "org/one", "org/small"
HALF = Progress(ONE, "downloading", 2 * GB, 4 * GB, bytes_per_second=88e6, eta_s=23.0)
UNREACHABLE = HubAway("There is no route to the hub.", hint="Check the connection.")
OF_THE_HUB = (
    UNREACHABLE,
    HubAway("The hub has a problem of its own (status 503).", hint="Wait a minute."),
    HubAway("The download stopped: the hub answered 503."),
    HubAway("The hub stopped answering (30 s).", hint="Repeat the command to go on."),
)
SIZE = 4_000


def until(wanted: Callable[[], bool]) -> None:
    for _ in range(int(LONGEST / LOOK_SECONDS)):
        if wanted():
            return
        sleep(LOOK_SECONDS)
    raise AssertionError("it never came to that")


def one_file(repo: str, letter: str) -> Repository:
    return a_repository(repo, files=(RemoteFile("model.safetensors", SIZE, letter * 64),))


def has_bytes(repository: Repository, count: int) -> None:
    part = blobs.part(repository.repo, repository.files[0])
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(bytes(count))


def begun(repository: Repository, request: PullRequest) -> None:
    """By a process that was killed."""
    pulls.begin(repository, request)
    pulls.stop(repository, pulls.INTERRUPTED)


def test_after_a_kill_it_shows_the_bytes_that_are_on_the_disk():
    request = PullRequest(ONE)
    kept_downloads().put(ONE, Download(request, 1, "downloading", 100, SIZE))
    repository = one_file(ONE, "a")
    begun(repository, request)
    has_bytes(repository, 3_000)
    queue = DownloadQueue(lambda _: None)
    queue.find_unfinished()
    queue.close()
    assert [(item.state, item.done, item.total) for item in queue.items] == [("paused", 3_000, SIZE)]
    assert kept_downloads().read()[ONE].done == 3_000


@pytest.mark.parametrize("is_known", [True, False])
def test_a_pair_is_one_download_with_the_bytes_of_both(is_known: bool):
    """The target may be complete: then only the drafter is named among what is not."""
    request = PullRequest(ONE, draft=SMALL)
    if is_known:
        kept_downloads().put(ONE, Download(request, 1, "paused", 10, 2 * SIZE))
    target, drafter = one_file(ONE, "a"), one_file(SMALL, "b")
    for repository, count in ((target, 2_000), (drafter, 1_000)):
        begun(repository, request)
        has_bytes(repository, count)
    queue = DownloadQueue(lambda _: None)
    queue.find_unfinished()
    assert [(item.done, item.total) for item in queue.items] == [(3_000, 2 * SIZE)]
    pulls.finish(target)
    queue.find_unfinished()
    queue.close()
    assert [(item.done, item.total) for item in queue.items] == [(SIZE + 1_000, 2 * SIZE)]


def one_gguf(quant: str, letter: str) -> Repository:
    return a_repository(ONE, files=(RemoteFile(f"m-{quant}.gguf", SIZE, letter * 64),))


def test_each_file_of_a_gguf_repository_is_a_download_of_its_own():
    """And each revision: one that is begun, complete or dropped leaves the others unfinished."""
    requests = [PullRequest(ONE, variant="Q4_0"), PullRequest(ONE, variant="Q8_0"), PullRequest(ONE, "v1")]
    repositories = [one_gguf("Q4_0", "a"), one_gguf("Q8_0", "b"), replace(one_file(ONE, "c"), revision="v1")]
    for repository, request in zip(repositories, requests, strict=True):
        begun(repository, request)
        has_bytes(repository, 1_000)
    assert {(one.name, one.done, one.total) for one in pulls.unfinished()} == {
        (f"{ONE}:Q4_0", 1_000, SIZE), (f"{ONE}:Q8_0", 1_000, SIZE), (f"{ONE}@v1", 1_000, SIZE)
    }  # fmt: skip
    queue = DownloadQueue(lambda _: None)
    queue.find_unfinished()
    assert {item.key for item in queue.items} == {f"{ONE}:Q4_0", f"{ONE}:Q8_0", f"{ONE}@v1"}
    queue.drop(f"{ONE}@v1")
    queue.close()
    pulls.finish(repositories[1])
    assert [one.request for one in pulls.unfinished()] == [requests[0]]
    pulls.forget(ONE)
    assert [one.request for one in pulls.unfinished()] == [None], "parts of dropped downloads"


def test_what_has_come_is_kept_when_the_program_ends(monkeypatch: pytest.MonkeyPatch):
    PacedHub({AskPull: [[a_plan()]], Go: [[replace(HALF, done=GB), HALF, Event()]]}).install(monkeypatch)
    queue = DownloadQueue(lambda _: None, pace=0.0)
    queue.add(PullRequest(ONE))
    until(lambda: queue.items[0].done == 2 * GB)
    queue.close()
    kept = kept_downloads().read()[ONE]
    assert (kept.state, kept.done) == ("paused", 2 * GB)


def test_a_hub_that_cannot_be_reached_is_asked_again_after_r_too(monkeypatch: pytest.MonkeyPatch):
    """The retries of a running transfer are its process's; `r` begins a new one, which has to go on with them."""
    waits = Retrying(ONE, "There is no route to the hub", 8.0)
    hub = PacedHub(
        {AskPull: [[a_plan()], *[[one] for one in OF_THE_HUB], [a_plan()]], Go: [[HALF, waits, Event()], [a_pulled()]]}
    )
    hub.install(monkeypatch)
    heard: list[Download] = []
    queue = DownloadQueue(heard.append, pace=0.0, waits=(0.001,))
    queue.add(PullRequest(ONE))
    until(lambda: queue.items[0].state == "retrying")
    queue.go_on(ONE)
    until(lambda: not queue.unfinished)
    queue.close()
    assert len(hub.of(AskPull)) == 2 + len(OF_THE_HUB)
    assert {(one.message, 0.001) for one in OF_THE_HUB} <= {(item.reason, item.retry_seconds) for item in heard}
    assert "failed" not in {item.state for item in heard}


@pytest.mark.parametrize("end", ["pause", "drop", "r", "close"])
def test_a_wait_for_the_hub_is_ended_by_any_key(end: str, monkeypatch: pytest.MonkeyPatch):
    hub = PacedHub({AskPull: [[UNREACHABLE], [a_plan()]], Go: [[Event()]]}).install(monkeypatch)
    queue = DownloadQueue(lambda _: None, waits=(LONGEST * 10,))
    queue.add(PullRequest(ONE))
    until(lambda: queue.items[0].state == "retrying")
    match end:
        case "pause":
            queue.pause(ONE)
            assert queue.items[0].state == "paused"
        case "drop":
            queue.drop(ONE)
            assert not queue.items
        case "r":
            queue.go_on(ONE)
            until(lambda: len(hub.of(AskPull)) == 2)
        case _:
            pass
    worker = queue._worker
    queue.close()
    if worker is not None:
        worker.join(LONGEST)
        assert not worker.is_alive()


def test_with_the_network_switched_off_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    PacedHub({AskPull: [[UNREACHABLE]]}).install(monkeypatch)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    queue = DownloadQueue(lambda _: None)
    queue.add(PullRequest(ONE))
    until(lambda: queue.items[0].state == "failed")
    queue.close()


def test_parts_of_a_dropped_download_are_called_so():
    dropped, foreign = one_file(ONE, "a"), one_file(SMALL, "b")
    has_bytes(dropped, 2_000)
    blob = blobs.blob(SMALL, foreign.files[0])
    blob.parent.mkdir(parents=True)
    blob.with_name(f"{blob.name}.12345678.incomplete").write_bytes(bytes(10))
    assert {one.repo: one.reason for one in pulls.unfinished()} == {
        ONE: "dropped; parts kept",
        SMALL: "begun by another program",
    }
