"""A download that is killed at any step: nothing half-fetched is found by its name, and what came is not fetched again.

The child kills itself with SIGKILL right before a step, at sizes below one piece, of many, and of several files.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from localspec.hub import blobs, pulls
from localspec.hub.download import fetch
from localspec.hub.integrity import FilesVerified, verify_files
from localspec.hub.records import PullPlan, PullRequest
from localspec.hub.transfer import TransferTimeouts
from localspec.models import hub_cache
from tests.support.fake_hub import FakeHub, FakeRepository
from tests.support.pull_stage import MEBI, NAME, QUICK, a_plan, hub, model

pytestmark = pytest.mark.heavy

__all__ = ["hub"]
PATIENT = TransferTimeouts(silence=20, waits=QUICK.waits, tick=0.01)
SIZES = {"200 kB": (200_000,), "3 MiB": (3 * MEBI,), "24 MiB in two files": (12 * MEBI, 12 * MEBI)}
CHUNK = 10 * MEBI  # of the hub's library: the most that may be fetched twice
KILLED = """
import os, signal, sys
from types import SimpleNamespace
import msgspec
from localspec.hub import cache, download, fetcher, part, pulls
from localspec.hub.records import PullPlan, PullRequest

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def in_the_middle(write):
    def writing(self, piece):
        write(self, piece[: len(piece) // 2])
        if self.tell() >= self._size * float(sys.argv[2]):
            kill()
        return write(self, piece[len(piece) // 2 :])
    return writing

exec(sys.argv[1])
plan = msgspec.json.decode(sys.stdin.buffer.read(), type=PullPlan)
for event in download.fetch(plan, PullRequest(plan.target.repo)):
    pass
"""
STEPS = {
    "noting": "pulls.begin = kill",
    "small files": "fetcher.hf_hub_download = kill",
    "the address": "fetcher.get_hf_file_metadata = kill",
    "bytes": "part.PartFile.write = in_the_middle(part.PartFile.write)",
    "a whole part": "part.PartFile.become = kill",
    "linking": "fetcher.snapshot_download = kill",
    "opening": "cache.check_loadable = kill",
    "naming": "cache.os = SimpleNamespace(**{**vars(os), 'replace': kill})",
    "named": "pulls.finish = kill",
}
SAMPLE = [("bytes", "24 MiB in two files"), ("a whole part", "3 MiB"), ("naming", "200 kB")]


def killed_at(step: str, plan: PullPlan, share: float = 0.3) -> None:
    """In a child, which has then so much of a file where the step is "bytes"."""
    words = [sys.executable, "-c", KILLED, STEPS[step], str(share)]
    child = subprocess.run(words, input=msgspec.json.encode(plan), capture_output=True, check=False)
    assert child.returncode == -9, child.stderr


def cases() -> Iterator[object]:
    for step in STEPS:
        for size in SIZES:
            marks = [] if (step, size) in SAMPLE else [pytest.mark.slow]
            yield pytest.param(step, size, marks=marks, id=f"{step}, {size}")


def is_right(repository: FakeRepository) -> bool:
    found = hub_cache.snapshot(NAME)
    if found != blobs.snapshot_dir(NAME, repository.commit):
        return False
    checked = list(verify_files(found))[-1]
    assert isinstance(checked, FilesVerified)
    return not checked.bad and {file.path for file in checked.files} == set(repository.files)


@pytest.mark.parametrize(("step", "size"), list(cases()))
def test_killed_at_a_step_it_goes_on_from_there(hub: FakeHub, step: str, size: str):
    """Checks 1 and 2."""
    fake = model(NAME, *SIZES[size])
    hub.push(fake)
    plan = a_plan(fake)
    killed_at(step, plan)
    assert is_right(fake) if step == "named" else hub_cache.snapshot(NAME) is None
    left = {file.sha256: blobs.size(blobs.part(NAME, file)) for file in plan.target.files if file.sha256}
    if step == "bytes":
        assert any(left.values())
    before = len(hub.seen("cdn"))
    for _ in fetch(plan, PullRequest(NAME), PATIENT):
        pass
    assert is_right(fake)
    for request in hub.seen("cdn")[before:]:
        there = left[request.path.strip("/")]
        assert request.range == (f"bytes={there}-" if there else "")
    assert hub.weight_bytes <= sum(SIZES[size]) + CHUNK
    assert pulls.unfinished() == []


@pytest.mark.parametrize(
    "step", [step if step == "opening" else pytest.param(step, marks=pytest.mark.slow) for step in STEPS]
)
def test_killed_in_an_update_the_older_version_is_whole(hub: FakeHub, step: str):
    """Check 2."""
    old, new = model(), model(seed=1)
    for _ in fetch(a_plan(old), PullRequest(NAME), PATIENT):
        pass
    hub.push(new)
    killed_at(step, a_plan(new))
    assert is_right(new if step == "named" else old)
    for _ in fetch(a_plan(new), PullRequest(NAME), PATIENT):
        pass
    assert is_right(new)


@pytest.mark.slow
def test_killed_three_times_in_the_middle_it_still_comes_to_an_end(hub: FakeHub):
    """Check 1: every start finds a longer part."""
    fake = model(NAME, 6 * MEBI)
    hub.push(fake)
    plan = a_plan(fake)
    (large,) = [file for file in plan.target.files if file.sha256]
    sizes = [0]
    for share in (0.25, 0.5, 0.75):
        killed_at("bytes", plan, share)
        sizes.append(blobs.size(blobs.part(NAME, large)))
    assert sizes == sorted(set(sizes))
    for _ in fetch(plan, PullRequest(NAME), PATIENT):
        pass
    assert is_right(fake)
    ranges = [request.range for request in hub.seen("cdn")]
    assert ranges == ["", *(f"bytes={size}-" for size in sizes[1:])]
