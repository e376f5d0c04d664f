"""A target and its drafter are one download: one bar over the bytes of both, which never goes back."""

from __future__ import annotations

import re
from itertools import pairwise
from threading import Event

import pytest

from localspec.hub import api, pulls
from localspec.hub.download import fetch
from localspec.hub.queue import Download, DownloadQueue
from localspec.hub.records import Fetched, Progress, PullPlan, PullRequest
from localspec.hub.transfer import TransferTimeouts
from localspec.models import hub_cache
from localspec.runtime.known_pairs import PULLED
from tests.conftest import Program
from tests.support.fake_hub import FakeHub
from tests.support.pull_stage import MEBI, NAME, QUICK, a_plan, hub, model

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("warm_hub")]

__all__ = ["hub"]
LONGEST = 60.0
TARGET, DRAFTER = model(), model("org/drafter", 2 * MEBI)
REQUEST = PullRequest(NAME, draft=DRAFTER.name)
PATIENT = TransferTimeouts(silence=20, waits=QUICK.waits, tick=0.01)


@pytest.fixture(autouse=True)
def _drafter(hub: FakeHub) -> None:
    hub.push(DRAFTER)


def assert_one_bar(shown: list[Progress], total: int) -> None:
    assert {event.total for event in shown} == {total}
    assert all(sooner.done <= later.done for sooner, later in pairwise(shown))
    assert shown[-1].done == total


def test_a_target_and_its_drafter_have_one_bar_that_never_goes_back():
    events = list(api.pull_events(REQUEST))
    (plan,) = (event for event in events if isinstance(event, PullPlan))
    assert [one.repo for one in plan.repositories] == [NAME, DRAFTER.name]
    behind = [event for event in events[events.index(plan) :] if isinstance(event, Progress)]
    assert_one_bar(behind, plan.num_bytes)
    assert {event.repo for event in behind} == {NAME, DRAFTER.name}
    left = [event for event in behind if event.bytes_per_second and event.eta_s is not None]
    for event in left:
        assert event.bytes_per_second
        assert event.eta_s == pytest.approx((plan.num_bytes - event.done) / event.bytes_per_second)


def test_what_is_here_of_either_counts_from_the_start(hub: FakeHub):
    """A drafter that was begun, then a target that is complete."""
    hub.switches.hold_after, hub.switches.only = MEBI, "model.safetensors"
    alone = a_plan(DRAFTER)
    events = fetch(alone, PullRequest(DRAFTER.name), PATIENT)
    begun = next(event.done for event in events if isinstance(event, Progress) and event.done > MEBI)
    events.close()  # type: ignore[attr-defined]
    hub.switches.hold_after = None
    hub.release()
    plan = a_plan(TARGET, DRAFTER)
    events = fetch(plan, REQUEST, PATIENT)
    first = next(events)
    assert isinstance(first, Progress)
    assert (first.repo, first.done >= begun, first.resumed) == (NAME, True, begun)
    assert next(event for event in events if isinstance(event, Fetched)).repo == NAME
    events.close()  # type: ignore[attr-defined]
    shown = [event for event in fetch(plan, REQUEST, PATIENT) if isinstance(event, Progress)]
    assert_one_bar(shown, plan.num_bytes)
    assert {event.repo for event in shown} == {DRAFTER.name}
    assert shown[0].done >= plan.target.num_bytes + begun


def test_the_command_shows_one_bar_for_both(localspec: Program):
    code, _, err = localspec("pull", NAME, "--draft", DRAFTER.name, "--yes")
    assert code == 0
    shown = [
        (int(percent), repo) for percent, repo in re.findall(r"^downloading (\d+) %:.*, (\S+)$", err, re.MULTILINE)
    ]
    assert shown == sorted(shown, key=lambda one: one[0])
    assert shown[-1] == (100, DRAFTER.name)
    ends_target = max(percent for percent, repo in shown if repo == NAME)
    assert ends_target < 100, "the drafter is still to come"


def test_a_pull_without_a_drafter_takes_away_that_of_an_earlier_one(localspec: Program):
    """Else it loads with one though the plan said none; a pull that finds none by itself leaves it."""

    def pull(draft: str) -> dict[str, str]:
        assert localspec("pull", NAME, "--draft", draft, "--yes")[0] == 0
        return PULLED.read()

    assert pull(DRAFTER.name) == {NAME: DRAFTER.name}
    assert pull("none") == {}
    assert pull(DRAFTER.name) == {NAME: DRAFTER.name}
    api.pull(NAME, draft="none")
    assert PULLED.read() == {}


def test_what_goes_on_or_is_mended_leaves_the_drafter(localspec: Program):
    """Another program's part is fetched without one, and damaged files again; nobody asked for none."""
    assert localspec("pull", NAME, "--draft", DRAFTER.name, "--yes")[0] == 0
    part = hub_cache.kept(NAME) / "blobs" / "abc.12345678.incomplete"
    part.write_bytes(bytes(100))
    assert [one.request for one in pulls.unfinished()] == [None]
    assert localspec("pull", "--yes")[0] == 0
    (weights,) = hub_cache.kept(NAME).glob("snapshots/*/model.safetensors")
    weights.resolve().write_bytes(bytes(100))
    assert localspec("verify-files", NAME, "--fetch")[0] == 0
    assert PULLED.read() == {NAME: DRAFTER.name}


def test_the_queue_goes_on_through_the_drafter():
    heard: list[Download] = []
    ended = Event()

    def changed(item: Download) -> None:
        heard.append(item)
        if item.state in ("failed", "done"):
            ended.set()

    queue = DownloadQueue(changed, pace=0.0)
    queue.add(REQUEST)
    assert ended.wait(LONGEST)
    queue.close()
    plan = a_plan(TARGET, DRAFTER)
    counts = [item.done for item in heard if item.total]
    assert heard[-1].state == "done"
    assert counts == sorted(counts)
    assert {item.total for item in heard if item.total} == {plan.num_bytes}
    between = [item for item in heard if plan.target.num_bytes < item.done < plan.num_bytes]
    assert between, "bytes of the drafter are seen, and not jumped over"
    for item in heard:
        if item.eta_s is not None and item.bytes_per_second:
            assert item.eta_s == pytest.approx((item.total - item.done) / item.bytes_per_second)
