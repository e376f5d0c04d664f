"""The fake hub by plain HTTP: its pages, ranges and log, and what each switch does to the line."""

from __future__ import annotations

import http.client
import json
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.support.fake_hub import HANG, Account, Answer, Cut, Drip, FakeHub, FakeRepository, Flip, refused

WEIGHTS = bytes(range(256)) * 400
FILES = {"config.json": b"{}", "a.safetensors": WEIGHTS, "b.safetensors": WEIGHTS[::-1]}
MODEL = FakeRepository("org/model", FILES)
ESCAPES = "\x1b[31mred\r\nSet-Cookie: a=b"


@dataclass(frozen=True)
class Got:
    status: int
    headers: dict[str, str]
    body: bytes
    broken: bool  # the line ended before the length that was promised


def get(address: str, *, method: str = "GET", **headers: str) -> Got:
    parts = urlsplit(address)
    line = http.client.HTTPConnection(parts.netloc, timeout=60)
    try:
        line.request(method, f"{parts.path}?{parts.query}", headers=headers)
        answer = line.getresponse()
        try:
            body, broken = answer.read(), False
        except http.client.IncompleteRead as ended:
            body, broken = ended.partial, True
        return Got(answer.status, dict(answer.headers), body, broken)
    finally:
        line.close()


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub(MODEL) as running:
        yield running


def location(hub: FakeHub, file: str = "a.safetensors") -> str:
    """The signed address at the CDN."""
    return get(f"{hub.endpoint}/org/model/resolve/main/{file}", method="HEAD").headers["Location"]


def fetch(hub: FakeHub, file: str = "a.safetensors", **headers: str) -> Got:
    return get(location(hub, file), **headers)


@pytest.mark.parametrize(
    ("asked", "part"),
    [("0-9", slice(10)), ("8-", slice(8, None)), ("-5", slice(-5, None)), ("100-999999999", slice(100, None))],
)
def test_a_range_is_a_part(hub: FakeHub, asked: str, part: slice):
    got = fetch(hub, Range=f"bytes={asked}")
    assert (got.status, got.body) == (206, WEIGHTS[part])
    start, stop, _ = part.indices(len(WEIGHTS))
    assert got.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(WEIGHTS)}"
    assert hub.seen("cdn")[-1].range == f"bytes={asked}"
    assert hub.weight_bytes == len(got.body)


def test_a_range_past_the_end_is_refused(hub: FakeHub):
    got = fetch(hub, Range=f"bytes={len(WEIGHTS)}-")
    assert (got.status, got.headers["Content-Range"]) == (416, f"bytes */{len(WEIGHTS)}")


def test_the_head_of_a_small_file_and_of_an_lfs_file():
    with FakeHub(MODEL) as hub:
        small = get(f"{hub.endpoint}/org/model/resolve/main/config.json", method="HEAD")
        large = get(f"{hub.endpoint}/org/model/resolve/{MODEL.commit}/a.safetensors", method="HEAD")
    a = MODEL.tree["a.safetensors"]
    assert (small.status, small.headers["ETag"], small.headers["Content-Length"]) == (
        200,
        '"9e26dfeeb6e641a33dae4961196235bdb965b21b"',  # git's own name of "{}"
        "2",
    )
    assert (large.status, large.headers["X-Linked-Etag"]) == (302, f'"{a.sha256}"')
    assert large.headers["X-Linked-Size"] == str(len(WEIGHTS))
    assert small.headers["X-Repo-Commit"] == large.headers["X-Repo-Commit"] == MODEL.commit


def test_a_tree_of_ten_thousand_files_has_pages():
    many = FakeRepository("org/many", {f"{number:05}.txt": b"" for number in range(10_000)})
    with FakeHub(many) as hub:
        address, names = f"{hub.endpoint}/api/models/org/many/tree/main?recursive=true", []
        while address:
            got = get(address)
            names += [entry["path"] for entry in json.loads(got.body)]
            address = got.headers.get("Link", "<").partition("<")[2].partition(">")[0]
        assert len(hub.seen("tree")) == 10
    assert names == sorted(many.files)


def test_a_location_is_good_so_often(hub: FakeHub):
    hub.switches.signature_uses = 2
    address = location(hub)
    assert [get(address).status for _ in range(3)] == [200, 200, 403]
    assert fetch(hub).status == 200  # another HEAD gives another one


