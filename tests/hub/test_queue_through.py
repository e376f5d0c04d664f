"""The queue of downloads with the hub's process and a hub: what goes wrong on the line, as the queue shows it."""

from __future__ import annotations

from threading import Event

import pytest

from localspec.hub.queue import Download, DownloadQueue
from localspec.hub.records import PullRequest
from localspec.models import hub_cache
from tests.support.fake_hub import HANG, FakeHub
from tests.support.pull_stage import MEBI, NAME, WEIGHTS, hub

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("warm_hub")]

__all__ = ["hub"]
LONGEST, SILENCE, WAIT = 60.0, 0.5, 0.01


@pytest.mark.parametrize("where", ["before the plan", "in the weights"])
def test_a_hub_that_goes_silent_and_comes_back_is_asked_again(hub: FakeHub, where: str):
    """The row says why it waits and for how long; what came is not fetched again."""
    heard: list[Download] = []
    ended = Event()

    def changed(item: Download) -> None:
        heard.append(item)
        if item.state == "retrying":
            hub.switches.hold_after = None
            hub.switches.instead.clear()
            hub.release()
        elif item.state in ("failed", "done"):
            ended.set()

    if where == "before the plan":
        hub.always("info", HANG)
    else:
        hub.switches.hold_after, hub.switches.only = MEBI, WEIGHTS
    queue = DownloadQueue(changed, waits=(WAIT,), silence=SILENCE)
    queue.add(PullRequest(NAME, draft="none"))
    assert ended.wait(LONGEST)
    queue.close()
    waits = [item for item in heard if item.state == "retrying"]
    assert waits
    assert "The hub stopped answering" in waits[0].reason
    assert waits[0].retry_seconds == WAIT
    assert heard[-1].state == "done"
    assert hub_cache.snapshot(NAME) is not None
    assert [one.range for one in hub.seen("cdn") if not one.range.startswith("bytes=0-")] == (
        ["", f"bytes={MEBI}-"] if where == "in the weights" else [""]
    )
