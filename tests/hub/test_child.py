"""The hub's process from its parent's side: one question at a time, a plan that waits, an end with its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import AccessDenied, NotDownloaded, PullError, UsageError
from localspec.core.events import Notice
from localspec.hub import api, blobs, process, pulls
from localspec.hub.process import HubProcess
from localspec.hub.records import (
    AskDelete,
    AskPull,
    AskSearch,
    Deleted,
    DeletePlan,
    Fetched,
    Go,
    HubAnswer,
    Progress,
    Pulled,
    PullPlan,
    PullRequest,
    SearchPage,
    SearchRequest,
)
from localspec.models import hub_cache
from tests.conftest import Program
from tests.support.fake_hub import HANG, Cut, FakeHub, FakeRepository
from tests.support.fake_hub import Account as FakeAccount
from tests.support.pull_stage import ANA, MEBI, NAME, WEIGHTS, as_planned, child, hub, model

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("warm_hub")]

__all__ = ["child", "hub"]
MODEL = model()
REQUEST = PullRequest(NAME, draft="none")
ASKED = json.dumps({"op": "pull", "request": {"repo": NAME, "draft": "none"}}).encode() + b"\n"


def weights_part() -> Path:
    return next(blobs.part(NAME, file) for file in as_planned(MODEL).files if file.sha256)


def planned(answers: list[HubAnswer]) -> PullPlan:
    assert isinstance(answers[-1], PullPlan)
    return answers[-1]


@pytest.fixture
def spawned(warm_hub: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 - behind it
    """The hub's process is started as users have it."""
    monkeypatch.setattr(process, "subprocess", subprocess)


@pytest.mark.usefixtures("spawned")
def test_from_a_name_to_a_folder(hub: FakeHub):
    """The plan, and what happens when the caller goes on; the whole of it in records."""
    events = list(api.pull_events(REQUEST))
    assert [event.type for event in events if not isinstance(event, Progress)] == ["plan", "fetched", "pulled"]
    assert {event.stage for event in events if isinstance(event, Progress)} >= {"resolving", "downloading", "linking"}
    pulled = events[-1]
    assert isinstance(pulled, Pulled)
    assert Path(pulled.target.folder) == hub_cache.snapshot(NAME)
    assert hub.seen("agent-harnesses") == ()


def test_a_plan_waits_and_another_question_drops_it(child: HubProcess, hub: FakeHub):
    plan = planned(list(child.ask(AskPull(REQUEST))))
    assert plan.target.commit == MODEL.commit
    (page,) = child.ask(AskSearch(SearchRequest()))
    assert isinstance(page, SearchPage)
    assert [row.repo for row in page.rows] == [NAME]
    sent = hub.weight_bytes
    with pytest.raises(UsageError, match="There is no plan of a download"):
        list(child.ask(Go()))
    assert hub.weight_bytes == sent
    assert hub_cache.snapshot(NAME) is None
    assert pulls.unfinished() == []
    assert list(child.ask(AskSearch(SearchRequest())))  # after a failure there is another process


def test_what_is_pulled_is_deleted_again(child: HubProcess):
    """Check 15, through the process."""
    list(child.ask(AskPull(REQUEST)))
    assert isinstance(list(child.ask(Go()))[-1], Pulled)
    plan = list(child.ask(AskDelete((NAME,))))[-1]
    deleted = list(child.ask(Go()))[-1]
    assert isinstance(plan, DeletePlan)
    assert isinstance(deleted, Deleted)
    assert abs(plan.freed_bytes - deleted.freed_bytes) <= 4096
    assert hub_cache.snapshot(NAME) is None


def test_closed_in_the_middle_it_goes_on_from_there(hub: FakeHub):
    """Check 1, as a caller stops: the iterator is closed, the process is killed."""
    hub.switches.hold_after = MEBI
    hub.switches.only = WEIGHTS
    events = api.pull_events(REQUEST)
    for event in events:
        if isinstance(event, Progress) and event.stage == "downloading" and blobs.size(weights_part()) == MEBI:
            break
    events.close()  # type: ignore[attr-defined]
    (left,) = pulls.unfinished()
    assert (left.repo, left.reason, left.running) == (NAME, "interrupted", False)
    hub.switches.hold_after = None
    hub.release()
    assert api.pull(NAME, draft="none") == hub_cache.snapshot(NAME)
    assert hub.seen("cdn")[-1].range == f"bytes={MEBI}-"
    assert pulls.unfinished() == []


