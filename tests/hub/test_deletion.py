"""Deleting cached models: what it frees is known before and measured after; what others share stays."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from huggingface_hub import constants, snapshot_download
from huggingface_hub.utils import WeakFileLock
from msgspec.structs import replace

from localspec.core import paths
from localspec.core.errors import NotDownloaded, PullError, UsageError
from localspec.hub import blobs, manifests, pulls
from localspec.hub.deletion import delete
from localspec.hub.download import fetch
from localspec.hub.older import older, older_of
from localspec.hub.records import Deleted, DeletePlan, ModelFiles, PullPlan, PullRequest, RemoteFile
from localspec.hub.selection import pick
from localspec.hub.transfer import TransferTimeouts
from localspec.hub.writers import is_written
from localspec.loading.packed_files import named_after
from localspec.models import hub_cache
from localspec.runtime import load_marks
from tests.conftest import Program
from tests.support.fake_hub import FakeHub
from tests.support.pull_stage import MEBI, NAME, QUICK, a_plan, as_planned, hub, model

__all__ = ["hub"]
MODEL, NEWER, OTHER = model(), model(seed=1), model("org/other", MEBI)
PATIENT = TransferTimeouts(silence=20, waits=QUICK.waits, tick=0.01)
BLOCK = 4096
XET = "c" * 64
WHOLE = next(file for file in as_planned(MODEL).files if file.sha256)


def pulled(plan: PullPlan) -> None:
    for _ in fetch(plan, PullRequest(plan.target.repo), PATIENT):
        pass


def deleted(
    *repos: str, older: tuple[str, ...] = (), models: tuple[ModelFiles, ...] = ()
) -> tuple[DeletePlan, Deleted]:
    plan, done = delete(repos, older, models)
    assert isinstance(plan, DeletePlan)
    assert isinstance(done, Deleted)
    return plan, done


def disk_bytes() -> int:
    """All that the cache's files take, however many names one has."""
    files = [Path(at) / name for at, _, names in os.walk(hub_cache.folder()) for name in names]
    return sum(file.lstat().st_size for file in files if not file.is_symlink())


def assert_as_planned(plan: DeletePlan, done: Deleted, before: int) -> None:
    assert done.freed_bytes == before - disk_bytes()
    assert abs(plan.freed_bytes - done.freed_bytes) <= BLOCK


def test_it_frees_what_it_said(hub: FakeHub):
    """Check 15."""
    hub.push(OTHER)
    pulled(a_plan(MODEL))
    pulled(a_plan(OTHER))
    before = disk_bytes()
    plan, done = deleted(NAME)
    assert_as_planned(plan, done, before)
    assert done.freed_bytes >= as_planned(MODEL).num_bytes
    assert plan.repos == done.repos == (NAME,)
    assert hub_cache.snapshot(NAME) is None
    assert hub_cache.snapshot(OTHER.name)


@pytest.mark.usefixtures("hub")
def test_only_the_plan_is_made_until_it_is_agreed_to():
    pulled(a_plan(MODEL))
    before = disk_bytes()
    plan = next(delete([NAME]))
    assert isinstance(plan, DeletePlan)
    assert disk_bytes() == before


def test_the_drafter_that_was_not_complete_brings_the_target_back_no_more(hub: FakeHub, localspec: Program):
    """Its note named the target's pull: `localspec pull` fetched both again, with one yes."""
    hub.push(OTHER)
    pulled(a_plan(MODEL))
    request = PullRequest(NAME, draft=OTHER.name)
    pulls.begin(as_planned(OTHER), request)
    assert [one.request for one in pulls.unfinished()] == [request]
    deleted(NAME)
    (left,) = pulls.unfinished()
    assert (left.name, left.request) == (OTHER.name, PullRequest(OTHER.name, draft="none"))
    hub.forget()
    assert localspec("pull", "--yes")[0] == 0
    assert not [one for one in hub.log if NAME in one.path]
    assert hub_cache.snapshot(OTHER.name)
    assert hub_cache.snapshot(NAME) is None


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("files", "variant"),
    [
        (("m-Q8_0.gguf",), "m-Q8_0.gguf"),
        (("big/m-Q8_0-00001-of-00002.gguf", "big/m-Q8_0-00002-of-00002.gguf"), "big/m-Q8_0.gguf"),
    ],
)
def test_a_drafter_of_one_gguf_file_stays_that_file(files: tuple[str, ...], variant: str):
    parts = tuple(RemoteFile(path, MEBI, "a" * 64) for path in files)
    drafter = replace(as_planned(OTHER), files=parts, revision="v1")
    pulls.begin(drafter, PullRequest(NAME, draft=f"{OTHER.name}:Q8_0"))
    pulls.forget(NAME)
    (left,) = pulls.unfinished()
    assert left.request == PullRequest(OTHER.name, "v1", variant, draft="none")
    assert {file.path for file in pick(OTHER.name, parts, variant)} == set(files)


