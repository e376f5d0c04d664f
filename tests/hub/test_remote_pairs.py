"""Fits and verdicts of models that are not downloaded, and candidates of the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.core.errors import AccessDenied, CheckpointError, NotDownloaded
from localspec.hub import remote_pair
from localspec.hub.records import FitRequest, PairRequest
from localspec.hub.remote_fit import answer_fit
from localspec.hub.remote_pair import answer_pair
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.pairs import pair
from tests.support.fake_hub import Account, FakeHub, FakeRepository
from tests.support.hub_clients import GUIDE, client_of, guide, guide_draft, in_cache, small_model

pytestmark = pytest.mark.usefixtures("online")


def test_the_verdict_before_a_download_is_the_verdict_after(tmp_path: Path):
    """Check 14: from two tokenizers, with the hashes of both."""
    with FakeHub(guide(), guide_draft()) as hub:
        (found,) = answer_pair(client_of(hub), PairRequest("org/guide", "org/small"), tmp_path).candidates
    after = pair(open_snapshot(GUIDE / "target", "org/guide"), open_snapshot(GUIDE / "draft", "org/small"))
    assert (found.verdict, found.on_disk) == (after, False)
    assert found.num_bytes == open_snapshot(GUIDE / "draft").total_bytes


def test_one_of_them_may_be_on_disk(tmp_path: Path):
    """A key, a folder, a cached repository."""
    in_cache("org/small", GUIDE / "draft")
    with FakeHub(guide()) as hub:
        client = client_of(hub)
        (cached,) = answer_pair(client, PairRequest("org/guide", "org/small"), tmp_path).candidates
        (folder,) = answer_pair(client, PairRequest("guide", str(GUIDE / "draft")), tmp_path).candidates
    assert cached.on_disk
    assert folder.on_disk
    assert cached.verdict is not None
    assert folder.verdict is not None
    assert cached.verdict.ok
    assert folder.verdict.ok


def test_candidates_of_the_hub_are_ranked_by_their_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The first few are compared; what cannot be read is left out; the target itself is none."""
    from tests.support.tokenizers import wordpiece_like

    monkeypatch.setattr(remote_pair, "MOST_COMPARED", 3)
    other = {**guide_draft().files, "tokenizer.json": wordpiece_like().to_str().encode()}
    repositories = [
        guide("org/Guide-7B"),
        FakeRepository("org/Guide-1B-other", other, downloads=9),
        guide_draft("org/Guide-1B-same", downloads=8),
        guide_draft("org/Guide-1B-gated", downloads=7, gated="auto"),
        guide_draft("org/Guide-1B-later", downloads=6),
    ]
    with FakeHub(*repositories, account=Account()) as hub:
        found = answer_pair(client_of(hub), PairRequest("org/Guide-7B", hub=True), tmp_path).candidates
    names = [one.name.removeprefix("org/Guide-1B-") for one in found]
    assert names == ["same", "later", "other"]
    assert [one.verdict and one.verdict.ok for one in found] == [True, None, False]


def test_a_fit_says_what_it_took_to_read(tmp_path: Path):
    """Nothing, the second time, but what the hub is asked."""
    with FakeHub(guide(), guide_draft()) as hub:
        client, request = client_of(hub), FitRequest("org/guide", drafter="org/small")
        first, again = (answer_fit(client, request, tmp_path) for _ in range(2))
    assert first.report.formats == again.report.formats
    assert first.report.drafter == "org/small"
    assert first.bytes_read > 400_000
    assert again.bytes_read < 10_000


def test_what_may_not_be_read_or_loaded_is_an_error(tmp_path: Path):
    bad = FakeRepository("org/bad", small_model(config={"model_type": "vampire"}))
    with FakeHub(guide(gated="manual"), bad, account=Account()) as hub:
        client = client_of(hub)
        with pytest.raises(AccessDenied, match="org/guide: No request yet") as raised:
            answer_fit(client, FitRequest("org/guide"), tmp_path)
        with pytest.raises(CheckpointError, match="vampire"):
            answer_fit(client, FitRequest("org/bad"), tmp_path)
        with pytest.raises(NotDownloaded, match="There is no model 'gude'; did you mean 'guide'"):
            answer_pair(client, PairRequest("gude"), tmp_path)
    assert "org/guide" in raised.value.hint
