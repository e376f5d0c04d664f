"""The queue of downloads on its own: order, pause, drop, retry, restart, and what stops one while the next goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from time import sleep

import pytest
from msgspec.structs import replace

from localspec.core.errors import DoesNotFit, LocalspecError, PullError
from localspec.hub import pulls
from localspec.hub.queue import Download, DownloadQueue, kept_downloads
from localspec.hub.records import Access, AskPull, Go, HubAnswer, Progress, PullPlan, PullRequest, Retrying
from tests.support.paced_hub import PacedHub
from tests.support.scripted_hub import GB, a_plan, a_pulled, a_repository, gated

LONGEST, LOOK_SECONDS = 60.0, 0.002
ONE, TWO, THREE = (f"org/{name}" for name in ("one", "two", "three"))
HALF = Progress(ONE, "downloading", 2 * GB, 4 * GB, bytes_per_second=88e6, eta_s=23.0)
DONE = a_pulled()


def until(wanted: Callable[[], bool]) -> None:
    for _ in range(int(LONGEST / LOOK_SECONDS)):
        if wanted():
            return
        sleep(LOOK_SECONDS)
    raise AssertionError("it never came to that")


@contextmanager
def a_queue(changed: Callable[[Download], object] = lambda _: None) -> Iterator[DownloadQueue]:
    queue = DownloadQueue(changed, pace=0.0)
    try:
        yield queue
    finally:
        queue.close()


def a_hub(
    monkeypatch: pytest.MonkeyPatch,
    *goes: list[HubAnswer | Exception | Event],
    plans: tuple[PullPlan | Exception, ...] = (),
) -> PacedHub:
    """A hub whose downloads go like this, one after the other; `plans`: instead of a plan that is open."""
    scripts = {AskPull: [[plan] for plan in plans or (a_plan(),)], Go: list(goes)}
    return PacedHub(scripts).install(monkeypatch)  # type: ignore[arg-type]


def states(queue: DownloadQueue) -> dict[str, str]:
    return {item.request.repo: item.state for item in queue.items}


def asked(hub: PacedHub) -> list[str]:
    return [question.request.repo for question in hub.of(AskPull)]


def of(queue: DownloadQueue, repo: str) -> Download:
    item = queue.find(repo)
    assert item is not None
    return item


def test_one_at_a_time_in_an_order_that_can_be_changed(monkeypatch: pytest.MonkeyPatch):
    ends = Event()
    hub = a_hub(monkeypatch, [HALF, ends, DONE], [DONE])
    with a_queue() as queue:
        for repo in (ONE, TWO, THREE):
            queue.add(PullRequest(repo))
        until(lambda: of(queue, ONE).done == 2 * GB)
        assert states(queue) == {ONE: "downloading", TWO: "waiting", THREE: "waiting"}
        queue.move(THREE, -1)
        queue.move(ONE, -1)  # it is the first
        queue.move("org/none", 1)
        assert list(states(queue)) == [ONE, THREE, TWO]
        ends.set()
        until(lambda: not queue.unfinished)
        assert asked(hub) == [ONE, THREE, TWO]
    assert kept_downloads().read() == {}


def test_what_is_added_twice_is_one_download(monkeypatch: pytest.MonkeyPatch):
    """The same repository with another file or commit is another."""
    hub = a_hub(monkeypatch, [HALF, Event()])
    with a_queue() as queue:
        queue.add(PullRequest(ONE))
        until(lambda: of(queue, ONE).is_running)
        queue.add(PullRequest(ONE))
        queue.add(PullRequest(ONE, variant="Q4_K_M"))
        assert [item.key for item in queue.items] == [ONE, f"{ONE}:Q4_K_M"]
        assert of(queue, ONE).is_running
        assert len(hub.of(AskPull)) == 1


def test_a_pause_lets_the_next_go_first_and_going_on_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch):
    second = Event()
    hub = a_hub(monkeypatch, [HALF, Event()], [second, DONE], [DONE])
    with a_queue() as queue:
        queue.add(PullRequest(ONE))
        queue.add(PullRequest(TWO))
        until(lambda: of(queue, ONE).done == 2 * GB)
        queue.pause(ONE)
        paused = of(queue, ONE)
        assert (paused.state, paused.done, paused.bytes_per_second, paused.eta_s) == ("paused", 2 * GB, None, None)
        until(lambda: len(hub.of(Go)) == 2)
        queue.go_on(ONE)
        assert states(queue) == {ONE: "waiting", TWO: "downloading"}
        second.set()
        until(lambda: not queue.unfinished)
        assert asked(hub) == [ONE, TWO, ONE]


@pytest.mark.parametrize("has_parts", [True, False])
def test_what_is_dropped_is_named_nowhere_any_more_and_the_next_goes_on(
    has_parts: bool, monkeypatch: pytest.MonkeyPatch
):
    """While it runs; its parts are not the queue's to delete: the hub's process is not asked to."""
    hub = a_hub(monkeypatch, [HALF, Event()] if has_parts else [Event()], [DONE])
    with a_queue() as queue:
        queue.add(PullRequest(ONE))
        queue.add(PullRequest(TWO))
        until(lambda: len(hub.of(Go)) == 1 and (of(queue, ONE).done > GB) is has_parts)
        pulls.begin(a_repository(ONE), PullRequest(ONE))
        queue.drop(ONE)
        queue.drop("org/none")
        until(lambda: states(queue) == {TWO: "done"})
    assert pulls.unfinished() == []
    assert kept_downloads().read() == {}
    assert {type(question) for question in hub.asked} == {AskPull, Go}


def test_a_stall_has_its_reason_until_a_byte_comes_and_can_be_cut_short(monkeypatch: pytest.MonkeyPatch):
    stall, more, ends = Event(), Event(), Event()
    waits = Retrying(ONE, "the hub stopped answering (30 s)", 8.0)
    hub = a_hub(monkeypatch, [HALF, stall, waits, HALF, more, replace(HALF, done=3 * GB), Event()], [ends, DONE])
    with a_queue() as queue:
        queue.add(PullRequest(ONE))
        until(lambda: of(queue, ONE).done == 2 * GB)
        stall.set()
        until(lambda: of(queue, ONE).state == "retrying")
        item = of(queue, ONE)
        assert (item.reason, item.retry_seconds, item.bytes_per_second) == (waits.reason, 8.0, None)
        more.set()
        until(lambda: of(queue, ONE).done == 3 * GB)
        assert (of(queue, ONE).state, of(queue, ONE).reason) == ("downloading", "")
        queue.go_on(ONE)  # at once, in a process of its own
        until(lambda: len(hub.of(Go)) == 2)
        assert (of(queue, ONE).stage, of(queue, ONE).done) == ("resolving", GB)  # as much as its plan found here
        ends.set()
        until(lambda: states(queue) == {ONE: "done"})


def test_after_a_restart_all_are_there_in_order_and_paused(monkeypatch: pytest.MonkeyPatch):
    hub = a_hub(monkeypatch, [HALF, Event()])
    with a_queue() as queue:
        for repo in (ONE, TWO):
            queue.add(PullRequest(repo))
        until(lambda: of(queue, ONE).done == 2 * GB)
        queue.move(TWO, -1)
        queue.pause(ONE)
    before = len(hub.asked)
    with a_queue() as queue:
        assert list(states(queue).items()) == [(TWO, "paused"), (ONE, "paused")]
        assert of(queue, ONE).done == 2 * GB
        assert len(hub.asked) == before


def test_what_a_command_has_begun_joins_the_queue_paused(monkeypatch: pytest.MonkeyPatch):
    """Its process is gone; one that still runs is that process's."""
    hub = a_hub(monkeypatch)
    for repo in (ONE, TWO):
        pulls.begin(a_repository(repo), PullRequest(repo))
    pulls.stop(a_repository(ONE), "interrupted")
    with a_queue() as queue:
        queue.find_unfinished()
        queue.find_unfinished()
        assert states(queue) == {ONE: "paused"}
        assert of(queue, ONE).total == 4 * GB
    assert not hub.asked