def test_every_version_goes(hub: FakeHub):
    pulled(a_plan(MODEL))
    hub.push(NEWER)
    pulled(a_plan(NEWER))
    before = disk_bytes()
    large = max(file.size for file in as_planned(MODEL).files)
    plan, done = deleted(NAME)
    assert_as_planned(plan, done, before)
    assert plan.older_bytes == large, "the rest is the same file in both"
    assert not blobs.repo_dir(NAME).exists()


def prepared(*models: Path) -> list[Path]:
    """A copy in the weight cache for each, as its name has it, in two formats."""
    made = [
        paths.packed_dir() / f"{named_after(model)}-int8-{'0' * 15}{at}.safetensors" for at, model in enumerate(models)
    ]
    made += [file.with_name(file.name.replace("-int8-", "-nf4-cuda-")) for file in made]
    for file in made:
        file.write_bytes(bytes(MEBI))
    return made


def test_prepared_weights_go_with_their_model_and_count(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Those of every version, of a GGUF file too, and of no other model."""
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    updated(hub)
    old, new = (blobs.snapshot_dir(NAME, one.commit) for one in (MODEL, NEWER))
    (blob := blobs.repo_dir(NAME) / "blobs" / ("d" * 64)).write_bytes(b"gguf")
    (new / "m.gguf").symlink_to(os.path.relpath(blob, new))
    mine, others = prepared(old, new, new / "m.gguf"), prepared(tmp_path)
    without = disk_bytes()
    plan, done = deleted(older=(NAME,))
    assert plan.prepared_bytes == 2 * MEBI
    assert done.freed_bytes == plan.freed_bytes == 2 * MEBI + without - disk_bytes()
    assert [file for file in mine if not file.exists()] == [mine[0], mine[3]]
    plan, done = deleted(NAME)
    assert plan.prepared_bytes == 4 * MEBI
    assert abs(plan.freed_bytes - done.freed_bytes) <= BLOCK
    assert not any(file.exists() for file in mine)
    assert all(file.exists() for file in others)


def updated(hub: FakeHub, revision: str = "") -> int:
    """A version that a newer one replaces; the bytes that only the older one uses."""
    pulled(a_plan(MODEL, revision=revision))
    hub.push(NEWER)
    pulled(a_plan(NEWER))
    return max(file.size for file in as_planned(MODEL).files)


def test_an_older_version_is_known_with_what_it_alone_uses_and_is_deleted_alone(hub: FakeHub):
    large = updated(hub)
    (found,) = older()
    assert (found.repo, found.commits, found.num_bytes) == (NAME, (MODEL.commit,), large)
    before = disk_bytes()
    plan, done = deleted(older=(NAME,))
    assert (plan.repos, plan.older, done.older) == ((), (NAME,), (NAME,))
    assert plan.freed_bytes == plan.older_bytes == large
    assert_as_planned(plan, done, before)
    kept = hub_cache.snapshot(NAME)
    assert kept == blobs.snapshot_dir(NAME, NEWER.commit)
    assert all((kept / file).exists() for file in NEWER.files)
    assert older() == ()
    assert manifests.files_of(NAME, NEWER.commit)


def test_a_version_that_another_program_fetched_is_older_once_a_pull_replaced_it(hub: FakeHub):
    pulled(a_plan(MODEL))
    manifests.forget(NAME)
    hub.push(NEWER)
    pulled(a_plan(NEWER))
    assert older_of(NAME).commits == (MODEL.commit,)


def test_a_version_that_was_pulled_by_its_commit_is_never_older(hub: FakeHub):
    """Also where its branch is pulled before it, or after."""
    updated(hub, revision=MODEL.commit)
    assert older() == ()
    hub.push(MODEL)
    pulled(a_plan(MODEL))
    hub.push(NEWER)
    pulled(a_plan(NEWER, revision=NEWER.commit))
    pulled(a_plan(NEWER))
    assert older() == ()
    before = disk_bytes()
    assert deleted(older=(NAME,))[1].freed_bytes == 0
    assert disk_bytes() == before


@pytest.mark.parametrize("is_known", [True, False], ids=["pulled", "another program's"])
def test_a_version_whose_files_were_fetched_again_is_older_as_before(hub: FakeHub, is_known: bool):
    """`verify-files --fetch` asks for the commit that is here, which pins nothing."""
    pulled(a_plan(MODEL))
    if not is_known:
        manifests.forget(NAME)
    (blobs.snapshot_dir(NAME, MODEL.commit) / "model.safetensors").unlink()
    for _ in fetch(a_plan(MODEL, revision=MODEL.commit), PullRequest(NAME, MODEL.commit, repairs=True), PATIENT):
        pass
    hub.push(NEWER)
    pulled(a_plan(NEWER))
    assert older_of(NAME).commits == (MODEL.commit,)


def test_a_pinned_version_whose_files_were_fetched_again_stays_pinned(hub: FakeHub):
    pulled(a_plan(MODEL, revision=MODEL.commit))
    for _ in fetch(a_plan(MODEL, revision=MODEL.commit), PullRequest(NAME, MODEL.commit, repairs=True), PATIENT):
        pass
    hub.push(NEWER)
    pulled(a_plan(NEWER))
    assert older() == ()


@pytest.mark.parametrize(
    "table", ["revision = '{}'", "[models.x.draft]\nkind = 'model'\nmodel = 'org/model@{}'"], ids=["model", "drafter"]
)
def test_a_version_that_models_toml_names_is_not_older(hub: FakeHub, table: str):
    """As `pull --as KEY` writes it."""
    updated(hub)
    paths.models_file().parent.mkdir(parents=True)
    paths.models_file().write_text(f"schema_version = 1\n[models.x]\nrepo = '{NAME}'\n{table.format(MODEL.commit)}\n")
    assert older() == ()


def test_a_version_that_a_tag_names_or_that_is_loaded_is_not_older(hub: FakeHub):
    updated(hub)
    mark = load_marks.mark(blobs.snapshot_dir(NAME, MODEL.commit))
    assert mark is not None
    assert older() == ()
    mark.close()
    assert older()
    (blobs.repo_dir(NAME) / "refs" / "v1").write_text(MODEL.commit)
    assert older() == ()


def test_nothing_is_older_while_the_newer_version_is_not_complete(hub: FakeHub):
    """A pull that stopped may need files of it; and a branch may name a commit of which another program has fetched
    the tokenizer alone."""
    updated(hub)
    pulls.begin(as_planned(NEWER), PullRequest(NAME))
    assert older() == ()
    pulls.forget(NAME)
    assert older()
    (blobs.snapshot_dir(NAME, NEWER.commit) / "model.safetensors").unlink()
    assert older() == ()


@pytest.mark.usefixtures("warm_hub")
def test_what_the_hubs_own_program_downloads_now_is_not_deleted(hub: FakeHub, localspec: Program):
    """Its parts are another program's, of which no note says that it is alive; what stopped can be deleted."""
    hub.switches.hold_after = MEBI
    where = {"cache_dir": hub_cache.folder(), "endpoint": hub.endpoint}
    downloads = threading.Thread(target=snapshot_download, args=[NAME], kwargs=where)
    downloads.start()
    try:
        assert hub.stalled.wait(60)
        (part,) = blobs.blob(NAME, WHOLE).parent.glob(f"{WHOLE.sha256}.*.incomplete")
        os.utime(part, (0, 0))  # a line that has been silent for long
        code, _, err = localspec("rm", NAME, "--yes")
        assert (code, f"error: Another program downloads {NAME} now. Wait for its end" in err) == (2, True)
        with pytest.raises(UsageError, match="Another program downloads"):
            deleted(older=(NAME,))
    finally:
        hub.switches.hold_after = None
        hub.release()
        downloads.join(60)
    assert hub_cache.snapshot(NAME)
    assert localspec("rm", NAME, "--yes")[0] == 0
    assert not blobs.repo_dir(NAME).exists()


def a_foreign_part(age_seconds: float) -> Path:
    """As the hub's library names it; last written to so long ago."""
    part = blobs.blob(NAME, WHOLE).with_name(f"{WHOLE.sha256}.12345678.incomplete")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(bytes(1000))
    at = time.time() - age_seconds
    os.utime(part, (at, at))
    return part


@pytest.mark.usefixtures("hub")
def test_a_part_of_the_last_minute_is_being_written_unless_its_lock_says_otherwise():
    a_foreign_part(50)
    with pytest.raises(UsageError, match="Another program downloads"):
        deleted(NAME)
    lock = blobs.lock(NAME, WHOLE)
    lock.parent.mkdir(parents=True)
    lock.touch()  # as it is left by a program that was killed
    assert not is_written(NAME)
    with WeakFileLock(lock):
        assert is_written(NAME)
    lock.unlink()
    a_foreign_part(70)
    deleted(NAME)
    assert not blobs.repo_dir(NAME).exists()


@pytest.mark.usefixtures("hub")
def test_a_download_that_began_while_the_question_stood_ends_the_deletion():
    part = a_foreign_part(3600)
    plan = delete([NAME])
    next(plan)
    os.utime(part)
    with pytest.raises(UsageError, match="Another program downloads"):
        next(plan)
    assert part.exists()


@pytest.mark.usefixtures("hub")
def test_parts_and_what_is_known_of_them_go_too():
    pulled(a_plan(MODEL))
    part = blobs.repo_dir(NAME) / "blobs" / f"{'a' * 64}{blobs.PART}"
    part.write_bytes(bytes(MEBI))
    pulls.begin(as_planned(MODEL), PullRequest(NAME))
    before = disk_bytes()
    plan, done = deleted(NAME)
    assert plan.unfinished_bytes == MEBI
    assert_as_planned(plan, done, before)
    assert pulls.unfinished() == []


@pytest.mark.usefixtures("hub")
def test_a_download_that_never_came_to_an_end_can_be_deleted():
    """The hub's library calls such a folder damaged, and does not list it."""
    part = blobs.part(NAME, next(file for file in as_planned(MODEL).files if file.sha256))
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(MEBI))
    plan, done = deleted(NAME)
    assert plan.freed_bytes == plan.unfinished_bytes == done.freed_bytes == MEBI
    assert not blobs.repo_dir(NAME).exists()


