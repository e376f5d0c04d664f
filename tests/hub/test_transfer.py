"""Downloads of one repository: resumed by byte, hashed, under deadlines, with a bar that never goes back."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from inspect import Parameter, getsource, signature
from itertools import pairwise

import pytest
from huggingface_hub import constants, hf_hub_download
from huggingface_hub.file_download import http_get

from localspec.core.errors import HubAway, PullError
from localspec.core.events import Notice
from localspec.core.sizes import size_words
from localspec.hub import blobs, fetcher
from localspec.hub.download import fetch
from localspec.hub.meter import Meter
from localspec.hub.part import PartFile
from localspec.hub.records import Fetched, Progress, PullRequest, RemoteFile, Retrying
from localspec.hub.transfer import Transfer, TransferTimeouts
from localspec.models import hub_cache
from tests.support.fake_hub import HANG, Answer, Cut, Drip, FakeHub, FakeRepository, Flip
from tests.support.pull_stage import ANA, MEBI, NAME, QUICK, SMALL, WEIGHTS, a_plan, as_planned, hub, model

pytestmark = pytest.mark.heavy

__all__ = ["hub"]
MODEL = model()
FILE = MODEL.tree[WEIGHTS]
LARGE = RemoteFile(FILE.path, FILE.size, FILE.sha256, FILE.oid)
PATIENT = TransferTimeouts(silence=20, waits=QUICK.waits, tick=0.01)
Events = list[Progress | Retrying | Notice]


def transfer(fake: FakeRepository = MODEL, deadlines: TransferTimeouts = PATIENT) -> Transfer:
    repository = as_planned(fake)
    meter = Meter(repository.num_bytes, sum(blobs.bytes_here(fake.name, file) for file in repository.files))
    meter.turn_to(fake.name, elsewhere=0)
    return Transfer(repository, meter, deadlines=deadlines)


def transferred(fake: FakeRepository = MODEL, deadlines: TransferTimeouts = PATIENT) -> Events:
    return list(transfer(fake, deadlines).events())


def bars(events: Events) -> list[Progress]:
    return [event for event in events if isinstance(event, Progress)]


def is_whole(fake: FakeRepository = MODEL) -> bool:
    """Every file is linked, with its own bytes."""
    folder = blobs.snapshot_dir(fake.name, fake.commit)
    return all(sha256((folder / path).read_bytes()).hexdigest() == file.sha256 for path, file in fake.tree.items())


def part_bytes() -> int:
    return blobs.size(blobs.part(NAME, LARGE))


def stopped_at(hub: FakeHub, count: int) -> None:
    """Downloads until the CDN has sent so many bytes, and stops there."""
    hub.switches.hold_after = count
    events = transfer().events()
    for _ in events:
        if part_bytes() == count:
            break
    events.close()
    hub.switches.hold_after = None
    hub.release()


def assert_never_back(events: Events) -> None:
    shown = bars(events)
    assert all(later.done >= sooner.done for sooner, later in pairwise(shown))
    assert all(0 <= event.done <= event.total == shown[0].total for event in shown)


def test_a_download_is_whole_checked_and_linked(hub: FakeHub):
    one = transfer()
    events = list(one.events())
    assert is_whole()
    assert one.checked == 1
    assert bars(events)[-1].done == as_planned(MODEL).num_bytes
    assert_never_back(events)
    assert hub.weight_bytes == FILE.size


def test_what_a_download_links_before_its_weights_is_no_version(hub: FakeHub):
    """A cancelled one may be deleted with its repository's folder; a version may not."""
    hub.switches.hold_after = MEBI
    events = transfer().events()
    folder = blobs.snapshot_dir(NAME, MODEL.commit)
    for _ in events:
        if part_bytes() == MEBI and all((folder / path).exists() for path in SMALL):
            break
    events.close()
    assert not hub_cache.has_version(NAME)
    hub.switches.hold_after = None
    hub.release()
    transferred()
    assert hub_cache.has_version(NAME)