FULL = PullError("The disk is full: 2.0 GB of 4.0 GB are kept.", hint="Free 2.0 GB, then repeat the command.")
FAULTS = [
    (FULL, "The disk is full: 2.0 GB of 4.0 GB are kept."),
    (
        DoesNotFit("The disk is full.", hint="Free some space, then repeat the command."),
        "The disk is full. Free some space, then repeat the command.",
    ),
    (OSError("closed"), "The download's process ended."),
]


@pytest.mark.parametrize(("fault", "reason"), FAULTS)
def test_a_fault_is_kept_with_its_reason_and_the_next_goes_on(
    fault: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
):
    """Check 8: what came is known; trying again goes on from there."""
    again = Event()
    hub = a_hub(monkeypatch, [HALF, fault], [DONE], [again, DONE])
    heard: list[Download] = []
    with a_queue(heard.append) as queue:
        queue.add(PullRequest(ONE))
        queue.add(PullRequest(TWO))
        until(lambda: states(queue) == {ONE: "failed", TWO: "done"})
        failed = of(queue, ONE)
        assert (failed.reason, failed.done, failed.bytes_per_second) == (reason, 2 * GB, None)
        assert heard.count(failed) == 1
        queue.go_on(ONE)
        until(lambda: len(hub.of(Go)) == 3)
        assert (of(queue, ONE).reason, of(queue, ONE).state) == ("", "downloading")
        again.set()
        until(lambda: states(queue) == {ONE: "done", TWO: "done"})