@pytest.mark.skipif(not hasattr(constants, "HF_HUB_DISABLE_SHARED_BLOBS"), reason="this library shares no blobs")
def test_blobs_that_another_repository_shares_stay(hub: FakeHub):
    """Check 15: with Xet, a blob of several repositories is one file, to which each has a link."""
    hub.push(OTHER)
    pulled(a_plan(MODEL))
    pulled(a_plan(OTHER))
    shared = share(NAME, OTHER.name)
    before = disk_bytes()
    plan, done = deleted(NAME)
    assert plan.shared_bytes == shared.stat().st_size
    assert_as_planned(plan, done, before)
    plan, done = deleted(OTHER.name)
    assert plan.shared_bytes == 0
    assert not shared.exists()


@pytest.mark.skipif(not hasattr(constants, "HF_HUB_DISABLE_SHARED_BLOBS"), reason="this library shares no blobs")
def test_one_model_of_several_frees_a_shared_blob_when_no_other_has_it(hub: FakeHub):
    hub.push(OTHER)
    pulled(a_plan(MODEL))
    pulled(a_plan(OTHER))
    shared = share(NAME, OTHER.name)
    size = shared.stat().st_size
    for repo, freed in ((NAME, 0), (OTHER.name, size)):
        before = disk_bytes()
        plan, done = deleted(models=(ModelFiles(repo, f"{repo}:weights", (WHOLE.path,)),))
        assert_as_planned(plan, done, before)
        assert (plan.shared_bytes, plan.freed_bytes, shared.exists()) == (size - freed, freed, not freed)
        assert (hub_cache.snapshot(repo) or Path()).joinpath("config.json").exists()


