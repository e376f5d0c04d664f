"""Headers read by ranges into a folder that the loader opens as it is, of every kind of file, within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localspec.core.errors import CheckpointError, PullError, UsageError
from localspec.core.requests import WeightOptions
from localspec.hub import headers
from localspec.hub.headers import RemoteRepo, open_headers
from localspec.hub.plan import prepare
from localspec.hub.records import FitRequest, PullRequest
from localspec.hub.remote_fit import answer_fit
from localspec.hub.repository import files_of, see
from localspec.loading.fit import fit_report, request_here
from localspec.models.checkpoint import Snapshot, open_snapshot
from tests.support.fake_hub import FakeHub, FakeRepository, Flip
from tests.support.hub_clients import GUIDE, client_of, guide, in_shards, small_model

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("online")]


def opened(hub: FakeHub, scratch: Path, repo: str, variant: str = "") -> Snapshot:
    seen = see(client_of(hub), repo, "", scratch)
    return open_headers(seen.remote, files_of(seen, variant))


def facts(model: Snapshot) -> dict[str, Any]:
    """What the loader knows of a model; of tensors without their folder."""
    tensors = {
        name: (info.file.name, info.dtype, info.shape, info.begin, info.end) for name, info in model.tensors.items()
    }
    return {
        "tensors": tensors,
        "config": model.config,
        "ends": model.eos_ids,
        "template": model.chat_template,
        "stored": model.stored_as,
        "tokenizer": model.read_tokenizer().text,
    }


def test_shards_are_read_at_their_headers(tmp_path: Path):
    """One range each; the index says which."""
    folder = in_shards(GUIDE / "target", tmp_path / "shards")
    with FakeHub(FakeRepository.from_folder("org/guide", folder)) as hub:
        found = opened(hub, tmp_path / "scratch", "org/guide")
        assert len(hub.seen("cdn")) == 2
    assert facts(found) == facts(open_snapshot(folder))


@pytest.mark.parametrize("whole_file_instead", [False, True])
def test_a_header_longer_than_the_first_range_is_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_file_instead: bool
):
    """From where it was, also at a hub that ignores ranges."""
    monkeypatch.setattr(headers, "FIRST_BYTES", 300)
    with FakeHub(guide()) as hub:
        hub.switches.ignore_range = whole_file_instead
        found = opened(hub, tmp_path, "org/guide")
        first, second = hub.seen("cdn")
        assert (first.range, second.range.partition("-")[0]) == ("bytes=0-299", "bytes=300")
    assert facts(found) == facts(open_snapshot(GUIDE / "target"))


@pytest.mark.parametrize(("kind", "split"), [("Q8_0", 0), ("Q4_K", 0), ("F16", 8)])
def test_a_gguf_header_is_read_in_growing_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, split: int
):
    """Metadata, tokenizer and tensors, of split files too; not the weights."""
    from tests.support.gguf_files import save_gguf, save_pair

    monkeypatch.setattr(headers, "FIRST_GGUF_BYTES", 4096)
    monkeypatch.setattr("localspec.models.gguf.reading.CHUNK", 1024)
    file, folder = save_pair(tmp_path / "made", kind)
    if split:
        file.unlink()
        save_gguf(file, folder, kind, tensors_each=split)
    files = {one.name: one for one in (tmp_path / "made").glob("*.gguf")}
    with FakeHub(FakeRepository("org/gguf", files)) as hub:
        found = opened(hub, tmp_path / "scratch", "org/gguf", kind)
        weights = sum(one.stat().st_size for one in files.values())
        assert hub.weight_bytes < weights / 2
    assert facts(found) == facts(open_snapshot(min(files.values())))


def test_llama_3s_factors_are_read_with_the_header(tmp_path: Path):
    """They are a tensor, and belong to the configuration."""
    from tests.support.gguf_files import save_pair

    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"original_max_position_embeddings": 8192}
    file, _ = save_pair(tmp_path / "made", "Q8_0", rope_scaling=rope)
    with FakeHub(FakeRepository("org/gguf", {"m-Q8_0.gguf": file})) as hub:
        found = opened(hub, tmp_path / "scratch", "org/gguf", "Q8_0")
    assert facts(found)["config"] == facts(open_snapshot(file))["config"]


def test_a_gguf_repository_is_a_list_with_a_fit_for_each_file(tmp_path: Path):
    """One header is read for all; the chosen one has its own fit, which is that of the file."""
    from tests.support.gguf_files import save_pair

    small, _ = save_pair(tmp_path / "a", "Q4_0")
    large, _ = save_pair(tmp_path / "b", "Q8_0")
    with FakeHub(FakeRepository("org/gguf", {"m-Q8_0.gguf": large, "m-Q4_0.gguf": small})) as hub:
        client = client_of(hub)
        plan = prepare(client, PullRequest("org/gguf"), tmp_path / "scratch")
        chosen = prepare(client, PullRequest("org/gguf", variant="Q8_0"), tmp_path / "scratch")
        found = answer_fit(client, FitRequest("org/gguf", variant="Q8_0"), tmp_path / "scratch")
        with pytest.raises(UsageError, match="several models in GGUF") as raised:
            answer_fit(client, FitRequest("org/gguf"), tmp_path / "scratch")
    assert [(one.name, one.num_bytes) for one in plan.variants] == [
        ("Q4_0", small.stat().st_size),
        ("Q8_0", large.stat().st_size),
    ]
    assert (plan.target.files, plan.fit) == ((), None)
    assert "org/gguf:NAME, e.g. Q4_0, Q8_0" in raised.value.hint
    after = fit_report(open_snapshot(large, "org/gguf"), request_here(WeightOptions()))
    assert chosen.fit is not None
    assert chosen.fit.formats == after.formats == found.report.formats == plan.variants[1].formats
    assert [file.path for file in chosen.target.files] == ["m-Q8_0.gguf"]


def test_a_small_file_with_other_bytes_than_the_hub_lists_is_not_believed(tmp_path: Path):
    """Nor kept."""
    pushed = FakeRepository("org/m", small_model(), lfs=frozenset({"tokenizer.json", "model.safetensors"}))
    with FakeHub(pushed) as hub:
        hub.switches.flip = Flip(at=5)
        with pytest.raises(PullError, match=r"tokenizer\.json: its bytes do not have the hub's hash"):
            opened(hub, tmp_path, "org/m")
    assert not list(tmp_path.rglob("tokenizer.json"))


def test_a_header_that_is_too_long_to_be_one_is_not_fetched(tmp_path: Path):
    """Its claim is judged as the loader judges it, or by what all headers may have."""
    for claimed, words in ((1 << 62, "claims a header of"), (90_000_000, "claims a header of|cut short")):
        weights = claimed.to_bytes(8, "little") + bytes(200_000)
        with FakeHub(FakeRepository("org/bad", small_model(**{"model.safetensors": weights}))) as hub:
            with pytest.raises(CheckpointError, match=words):
                opened(hub, tmp_path / str(claimed), "org/bad")
            assert hub.weight_bytes <= 200_008


def test_headers_beyond_the_bound_are_deleted_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Never those in use."""
    monkeypatch.setattr(headers, "MAX_KEPT_BYTES", 1)
    with FakeHub(guide("org/a"), guide("org/b")) as hub:
        opened(hub, tmp_path, "org/a")
        opened(hub, tmp_path, "org/b")
    assert [folder.parent.name for folder in tmp_path.glob("*/*")] == ["org--b"]


def test_what_was_left_by_a_kill_is_not_taken_for_a_header(tmp_path: Path):
    with FakeHub(pushed := guide()) as hub:
        folder = RemoteRepo(client_of(hub), "org/guide", pushed.commit, (), tmp_path).folder
        folder.mkdir(parents=True)
        (folder / "model.safetensors.7.part").write_bytes(b"half")
        (folder / "config.json").write_bytes(b"{}")
        found = opened(hub, tmp_path, "org/guide")
    assert facts(found) == facts(open_snapshot(GUIDE / "target"))