def test_a_line_is_cut_so_often(hub: FakeHub):
    hub.switches.cut = Cut(1000, times=2)
    got = [fetch(hub) for _ in range(3)]
    assert [(len(one.body), one.broken) for one in got] == [(1000, True), (1000, True), (len(WEIGHTS), False)]
    hub.switches.cut = Cut(1000, math.inf)
    assert len(fetch(hub, Range="bytes=99-").body) == 1000
    assert len(fetch(hub, Range="bytes=0-999").body) == 1000  # not longer: whole


def test_a_byte_is_flipped_in_the_parts_that_have_it(hub: FakeHub):
    hub.switches.flip, hub.switches.only = Flip(70_000, times=1), "b.safetensors"
    assert fetch(hub).body == WEIGHTS
    assert fetch(hub, "b.safetensors", Range="bytes=0-69999").body == FILES["b.safetensors"][:70_000]
    wrong = fetch(hub, "b.safetensors", Range="bytes=1000-").body
    right = FILES["b.safetensors"][1000:]
    assert [at for at, (is_, should) in enumerate(zip(wrong, right, strict=True)) if is_ != should] == [69_000]
    assert fetch(hub, "b.safetensors").body == FILES["b.safetensors"]


def test_a_range_is_ignored_and_a_length_is_wrong(hub: FakeHub):
    hub.switches.ignore_range = True
    got = fetch(hub, Range="bytes=5-")
    assert (got.status, got.body) == (200, WEIGHTS)
    hub.switches.length_off_by = 3
    got = fetch(hub)
    assert (got.headers["Content-Length"], got.broken) == (str(len(WEIGHTS) + 3), True)


@pytest.mark.parametrize(("piece", "waits"), [(40_000, 2), (70_000, 1), (len(WEIGHTS) + 1, 0)])
def test_a_slow_line_waits_after_so_many_bytes(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, piece: int, waits: int):
    waited: list[float] = []
    monkeypatch.setattr(hub.closing, "wait", waited.append)
    hub.switches.drip = Drip(piece, 0.5)
    assert fetch(hub).body == WEIGHTS
    assert waited == [0.5] * waits


def test_what_hangs_is_let_go_by_release(hub: FakeHub):
    hub.switches.hang.add("info")
    got: list[Got] = []
    client = threading.Thread(target=lambda: got.append(get(f"{hub.endpoint}/api/models/org/model")))
    client.start()
    assert hub.stalled.wait(60)
    assert hub.log[-1].status == 0
    hub.switches.hang.clear()
    hub.release()
    client.join(60)
    assert [one.status for one in got] == [200]


def test_a_body_is_held_at_a_byte(hub: FakeHub):
    """Where a test kills a download."""
    hub.switches.hold_after = 70_001
    got: list[Got] = []
    address = location(hub)
    client = threading.Thread(target=lambda: got.append(get(address)))
    client.start()
    assert hub.stalled.wait(60)
    assert hub.weight_bytes == 70_001
    hub.release()
    client.join(60)
    assert got[0].body == WEIGHTS


def test_a_hub_closes_though_a_client_waits():
    ended = []

    def client(address: str) -> None:
        try:
            get(address)
        except OSError:
            ended.append("broken")

    with FakeHub(MODEL) as hub:
        hub.switches.hang.add("tree")
        waits = threading.Thread(target=client, args=[f"{hub.endpoint}/api/models/org/model/tree/main"])
        waits.start()
        assert hub.stalled.wait(60)
    waits.join(60)
    assert not waits.is_alive()


def test_answers_can_be_scripted_one_by_one(hub: FakeHub):
    address = f"{hub.endpoint}/api/models/org/model"
    hub.instead("info", Answer(500), None, Answer(429, {"Retry-After": "1"}))
    assert [get(address).status for _ in range(4)] == [500, 200, 429, 200]
    hub.instead("info", Answer(503), times=2)
    assert [get(address).status for _ in range(3)] == [503, 503, 200]
    hub.always("auth-check", Answer(502))
    assert {get(f"{address}/auth-check").status for _ in range(5)} == {502}


def test_the_nth_request_can_hang(hub: FakeHub):
    hub.instead("resolve", None, HANG)
    location(hub)
    assert not hub.stalled.is_set()
    client = threading.Thread(target=location, args=[hub])
    client.start()
    assert hub.stalled.wait(60)
    assert [one.status for one in hub.seen("resolve")] == [302, 0]
    hub.release()
    client.join(60)
    assert [one.status for one in hub.seen("resolve")] == [302, 302]