@pytest.mark.parametrize("count", [1, 100_000, FILE.size - 1])
def test_what_came_is_not_fetched_again(hub: FakeHub, count: int):
    """Check 1: the next request asks for the bytes from where the part ends, and the hash is that of the whole."""
    stopped_at(hub, count)
    hub.forget()
    events = transferred()
    (request,) = hub.seen("cdn")
    assert request.range == f"bytes={count}-"
    assert request.sent_bytes == FILE.size - count
    assert bars(events)[0].resumed >= count
    assert is_whole()


def test_a_part_that_is_the_whole_file_needs_no_request(hub: FakeHub):
    part = blobs.part(NAME, LARGE)
    part.parent.mkdir(parents=True)
    part.write_bytes(MODEL.files[WEIGHTS])  # type: ignore[arg-type]
    transferred()
    assert is_whole()
    assert not hub.seen("cdn")


def test_a_part_with_wrong_bytes_is_fetched_anew(hub: FakeHub):
    """Check 4: what is left of another time is hashed before it is believed."""
    part = blobs.part(NAME, LARGE)
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(1000))
    transferred()
    assert is_whole()
    assert [request.range for request in hub.seen("cdn")] == ["bytes=1000-", ""]


@pytest.mark.usefixtures("hub")
def test_a_part_that_is_too_long_is_fetched_anew():
    part = blobs.part(NAME, LARGE)
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(FILE.size + 1))
    transferred()
    assert is_whole()


@pytest.mark.usefixtures("hub")
def test_a_blob_with_wrong_bytes_is_fetched_anew():
    """Check 4: the hub's own programs do not check what they fetch."""
    blob = blobs.blob(NAME, LARGE)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(bytes(FILE.size))
    transferred()
    assert is_whole()


def test_a_flipped_byte_is_fetched_again_once(hub: FakeHub):
    """Check 4."""
    hub.switches.flip = Flip(times=1)
    events = transferred()
    assert is_whole()
    assert len(hub.seen("cdn")) == 2
    assert_never_back(events)


@pytest.mark.parametrize("at", [0, -1])
def test_bytes_that_stay_wrong_are_never_used(hub: FakeHub, at: int):
    """Check 4: the sentence names the file; neither a blob nor a part of it is left."""
    hub.switches.flip = Flip(at=at)
    with pytest.raises(PullError, match=r"model\.safetensors: its bytes do not have the hub's hash") as fault:
        transferred()
    assert fault.value.exit_code == 7
    locations = {request.query["sig"][0] for request in hub.seen("cdn")}  # the library asks again at one by itself
    assert len(locations) == 2
    assert not blobs.blob(NAME, LARGE).exists()
    assert not part_bytes()


def test_a_small_file_with_other_bytes_is_never_used(hub: FakeHub):
    """Check 4: git's own hash is checked, too."""
    body = b"[]" + bytes(MODEL.tree["config.json"].size - 2)
    headers = {"X-Repo-Commit": MODEL.commit, "ETag": f'"{MODEL.tree["config.json"].oid}"'}
    hub.always("resolve", Answer(200, headers, body))
    small = FakeRepository(NAME, {"config.json": MODEL.files["config.json"]})
    with pytest.raises(PullError, match=r"config\.json: its bytes do not have"):
        transferred(small)
    assert not blobs.blob(NAME, as_planned(small).files[0]).exists()


