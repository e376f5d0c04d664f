"""verify-files: every byte against the hash that is known of it, with no network and no hub library."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from localspec.core.paths import packaged
from localspec.hub import blobs, manifests
from localspec.hub.download import fetch
from localspec.hub.integrity import FilesVerified, Verifying, mend, verify_files
from localspec.hub.records import PullPlan, PullRequest
from localspec.hub.transfer import TransferTimeouts
from localspec.models import hub_cache
from tests.support.fake_hub import FakeHub, FakeRepository
from tests.support.pull_stage import INDEX, MEBI, NAME, QUICK, WEIGHTS, a_plan, hub, model

pytestmark = pytest.mark.heavy

__all__ = ["hub"]
MODEL, SHARDS = model(), model("org/shards", MEBI, MEBI)
PATIENT = TransferTimeouts(silence=20, waits=QUICK.waits, tick=0.01)
GUIDE = packaged("assets/guide") / "draft"


def verified(path: Path) -> FilesVerified:
    last = list(verify_files(path))[-1]
    assert isinstance(last, FilesVerified)
    return last


def states(path: Path) -> dict[str, str]:
    return {file.path: file.state for file in verified(path).files}


def flip(file: Path) -> None:
    """Another byte, at the same length."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.fixture
def folder(hub: FakeHub) -> Path:
    """A model in the cache, whose hub is no longer asked."""
    for _ in fetch(a_plan(MODEL), PullRequest(NAME), PATIENT):
        pass
    found = hub_cache.snapshot(NAME)
    assert found is not None
    hub.forget()
    return found


def test_what_came_is_right(folder: Path, hub: FakeHub):
    """Check 18: nothing is asked of the hub."""
    assert states(folder) == dict.fromkeys(MODEL.files, "right")
    assert verified(folder).bad == ()
    assert hub.log == ()