def test_it_ends_with_its_parent_in_the_middle_of_a_download(hub: FakeHub):
    """No orphan goes on by itself: its standard input closes, and nothing else tells it."""
    hub.switches.hold_after = MEBI
    hub.switches.only = WEIGHTS
    running = subprocess.Popen(
        [sys.executable, "-m", process.CHILD, "20"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert running.stdin
    assert running.stdout
    with running.stdout as answers:
        running.stdin.write(ASKED + b'{"op":"go"}\n')
        running.stdin.flush()
        for line in answers:
            if b'"downloading"' in line and blobs.size(weights_part()) == MEBI:
                break
        running.stdin.close()
        assert running.wait(20) == 0
    assert weights_part().exists()


def test_a_killed_process_is_a_sentence(hub: FakeHub):
    hub.switches.hold_after = MEBI
    hub.switches.only = WEIGHTS
    events = api.pull_events(REQUEST)
    while not (isinstance(event := next(events), Progress) and event.stage == "downloading"):
        continue
    (left,) = pulls.unfinished()
    assert left.running
    os.kill(pulls.read(pulls.state_file(NAME)).pid, signal.SIGKILL)  # type: ignore[union-attr]
    with pytest.raises(PullError, match=r"The download's process ended\.") as fault:
        list(events)
    assert fault.value.exit_code == 7


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["info", "resolve"])
def test_a_hub_that_never_answers_is_a_sentence(hub: FakeHub, kind: str):
    """Check 5: before the plan, too, and nothing is left behind."""
    hub.always(kind, HANG)  # type: ignore[arg-type]
    with pytest.raises(PullError, match=r"The hub stopped answering") as fault:
        list(api.pull_events(REQUEST, silence=1.5))
    assert fault.value.exit_code == 7
    assert hub_cache.snapshot(NAME) is None


@pytest.mark.slow
def test_a_hub_that_goes_silent_behind_a_gate_is_asked_for_less_long_than_the_parent_waits(hub: FakeHub):
    """Who is logged in, and what to run meanwhile, each have an end of their own: the plan comes."""
    repo = "facebook/layerskip-llama2-7B"
    hub.push(FakeRepository(repo, MODEL.files, gated="manual"))
    hub.switches.instead["info"] = chain([None], repeat(HANG))
    hub.always("whoami", HANG)
    with HubProcess(silence=3) as process:
        plan = planned(list(process.ask(AskPull(PullRequest(repo)))))
    assert (plan.target.access.gate, plan.meanwhile) == ("no-request", None)


def test_two_processes_fetch_the_weights_once(hub: FakeHub):
    """Check 9: both come to their end, and the second has said that it waits."""
    hub.switches.hold_after = MEBI
    hub.switches.only = WEIGHTS
    ends: list[list[HubAnswer]] = [[], []]

    def pull(end: list[HubAnswer]) -> None:
        for event in api.pull_events(REQUEST):
            end.append(event)
            if isinstance(event, Notice):
                hub.release()

    first, second = (threading.Thread(target=pull, args=(end,)) for end in ends)
    first.start()
    assert hub.stalled.wait(20)
    hub.switches.hold_after = None
    second.start()
    first.join()
    second.join()
    assert all(isinstance(end[-1], Pulled) for end in ends)
    assert [event.code for event in ends[1] if isinstance(event, Notice)] == ["waits"]
    assert [one.range for one in hub.seen("cdn") if not one.range.startswith("bytes=0-")] == [""]


@pytest.mark.usefixtures("spawned")
def test_what_a_library_prints_goes_to_the_log(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    """Neither its words nor a traceback reach the parent: an unexpected fault is one of ours."""
    monkeypatch.setattr(process, "CHILD", "tests.support.noisy_child")
    with pytest.raises(PullError, match="a fault that nobody expected") as fault:
        list(api.pull_events(REQUEST))
    assert fault.value.exit_code == 7
    log = paths.hub_log().read_text()
    assert "printed by a library" in log
    assert "written past Python" in log
    assert "a fault that nobody expected" in log
    assert hub.log == ()


def test_a_name_that_is_not_there_is_a_sentence(child: HubProcess):
    with pytest.raises(NotDownloaded):
        list(child.ask(AskPull(PullRequest("org/unknown"))))


def test_the_token_is_written_nowhere(hub: FakeHub, tmp_path: Path):
    """Check 7: no log, no event, no file, and no request to another host than the hub's; with a line that breaks, and
    with a gate that is closed."""
    hub.account = FakeAccount(may_read=frozenset({"org/gated"}), pending=frozenset({"org/closed"}))
    for name in ("org/gated", "org/closed"):
        hub.push(FakeRepository(name, MODEL.files, gated="manual", licence="fair"))
    hub.switches.cut = Cut(MEBI, times=1)
    events = list(api.pull_events(PullRequest("org/gated", draft="none"), accept_licence=True))
    assert isinstance(events[-1], Pulled)
    with pytest.raises(AccessDenied) as denied:
        events.extend(api.pull_events(PullRequest("org/closed", draft="none")))
    assert ANA.token not in repr(events) + str(denied.value)
    assert not any(one.has_authorization for one in hub.seen("cdn"))
    written = [file for file in tmp_path.rglob("*") if file.is_file() and not file.is_symlink()]
    assert paths.hub_log() in written
    assert not any(ANA.token.encode() in file.read_bytes() for file in written)


@pytest.mark.usefixtures("spawned")
def test_the_token_is_in_no_argument(hub: FakeHub):
    """Check 7: everybody on the machine may read a process's arguments."""
    hub.switches.hold_after = MEBI
    hub.switches.only = WEIGHTS
    with closing(api.pull_events(REQUEST)) as events:  # type: ignore[type-var]
        while not (isinstance(event := next(events), Progress) and event.stage == "downloading"):
            continue
        kept = pulls.read(pulls.state_file(NAME))
        assert kept is not None
        words = Path(f"/proc/{kept.pid}/cmdline").read_bytes()
    assert process.CHILD.encode() in words
    assert ANA.token.encode() not in words


def contents(folder: Path) -> dict[str, object]:
    """Every entry below a folder: a link's target, a file's bytes with its time, or that it is a folder."""
    return {
        str(one.relative_to(folder)): os.readlink(one)
        if one.is_symlink()
        else (one.read_bytes(), one.stat().st_mtime_ns)
        if one.is_file()
        else "folder"
        for one in folder.rglob("*")
    }


def test_a_dry_run_and_a_fit_leave_the_cache_as_it_is(hub: FakeHub, localspec: Program):
    """Check 3: with a finished model, a part of another's file, and a newer commit at the hub."""
    list(api.pull_events(REQUEST))
    newer = hub.push(model(NAME, 2 * MEBI, seed=5), "v2")
    file = next(file for file in as_planned(newer).files if file.sha256)
    blobs.part(NAME, file).write_bytes(bytes(1000))
    before = contents(hub_cache.folder())
    assert {str(blobs.part(NAME, file).relative_to(hub_cache.folder()))} < before.keys()
    assert localspec("pull", NAME, "--draft", "none", "--dry-run")[0] == 0
    assert localspec("fit", f"{NAME}@v2")[0] == 0
    assert len(hub.seen("info")) > 1
    assert contents(hub_cache.folder()) == before
    assert [one.request for one in pulls.unfinished()] == [None]  # the part, of no download of ours


def test_the_help_of_a_dry_run_promises_that_alone(localspec: Program):
    """Headers, tokenizers and what is known of pairs are kept in localspec's own folders."""
    said = " ".join(localspec("pull", "--help")[1].split())
    assert "--dry-run Only show the plan; writes nothing to the cache." in said


def test_a_closed_gate_ends_it_after_the_plan(hub: FakeHub):
    """Check 7: no byte of the weights; the plan itself says which gate it is."""
    gated = FakeRepository("org/gated", MODEL.files, gated="manual", licence="fair")
    hub.push(gated)
    hub.account = FakeAccount(pending=frozenset({"org/gated"}))
    events = api.pull_events(PullRequest("org/gated", draft="none"))
    found: list[HubAnswer] = []
    with pytest.raises(AccessDenied) as fault:
        found.extend(events)
    assert fault.value.exit_code == 4
    assert hub.weight_bytes == 0
    assert not any(isinstance(event, Fetched) for event in found)
