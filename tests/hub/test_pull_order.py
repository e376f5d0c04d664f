"""The order of a download: the revision names the commit last, the hub's own programs agree, what stopped is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir, snapshot_download
from msgspec.structs import replace

from localspec.core.errors import AccessDenied, CheckpointError, DoesNotFit, PullError, UsageError
from localspec.hub import blobs, pulls
from localspec.hub.card import licence_at
from localspec.hub.deletion import delete
from localspec.hub.download import fetch
from localspec.hub.inventory import details, list_models
from localspec.hub.licences import remembered
from localspec.hub.records import Access, DraftOffer, Fetched, Licence, Pulled, PullPlan, PullRequest
from localspec.hub.transfer import TransferTimeouts
from localspec.models import hub_cache
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.known_pairs import PULLED
from localspec.tui.chat.licence import licences
from tests.support.fake_hub import HANG, Answer, FakeHub, FakeRepository, Flip
from tests.support.pull_stage import CONFIG, MEBI, NAME, QUICK, WEIGHTS, a_plan, as_planned, hub, model

pytestmark = pytest.mark.heavy

__all__ = ["hub"]
MODEL, NEWER, DRAFTER = model(), model(seed=1), model("org/drafter", MEBI)
PATIENT = TransferTimeouts(silence=20, waits=QUICK.waits, tick=0.01)


def pulled(plan: PullPlan, deadlines: TransferTimeouts = PATIENT) -> Pulled:
    last = list(fetch(plan, PullRequest(plan.target.repo, draft="none"), deadlines))[-1]
    assert isinstance(last, Pulled)
    return last


def test_a_model_is_found_by_its_name_and_can_be_opened(hub: FakeHub):
    found = pulled(a_plan(MODEL))
    folder = hub_cache.snapshot(NAME)
    assert folder is not None
    assert found.target == Fetched(NAME, MODEL.commit, str(folder), as_planned(MODEL).num_bytes, 1)
    assert open_snapshot(folder).revision == MODEL.commit
    assert pulls.unfinished() == []
    assert hub.seen("cdn")


def test_what_the_hub_named_is_remembered_until_it_is_deleted(hub: FakeHub):
    """The licence of each, and the pair."""
    hub.push(DRAFTER)
    plan = a_plan(MODEL, DRAFTER)
    licensed = replace(plan.target, licence=Licence("apache-2.0"))
    pulled(replace(plan, target=licensed, offer=DraftOffer("model", name="org/drafter")))
    folder = hub_cache.snapshot(NAME)
    assert folder is not None
    assert (licence_at(folder).words, described_licence(NAME)) == ("apache-2.0", "apache-2.0")
    assert licences(NAME).endswith(f"{NAME}: its repository says apache-2.0.")
    assert remembered("org/drafter") == Licence(), "it named none"
    assert dict(details(NAME).drafts)["auto"] == "a smaller model (drafter)"
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    assert licence_at(folder).words == "mit", "the card comes first"
    list(delete([NAME]))
    assert (remembered(NAME), PULLED.read()) == (Licence(), {})


def described_licence(name: str) -> str:
    return next(one.licence.words for one in list_models() if one.name == name)


def test_a_complete_one_asks_the_hub_for_nothing(hub: FakeHub):
    pulled(a_plan(MODEL))
    hub.forget()
    assert pulled(a_plan(MODEL)).target.checked == 0
    assert hub.log == ()


def test_of_a_gguf_repository_the_file_is_what_loads(hub: FakeHub, tmp_path: Path):
    from tests.support.gguf_files import save_pair  # imports torch

    file, _ = save_pair(tmp_path / "made")
    fake = FakeRepository("org/tiny-GGUF", {"tiny-F32.gguf": file, "README.md": b"of a model"})
    hub.push(fake)
    found = pulled(a_plan(fake))
    assert Path(found.file) == hub_cache.kept(fake.name) / "snapshots" / fake.commit / "tiny-F32.gguf"
    assert open_snapshot(Path(found.file)).is_gguf


def test_the_target_comes_first_and_its_drafter_after(hub: FakeHub):
    hub.push(DRAFTER)
    found = list(fetch(a_plan(MODEL, DRAFTER), PullRequest(NAME), PATIENT))
    assert [event.repo for event in found if isinstance(event, Fetched)] == [NAME, DRAFTER.name]
    assert isinstance(found[-1], Pulled)
    assert found[-1].drafter is not None
    assert hub_cache.snapshot(DRAFTER.name)


def test_the_hubs_own_programs_agree(hub: FakeHub):
    """Check 12: no warning, the files found offline by our patterns, and transformers can load by name."""
    pulled(a_plan(MODEL))
    cache = scan_cache_dir(hub_cache.folder())
    (repository,) = cache.repos
    assert cache.warnings == []
    assert not cache.incomplete_files
    assert {name: at.commit_hash for name, at in repository.refs.items()} == {"main": MODEL.commit}
    files = [file.path for file in as_planned(MODEL).files]
    offline = snapshot_download(
        NAME, revision=MODEL.commit, allow_patterns=files, local_files_only=True, cache_dir=hub_cache.folder()
    )
    assert offline == str(hub_cache.snapshot(NAME))
    assert not hub.seen("agent-harnesses")


LOADS = """
import sys
from transformers import AutoConfig, AutoTokenizer
print(AutoConfig.from_pretrained(sys.argv[1]).hidden_size, len(AutoTokenizer.from_pretrained(sys.argv[1])))
"""


@pytest.mark.slow
def test_transformers_loads_it_offline_by_its_name(hub: FakeHub, tmp_path: Path):
    """Check 12, in a child without a hub; and `hf cache ls` lists it."""
    pulled(a_plan(MODEL))
    alone = hub.environment(tmp_path) | {"HF_HUB_OFFLINE": "1"}
    loaded = subprocess.run([sys.executable, "-c", LOADS, NAME], env=alone, capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == [str(CONFIG["hidden_size"]), str(CONFIG["vocab_size"])]
    command = [sys.executable, "-m", "huggingface_hub.cli.hf", "cache", "ls"]
    listed = subprocess.run(command, env=alone, capture_output=True, text=True, check=True)
    assert NAME in listed.stdout
    assert "warning" not in listed.stderr.lower()


def test_while_it_is_unfinished_the_older_version_is_there(hub: FakeHub):
    """Check 2: an update that stops hides nothing."""
    pulled(a_plan(MODEL))
    hub.push(NEWER)
    hub.switches.flip = Flip()
    with pytest.raises(PullError):
        pulled(a_plan(NEWER))
    assert hub_cache.snapshot(NAME) == blobs.snapshot_dir(NAME, MODEL.commit)
    hub.switches.flip = None
    pulled(a_plan(NEWER))
    assert hub_cache.snapshot(NAME) == blobs.snapshot_dir(NAME, NEWER.commit)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["resolve", "cdn", "tree"])
def test_a_first_download_that_stops_is_not_found_by_its_name(hub: FakeHub, kind: str):
    """Check 2."""
    hub.always(kind, HANG)  # type: ignore[arg-type]
    with pytest.raises(PullError):
        pulled(a_plan(MODEL), QUICK)
    assert hub_cache.snapshot(NAME) is None


def test_files_that_could_not_be_loaded_are_not_named(hub: FakeHub):
    """Check 2: all bytes are right, and it is no model."""
    broken = FakeRepository(NAME, {**MODEL.files, WEIGHTS: b"no weights"})
    hub.push(broken)
    with pytest.raises(CheckpointError):
        pulled(a_plan(broken))
    assert hub_cache.snapshot(NAME) is None


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("revision", "named"), [("", "main"), ("main", "main"), ("v1", "v1"), ("refs/pr/1", "refs/pr/1")]
)
def test_only_what_was_asked_for_names_the_commit(revision: str, named: str):
    pulled(a_plan(MODEL, revision=revision))
    references = blobs.repo_dir(NAME) / "refs"
    found = [file.relative_to(references).as_posix() for file in references.rglob("*") if file.is_file()]
    assert found == [named]
    assert scan_cache_dir(hub_cache.folder()).warnings == []


def test_a_commit_is_named_by_nothing(hub: FakeHub):
    pulled(a_plan(MODEL, revision=MODEL.commit))
    assert not (blobs.repo_dir(NAME) / "refs").exists()
    hub.forget()
    pulled(a_plan(MODEL, revision=MODEL.commit))
    assert hub.log == ()


@pytest.mark.parametrize("revision", ["../main", "/etc/x", "a/../../b", ".hidden", "a\nb", "a//b"])
def test_a_revision_leads_to_no_file_outside(hub: FakeHub, revision: str):
    """Check 10."""
    with pytest.raises(PullError, match="not the name of a revision"):
        pulled(a_plan(MODEL, revision=revision))
    assert hub.log == ()


@pytest.mark.parametrize("hash", ["../../x", "A" * 64, "", "a" * 63])
def test_a_hash_leads_to_no_file_outside(hub: FakeHub, hash: str):
    """Check 10: the hub says what a blob is called."""
    plan = a_plan(MODEL)
    hostile = replace(plan.target.files[0], sha256=hash, blob_id="../x")
    with pytest.raises(PullError, match="gave no hash"):
        pulled(replace(plan, target=replace(plan.target, files=(hostile,))))
    assert hub.log == ()
    assert pulls.unfinished() == []


def test_a_closed_gate_and_a_full_disk_end_it_before_the_first_byte(hub: FakeHub):
    plan = a_plan(MODEL)
    closed = replace(plan.target, access=Access("awaiting", "https://hub/page"))
    with pytest.raises(AccessDenied):
        pulled(replace(plan, target=closed))
    with pytest.raises(DoesNotFit, match="The disk is too full"):
        pulled(replace(plan, disk_needed=1 << 60))
    with pytest.raises(CheckpointError, match="only pickles"):
        pulled(replace(plan, unloadable="It has only pickles."))
    with pytest.raises(UsageError, match="several models"):
        pulled(replace(plan, target=replace(plan.target, files=())))
    assert hub.log == ()
    assert pulls.unfinished() == []


def test_what_stopped_is_kept_with_its_reason(hub: FakeHub):
    hub.instead("cdn", Answer(503), times=9)
    with pytest.raises(PullError):
        pulled(a_plan(MODEL))
    (left,) = pulls.unfinished()
    small = sum(file.size for file in as_planned(MODEL).files if not file.sha256)
    assert (left.repo, left.commit, left.done, left.running) == (NAME, MODEL.commit, small, False)
    assert left.total == as_planned(MODEL).num_bytes
    assert left.reason == "The download stopped: the hub answered 503."
    assert left.request == PullRequest(NAME, draft="none")


def test_two_files_of_a_gguf_repository_that_stopped_are_kept_both(hub: FakeHub):
    both = FakeRepository("org/m-GGUF", {f"m-{quant}.gguf": quant.encode() * MEBI for quant in ("Q4_0", "Q8_0")})
    hub.push(both)
    plan = a_plan(both)
    for file in plan.target.files:
        hub.instead("cdn", Answer(503), times=9)
        one = replace(plan, target=replace(plan.target, files=(file,)))
        with pytest.raises(PullError):
            list(fetch(one, PullRequest(both.name, variant=file.path, draft="none"), QUICK))
    stopped = "The download stopped: the hub answered 503."
    assert {one.name: one.reason for one in pulls.unfinished()} == {
        "org/m-GGUF:m-Q4_0.gguf": stopped, "org/m-GGUF:m-Q8_0.gguf": stopped
    }  # fmt: skip


def test_a_download_that_runs_is_known_to_run(hub: FakeHub):
    hub.switches.hold_after = MEBI
    events = fetch(a_plan(MODEL), PullRequest(NAME), PATIENT)
    next(events)
    (left,) = pulls.unfinished()
    assert left.running
    assert left.reason == pulls.INTERRUPTED  # what it is if the process is killed now
    events.close()
    hub.release()


@pytest.mark.usefixtures("hub")
def test_parts_of_other_programs_are_unfinished_too():
    part = blobs.repo_dir("some/other") / "blobs" / "abc.1234.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(1000))
    (left,) = pulls.unfinished()
    assert (left.repo, left.done, left.total, left.request) == ("some/other", 1000, 0, None)


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("content", ["", "{", "[]", '{"repo": "../x"}'])
def test_a_damaged_note_is_no_download(content: str):
    (pulls.state_file(NAME)).write_text(content)
    assert pulls.unfinished() == []


@pytest.mark.usefixtures("hub")
def test_without_a_folder_for_notes_it_is_downloaded_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("LOCALSPEC_STATE_DIR", str(tmp_path / "file" / "state"))
    pulled(a_plan(MODEL))
    assert hub_cache.snapshot(NAME)
    assert pulls.unfinished() == []


def test_unfinished_downloads_are_read_without_the_hubs_library():
    script = "import sys; from localspec.hub import api, integrity, pulls; sys.exit('huggingface_hub' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