def test_it_works_without_any_network(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Check 18."""
    monkeypatch.setattr(socket, "socket", None)
    assert set(states(folder).values()) == {"right"}
    modules = "import sys; from localspec.hub import integrity"
    script = f"{modules}; sys.exit(bool({{'huggingface_hub', 'torch'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("file", [WEIGHTS, "config.json"])
def test_a_flipped_byte_is_found_and_fetched_alone(folder: Path, hub: FakeHub, file: str):
    """Check 18: sha256 of a large file and git's hash of a small one; the next pull fetches the bad one alone."""
    flip((folder / file).resolve())
    (bad,) = verified(folder).bad
    assert (bad.path, bad.state, bad.detail) == (file, "wrong", "its bytes do not have its hash")
    assert mend(verified(folder)) == (file,)
    assert not (folder / file).exists()
    for _ in fetch(a_plan(MODEL), PullRequest(NAME), PATIENT):
        pass
    assert {request.path.rpartition("/")[2] for request in hub.seen("resolve")} == {file}
    assert verified(folder).bad == ()


def test_progress_goes_up_to_all_bytes(folder: Path):
    shown = [event for event in verify_files(folder) if isinstance(event, Verifying)]
    assert all(later.done >= sooner.done for sooner, later in pairwise(shown))
    assert shown[-1].done == shown[-1].total == sum(file.size for file in MODEL.tree.values())


def test_a_link_to_another_file_than_the_hub_lists_is_wrong(folder: Path):
    """Its blob is right by its own name: the hub's list for this commit says which file it must be."""
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(os.readlink(folder / "tokenizer_config.json"))
    (bad,) = verified(folder).bad
    assert (bad.path, bad.detail) == ("config.json", "it is another file than the hub lists for this commit")


def test_a_link_to_nothing_is_missing(folder: Path):
    (folder / WEIGHTS).resolve().unlink()
    (bad,) = verified(folder).bad
    assert (bad.path, bad.state) == (WEIGHTS, "missing")


def test_a_shard_that_the_index_names_is_missing(hub: FakeHub):
    hub.push(SHARDS)
    for _ in fetch(a_plan(SHARDS), PullRequest(SHARDS.name), PATIENT):
        pass
    folder = blobs.snapshot_dir(SHARDS.name, SHARDS.commit)
    shard = next(path for path in SHARDS.files if path.startswith("model-00002"))
    (folder / shard).unlink()
    (bad,) = verified(folder).bad
    assert (bad.path, bad.state, bad.detail) == (shard, "missing", f"{INDEX} names it")


@pytest.mark.parametrize("known", ["by the download", "by the hub's list", "by nothing"])
def test_weights_that_are_gone_are_missing_and_a_pull_fetches_them(folder: Path, hub: FakeHub, known: str):
    """A deleted link leaves no trace in the folder: the download's own list, the hub's, or the form tells of it."""
    if known != "by the download":
        manifests.forget(NAME)
    if known == "by nothing":
        (folder.parent.parent / "trees" / f"{folder.name}.json").unlink()
    blob = (folder / WEIGHTS).resolve()
    (folder / WEIGHTS).unlink()
    blob.unlink()
    (bad,) = verified(folder).bad
    assert (bad.path, bad.state) == (WEIGHTS, "missing")
    for _ in fetch(a_plan(MODEL), PullRequest(NAME), PATIENT):
        pass
    assert {request.path.rpartition("/")[2] for request in hub.seen("resolve")} == {WEIGHTS}
    assert verified(folder).bad == ()


def test_a_small_file_that_came_and_is_gone_is_missing(folder: Path):
    (folder / "tokenizer_config.json").unlink()
    assert [file.path for file in verified(folder).bad] == ["tokenizer_config.json"]
    manifests.forget(NAME)
    assert [file.path for file in verified(folder).bad] == ["tokenizer_config.json"]


def test_files_that_a_download_leaves_out_are_not_missing(hub: FakeHub):
    """The hub's list has them; what localspec loads, and its papers, are what is compared."""
    more = model("org/more")
    more = FakeRepository(more.name, {**more.files, "pytorch_model.bin": b"x", "README.md": b"# A model"})
    hub.push(more)
    folder = hub_cache.folder() / "models--org--more" / "snapshots" / more.commit
    for _ in fetch(replaced(a_plan(more), "pytorch_model.bin"), PullRequest(more.name), PATIENT):
        pass
    assert verified(folder).bad == ()
    (folder / "README.md").unlink()
    assert [file.path for file in verified(folder).bad] == ["README.md"]
    manifests.forget(more.name)
    assert verified(folder).bad == ()


def replaced(plan: PullPlan, left_out: str) -> PullPlan:
    """The plan without one file, as the selection makes it."""
    files = tuple(file for file in plan.target.files if file.path != left_out)
    return replace(plan, target=replace(plan.target, files=files))


def test_a_damaged_list_of_the_hubs_is_no_evidence(folder: Path):
    tree = folder.parent.parent / "trees" / f"{folder.name}.json"
    tree.write_text("{")
    assert set(states(folder).values()) == {"right"}


def test_of_a_plain_folder_the_form_is_checked(tmp_path: Path):
    """No hash is known: it is said, and what can be checked is."""
    copy = shutil.copytree(GUIDE, tmp_path / "copy")
    found = {file.path: (file.state, file.detail) for file in verified(copy).files}
    assert found[WEIGHTS] == ("unknown", "no hash of it is known; its header and its length are right")
    assert found["config.json"] == ("unknown", "no hash of it is known")
    with (copy / WEIGHTS).open("ab") as file:
        file.write(b"more")
    (bad,) = verified(copy).bad
    assert bad.path == WEIGHTS
    assert mend(verified(copy)) == ()
    assert (copy / WEIGHTS).exists()  # nobody could fetch it again


def test_ollamas_blobs_are_named_by_their_hash(tmp_path: Path):
    content = b"GGUF and more"
    blob = tmp_path / f"sha256-{sha256(content).hexdigest()}"
    blob.write_bytes(content)
    assert states(blob) == {blob.name: "right"}
    flip(blob)
    assert states(blob) == {blob.name: "wrong"}


def test_a_gguf_file_without_a_hash_is_read_as_one(tmp_path: Path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    assert states(broken) == {broken.name: "wrong"}


def test_what_cannot_be_read_is_wrong_and_never_waited_for(folder: Path):
    target = (folder / "config.json").resolve()
    target.unlink()
    os.mkfifo(target)
    (bad,) = verified(folder).bad
    assert bad.detail.startswith("it cannot be read")