def test_a_usual_answer_may_have_other_headers(hub: FakeHub):
    hub.switches.headers["resolve"] = {"X-Linked-Etag": '"../../x"'}
    got = get(f"{hub.endpoint}/org/model/resolve/main/a.safetensors", method="HEAD")
    assert (got.status, got.headers["X-Linked-Etag"]) == (302, '"../../x"')
    assert got.headers["X-Repo-Commit"] == MODEL.commit


def test_what_a_client_sends_is_in_the_log_and_refused(hub: FakeHub):
    assert get(f"{hub.endpoint}/api/models/org/model", method="POST").status == 404
    assert [(one.kind, one.method) for one in hub.log] == [("other", "POST")]


def test_a_header_may_carry_anything(hub: FakeHub):
    hub.instead("info", refused(403, ESCAPES))
    headers = get(f"{hub.endpoint}/api/models/org/model").headers
    assert (headers["X-Error-Message"], headers["Set-Cookie"]) == ("\x1b[31mred", "a=b")


def test_names_paths_and_licences_are_served_as_they_are():
    hostile = FakeRepository(f"org/{ESCAPES}", {"../x": b"1", "/etc/y": b"2", "a\\b": b"3"}, licence=ESCAPES)
    with FakeHub(hostile) as hub:
        (row,) = json.loads(get(f"{hub.endpoint}/api/models?search=red").body)
        tree = json.loads(get(f"{hub.endpoint}/api/models/{quote(hostile.name)}/tree/main?recursive=true").body)
    assert row["id"] == hostile.name
    assert f"license:{ESCAPES}" in row["tags"]
    assert {"../x", "/etc/y", "a\\b"} <= {entry["path"] for entry in tree}


def test_a_new_commit_moves_main_and_keeps_the_old_one(hub: FakeHub):
    new = hub.push(FakeRepository("org/model", {"config.json": b"[]"}), "v2")
    statuses = {}
    for revision in ("main", "v2", new.commit, MODEL.commit, MODEL.commit[:8], "refs%2Fpr%2F1"):
        got = get(f"{hub.endpoint}/org/model/resolve/{revision}/config.json")
        statuses[revision] = got.body if got.status == 200 else got.headers["X-Error-Code"]
    assert list(statuses.values()) == [b"[]", b"[]", b"[]", b"{}", "RevisionNotFound", "RevisionNotFound"]


def test_a_search_with_an_unknown_filter_is_refused(hub: FakeHub):
    """The real hub ignores it: a misspelt filter would find everything there, and be noticed by nobody."""
    assert get(f"{hub.endpoint}/api/models?serach=x").status == 400


def test_what_only_telemetry_asks_is_counted(hub: FakeHub):
    get(f"{hub.endpoint}/api/agent-harnesses")
    assert [one.kind for one in hub.log] == ["agent-harnesses"]


def test_a_token_that_the_hub_does_not_know_is_refused():
    with FakeHub(MODEL, account=Account()) as hub:
        got = get(f"{hub.endpoint}/api/models/org/model", Authorization="Bearer hf_revoked")
    assert (got.status, got.headers["X-Error-Message"]) == (401, "Invalid credentials in Authorization header")


def test_a_fault_of_the_fake_fails_the_test():
    hub = FakeHub(MODEL)
    hub.switches.search_page = "many"  # type: ignore[assignment]
    with pytest.raises(OSError, match=r"closed|reset"):
        get(f"{hub.endpoint}/api/models")
    with pytest.raises(AssertionError, match="the fake hub failed"):
        hub.__exit__(None, None, None)


def test_a_fake_hub_is_served_by_hand(tmp_path: Path):
    """What to export, then what it offers; Ctrl+C ends it."""
    (tmp_path / "repos" / "org" / "mine").mkdir(parents=True)
    (tmp_path / "repos" / "org" / "mine" / "config.json").write_text("{}", encoding="utf-8")
    words = ("--gate", "awaiting", "--slow", "1000", "--cut-every", "9", "--folder", str(tmp_path / "repos"))
    command = [sys.executable, "-m", "tests.support.fake_hub", *words, "--home", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as program:
        assert program.stdout is not None
        lines = list(iter(lambda: program.stdout.readline().strip(), "# serves until Ctrl+C"))
        exported = dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export"))
        token = {"Authorization": f"Bearer {exported['HF_TOKEN']}"}
        gate = get(f"{exported['HF_ENDPOINT']}/api/models/facebook/layerskip-llama2-7B/auth-check", **token)
        program.send_signal(2)
        assert program.wait(60) == 0
    assert "awaiting a review" in gate.headers["X-Error-Message"]
    assert any("org/mine" in line for line in lines)
    assert exported["HF_HOME"] == str(tmp_path)