def test_a_server_that_ignores_the_range_does_not_move_the_bar_back(hub: FakeHub):
    """Checks 4 and 6: the library begins the file anew; the bar holds still until the bytes have passed it."""
    stopped_at(hub, MEBI)
    hub.switches.ignore_range = True
    hub.switches.drip = Drip(MEBI // 4, 0.02)
    events = transferred()
    assert is_whole()
    assert_never_back(events)
    assert bars(events)[0].done >= MEBI


def test_a_length_that_is_too_short_still_ends_in_the_right_bytes(hub: FakeHub):
    """Check 4: each answer says less than there is, and the rest is asked for."""
    hub.switches.length_off_by = -1000
    with pytest.raises(PullError, match="The download stopped: the connection was lost"):
        transferred()
    assert not blobs.blob(NAME, LARGE).exists()
    hub.switches.length_off_by = 0
    transferred()
    assert is_whole()


def test_a_length_that_is_too_long_is_a_line_that_was_cut(hub: FakeHub):
    """Check 4: the bytes are all there when the line ends."""
    hub.switches.length_off_by = 1000
    transferred()
    assert is_whole()


def test_a_refused_range_begins_the_file_anew(hub: FakeHub):
    """Check 4: 416."""
    stopped_at(hub, MEBI)
    hub.instead("cdn", Answer(416, {"Content-Range": "bytes */1"}))
    transferred()
    assert is_whole()


def test_a_cut_line_goes_on_where_it_was_cut(hub: FakeHub):
    hub.switches.cut = Cut(200_000, times=5)
    events = transferred()
    assert is_whole()
    assert hub.weight_bytes == FILE.size
    assert_never_back(events)


def test_an_address_that_has_expired_is_asked_for_again(hub: FakeHub):
    """Signed addresses are good for a while only: a refusal by the CDN is answered by a new HEAD."""
    hub.switches.signature_uses = 1
    hub.switches.cut = Cut(MEBI, times=1)
    events = transferred()
    assert is_whole()
    assert [event.reason for event in events if isinstance(event, Retrying)] == ["the address of the file has expired"]
    assert sum(request.sent_bytes for request in hub.seen("cdn") if request.status < 300) == FILE.size


def test_a_hub_with_a_fault_of_its_own_is_asked_again_with_waits(hub: FakeHub):
    hub.instead("cdn", Answer(503), Answer(503))
    events = transferred()
    assert is_whole()
    assert [event.seconds for event in events if isinstance(event, Retrying)] == list(QUICK.waits[:2])


def test_after_the_last_wait_it_ends_and_says_what_is_kept(hub: FakeHub):
    stopped_at(hub, 2 * MEBI)
    hub.always("cdn", Answer(503))
    with pytest.raises(PullError, match=r"The download stopped: the hub answered 503\.") as fault:
        transferred()
    assert fault.value.hint == "2 MB are kept; repeat to go on."
    assert part_bytes() == 2 * MEBI


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["resolve", "cdn", "tree"])
def test_a_hub_that_never_answers_ends_it_with_a_sentence(hub: FakeHub, kind: str):
    """Check 5: at each request of a download; what came stays."""
    stopped_at(hub, 2 * MEBI)
    hub.always(kind, HANG)  # type: ignore[arg-type]
    with pytest.raises(PullError, match=r"The hub stopped answering \(0\.5 s\)\.") as fault:
        transferred(deadlines=QUICK)
    assert fault.value.exit_code == 7
    assert "MB are kept; repeat to go on." in fault.value.hint
    assert part_bytes() >= 2 * MEBI or blobs.blob(NAME, LARGE).exists()