def test_a_failed_one_is_paused_after_a_restart_with_its_reason(monkeypatch: pytest.MonkeyPatch):
    a_hub(monkeypatch, [HALF, FULL])
    with a_queue() as queue:
        queue.add(PullRequest(ONE))
        until(lambda: states(queue) == {ONE: "failed"})
    with a_queue() as queue:
        assert (of(queue, ONE).state, of(queue, ONE).reason) == ("paused", FULL.message)


CLOSED = gated(a_repository(ONE), "awaiting")
REFUSED = [
    (a_plan(CLOSED, fit=None), "Awaiting review: ana has asked"),
    (a_plan(replace(CLOSED, access=Access("logged-out", "https://huggingface.co/org/one"))), "Not logged in:"),
    (a_plan(unloadable="It has only pickle weights."), "It has only pickle weights."),
]


@pytest.mark.parametrize(("plan", "sentence"), REFUSED)
def test_a_plan_that_can_no_longer_be_carried_out_downloads_nothing_and_the_next_goes_on(
    plan: PullPlan | LocalspecError, sentence: str, monkeypatch: pytest.MonkeyPatch
):
    """A gate may close between the question and the download."""
    hub = a_hub(monkeypatch, [DONE], plans=(plan, a_plan()))
    with a_queue() as queue:
        queue.add(PullRequest(ONE))
        queue.add(PullRequest(TWO))
        until(lambda: states(queue) == {ONE: "failed", TWO: "done"})
        assert sentence in of(queue, ONE).reason
        assert len(hub.of(Go)) == 1


def test_the_bytes_never_go_back(monkeypatch: pytest.MonkeyPatch):
    heard: list[Download] = []
    a_hub(monkeypatch, [HALF, replace(HALF, stage="checking", done=0, total=0), DONE])
    with a_queue(heard.append) as queue:
        queue.add(PullRequest(ONE), done=GB, total=4 * GB)
        until(lambda: states(queue) == {ONE: "done"})
    counts = [item.done for item in heard]
    assert counts == sorted(counts)
    assert {item.total for item in heard} == {4 * GB}