def share(*repos: str) -> Path:
    """Replaces the weights of these by one file, as the library's shared blobs are laid out."""
    store = hub_cache.folder() / "blobs"
    whole = store / XET[:2] / XET
    whole.parent.mkdir(parents=True)
    (store / ".huggingface-shared-blobs").write_text("1\n")
    links = [max(blobs.repo_dir(repo).glob("blobs/*"), key=blobs.size) for repo in repos]
    for link in links:
        os.replace(link, whole)
        link.symlink_to(os.path.relpath(whole, link.parent))
    lines = "".join(f"{link.relative_to(hub_cache.folder())}\n" for link in links)
    whole.with_name(f"{XET}.refs").write_text(lines)
    return whole


@pytest.mark.usefixtures("hub")
def test_two_repositories_with_the_same_commit_are_two():
    """The library finds a commit by its hash alone, and a copied repository has the same ones."""
    copied = replace(as_planned(model("org/copied")), commit=MODEL.commit)
    pulled(a_plan(MODEL))
    twin = blobs.repo_dir(copied.repo)
    shutil.copytree(blobs.repo_dir(NAME), twin, symlinks=True)
    for repo, other in ((NAME, copied.repo), (copied.repo, NAME)):
        plan = next(delete([repo]))
        assert isinstance(plan, DeletePlan)
        assert plan.freed_bytes >= as_planned(MODEL).num_bytes
        assert hub_cache.snapshot(other)
    deleted(NAME)
    assert hub_cache.snapshot(NAME) is None
    assert hub_cache.snapshot(copied.repo)


@pytest.mark.usefixtures("hub")
def test_what_is_not_here_or_being_downloaded_is_not_deleted(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(NotDownloaded):
        deleted("org/unknown")
    with pytest.raises(PullError):
        deleted("../..")
    pulled(a_plan(MODEL))
    monkeypatch.setattr("localspec.hub.pulls.running", lambda _: True)
    with pytest.raises(UsageError, match="is being downloaded"):
        deleted(NAME)
    assert hub_cache.snapshot(NAME)