def test_silence_is_counted_over_all_tries_and_said_once(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    """Check 5: the library gives up sooner, and each file is asked for again; that is no connection that was lost."""
    weights = {path: file for path, file in model(NAME, MEBI, MEBI).files.items() if path.endswith(".safetensors")}
    shards = FakeRepository(NAME, weights)
    hub.push(shards)
    hub.always("resolve", HANG)
    monkeypatch.setattr(fetcher, "get_hf_file_metadata", partial(fetcher.get_hf_file_metadata, timeout=0.1))
    events: Events = []
    with pytest.raises(HubAway, match=r"The hub stopped answering \(1 s\)\."):
        events.extend(transfer(shards, replace(QUICK, silence=1, waits=(0.01,) * 40)).events())
    assert not [event for event in events if isinstance(event, Retrying)]
    assert len(hub.seen("resolve")) > 2 * len(weights)
    with pytest.raises(HubAway, match=r"The download stopped: the hub does not answer\."):
        transferred(shards, replace(QUICK, silence=20, waits=()))


def test_a_hub_that_answers_with_its_own_faults_is_not_silent(hub: FakeHub):
    """However long the waits between the tries are."""
    hub.instead("cdn", *[Answer(503)] * 3)
    transferred(deadlines=replace(QUICK, silence=0.2, waits=(0.25,) * 3))
    assert is_whole()


def test_a_hub_that_goes_away_before_the_files_are_linked_is_asked_again(hub: FakeHub):
    """The library returns the folder as far as it goes, and does not say why."""
    for kind in ("tree", "info"):
        hub.always(kind, Answer(503))  # type: ignore[arg-type]
    with pytest.raises(HubAway, match=r"The download stopped: the hub answered 503\.") as fault:
        transferred()
    assert fault.value.hint == "3 MB are kept; repeat to go on."
    hub.forget()
    reasons = []
    for event in transfer().events():
        if isinstance(event, Retrying):
            reasons.append(event.reason)
            hub.switches.instead.clear()
    assert reasons == ["the hub answered 503"]
    assert is_whole()
    assert not hub.seen("cdn")


def test_a_line_that_falls_silent_in_the_middle_ends_it(hub: FakeHub):
    """Check 5."""
    hub.switches.hold_after = 2 * MEBI
    with pytest.raises(PullError, match=r"stopped answering") as fault:
        transferred(deadlines=QUICK)
    assert fault.value.hint == "2 MB are kept; repeat to go on."


def test_a_hub_has_half_a_minute_and_who_watches_hears_of_it_ten_times_a_second_at_most():
    """Checks 5 and 16: the deadlines of a download by default; other tests shorten them."""
    usual = TransferTimeouts()
    assert (usual.silence, usual.tick, usual.beat) == (30, 0.1, 1)


def test_a_slow_line_is_not_silent(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    """Check 6: a few bytes now and then are enough, for much longer than the deadline of silence; it is called slow."""
    monkeypatch.setattr("localspec.hub.meter.WINDOW_SECONDS", 0.1)
    tiny = model(NAME, 20)
    hub.push(tiny)
    hub.switches.drip = Drip(8, 0.015)
    events = transferred(tiny, replace(PATIENT, silence=1))
    assert is_whole(tiny)
    assert_never_back(events)
    assert len({event.done for event in bars(events)}) > 10  # each piece is shown, not each 10 MiB
    assert any(event.slow for event in bars(events))


def test_events_come_while_no_byte_does(hub: FakeHub):
    """Whoever reads them knows that the process lives."""
    hub.switches.hold_after = MEBI
    events = transfer(deadlines=replace(PATIENT, beat=0.02)).events()
    still = 0
    for event in events:
        still += isinstance(event, Progress) and hub.stalled.is_set()
        if still == 5:
            break
    events.close()
    assert still == 5
    hub.release()


def test_a_full_disk_says_what_is_kept_and_what_to_free(hub: FakeHub):
    """Check 8: exit 7; the next try goes on."""
    other = blobs.repo_dir("some/other") / "blobs" / "abc.1234.incomplete"
    other.parent.mkdir(parents=True)
    other.write_bytes(bytes(MEBI))
    with pytest.raises(PullError) as fault, limited_files(2_000_000):
        transferred()
    assert fault.value.message == "The disk is full: 2 MB of 3 MB are kept."
    shown = "(localspec ls --unfinished shows 1 MB of others' parts)"
    assert fault.value.hint == f"Free 1.1 GB {shown}, then repeat."  # what the next try wants to be free
    assert fault.value.exit_code == 7
    assert part_bytes() == 2_000_000
    hub.forget()
    transferred()
    assert is_whole()
    assert hub.weight_bytes == FILE.size - 2_000_000


def test_a_full_disk_wants_the_bytes_of_the_drafter_too(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    """To free less is to be refused by the next try."""
    monkeypatch.setattr("localspec.hub.transfer.SPARE_BYTES", 0)
    hub.push(drafter := model("org/drafter", 2 * MEBI))
    plan = a_plan(MODEL, drafter)
    with pytest.raises(PullError) as fault, limited_files(2_000_000):
        list(fetch(plan, PullRequest(NAME, draft=drafter.name), QUICK))
    assert fault.value.message == "The disk is full: 2 MB of 6 MB are kept."
    missing = sum(file.size - blobs.bytes_here(one.repo, file) for one in plan.repositories for file in one.files)
    assert missing > drafter.tree[WEIGHTS].size
    assert fault.value.hint == f"Free {size_words(missing)}, then repeat."


@contextmanager
def limited_files(count: int) -> Iterator[None]:
    """No file grows over so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_two_at_once_fetch_the_weights_once(hub: FakeHub):
    """Check 9: the second waits, shows what the first has, and finds the blob there."""
    hub.switches.hold_after = 2 * MEBI
    second: Events = []
    shown = waits = False
    first = threading.Thread(target=transferred)
    first.start()
    assert hub.stalled.wait(20)
    for event in transfer().events():
        second.append(event)
        shown |= isinstance(event, Progress) and event.done >= 2 * MEBI
        waits |= isinstance(event, Notice)
        if shown and waits:
            hub.release()
    first.join()
    assert is_whole()
    assert hub.weight_bytes == FILE.size
    assert [event.code for event in second if isinstance(event, Notice)] == ["waits"]
    assert_never_back(second)


def test_the_hubs_own_programs_wait_for_us(hub: FakeHub):
    """Check 9: `hf download` beside us takes the same lock, and finds the blob when it has it."""
    hub.switches.hold_after = 2 * MEBI
    found: list[str] = []
    ours = threading.Thread(target=transferred)
    ours.start()
    assert hub.stalled.wait(20)
    heads = len(hub.seen("resolve"))
    cache = hub_cache.folder()
    theirs = threading.Thread(
        target=lambda: found.append(
            hf_hub_download(NAME, WEIGHTS, revision=MODEL.commit, cache_dir=cache, endpoint=hub.endpoint)
        )
    )
    theirs.start()
    while len(hub.seen("resolve")) == heads:
        theirs.join(0.01)
    hub.release()
    ours.join()
    theirs.join()
    assert found == [str(blobs.snapshot_dir(NAME, MODEL.commit) / WEIGHTS)]
    assert hub.weight_bytes == FILE.size


@pytest.mark.usefixtures("hub")
def test_a_cache_that_cannot_be_written_is_a_sentence():
    hub_cache.folder().mkdir(parents=True)
    (hub_cache.folder() / ".locks").write_text("no folder")
    with pytest.raises(PullError, match=r"\.locks.* cannot be written"):
        transferred()


def test_what_is_there_is_read_before_it_is_believed(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    """A large part takes a while to be read: the stage says so, and the bar begins with its bytes."""
    stopped_at(hub, 2 * MEBI)
    read = PartFile.read_again

    def slowly(part: PartFile, step: Callable[[], None]) -> None:
        threading.Event().wait(0.1)
        read(part, step)

    monkeypatch.setattr(PartFile, "read_again", slowly)
    checking = [
        event for event in bars(transferred(deadlines=replace(PATIENT, beat=0.01))) if event.stage == "checking"
    ]
    assert checking
    assert all(event.done >= 2 * MEBI for event in checking)


def test_four_files_come_at_once(hub: FakeHub):
    shards = model(NAME, *[MEBI] * 6)
    hub.push(shards)
    hub.switches.hold_after = 1000
    one = transfer(shards)
    events = one.events()
    most = 0
    for _ in events:
        if hub.switches.hold_after and len(hub.seen("cdn")) == 4:
            threading.Event().wait(0.05)
            most = len(hub.seen("cdn"))
            hub.switches.hold_after = None
            hub.release()
    assert most == 4
    assert is_whole(shards)
    assert one.checked == 6


def test_the_token_is_for_the_hub_alone(hub: FakeHub):
    """Check 7."""
    events = list(fetch(a_plan(MODEL), PullRequest(NAME), PATIENT))
    assert ANA.token not in repr(events)
    assert all(request.has_authorization for request in hub.seen("resolve"))
    assert hub.seen("cdn")
    assert not any(request.has_authorization for request in hub.seen("cdn"))
    assert not hub.seen("agent-harnesses")


def test_bytes_are_on_the_disk_as_they_come(hub: FakeHub):
    """The library alone would keep up to 10 MiB of them in memory."""
    stopped_at(hub, 12_345)
    assert part_bytes() == 12_345
    assert os.listdir(blobs.blob(NAME, LARGE).parent)


def test_the_library_can_be_asked_to_fetch_the_weights(hub: FakeHub):
    """--xet: said so; without Xet it fetches them by HTTP. The bytes are hashed all the same."""
    events = list(fetch(a_plan(MODEL), PullRequest(NAME, xet=True), PATIENT))
    assert [event.code for event in events if isinstance(event, Notice)] == ["xet"]
    assert is_whole()
    assert [event.checked for event in events if isinstance(event, Fetched)] == [1]
    assert hub.weight_bytes == FILE.size


def test_a_file_that_only_the_library_can_fetch_is_named(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    """Begun anew, over 50 GB: the notice of --xet, for that file. One that was begun is resumed, without a notice."""
    stopped_at(hub, MEBI)
    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", FILE.size - 1)
    assert not [event for event in transferred() if isinstance(event, Notice)]
    assert is_whole()
    other = model("org/other", 2 * MEBI)
    hub.push(other)
    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", MEBI)
    monkeypatch.setattr("huggingface_hub.file_download.http_get", partial(without_size, http_get))
    (notice,) = [event for event in transferred(other) if isinstance(event, Notice)]
    assert is_whole(other)
    assert (notice.code, WEIGHTS in notice.message) == ("xet", True)


def without_size(get: Callable[..., None], *where: object, **options: object) -> None:
    """The library's download without its own bound of 50 GB, which only Xet passes."""
    get(*where, **{**options, "expected_size": None})


def test_what_the_library_fetched_wrongly_is_not_used(hub: FakeHub):
    hub.switches.flip = Flip()
    with pytest.raises(PullError, match="its bytes do not have the hub's hash"):
        list(fetch(a_plan(MODEL), PullRequest(NAME, xet=True), PATIENT))
    assert not blobs.blob(NAME, LARGE).exists()


def test_the_library_has_what_is_used_of_it():
    """Check 26: http_get is not documented, and its size of a chunk is read when it is called."""
    given = signature(http_get).parameters
    assert list(given)[:2] == ["url", "temp_file"]
    wanted = {"resume_size", "headers", "expected_size", "displayed_filename", "tqdm_class"}
    assert wanted <= {name for name, one in given.items() if one.kind is Parameter.KEYWORD_ONLY}
    assert constants.DOWNLOAD_CHUNK_SIZE is None
    assert "constants.DOWNLOAD_CHUNK_SIZE" in getsource(http_get)


def test_a_fault_of_our_own_is_no_file_that_is_left_out(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    """Whatever a thread raises ends the download, and nothing is linked."""

    def fail(*_: object) -> bool:
        raise IndexError("a bug")

    monkeypatch.setattr("localspec.hub.fetcher.Fetcher._fetch_large", fail)
    with pytest.raises(IndexError, match="a bug"):
        transferred()
    assert not hub.seen("tree")
