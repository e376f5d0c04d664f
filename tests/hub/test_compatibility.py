"""Fits and pairs by name: what is asked of this machine and what of the hub, with @REV and :VARIANT to the end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import NotDownloaded, UsageError
from localspec.hub import compatibility
from localspec.hub.answers import answers_to
from localspec.hub.process import HubProcess
from localspec.hub.records import AnyAsk, HubAnswer
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.pairs import DrafterCandidate
from tests.support.fake_hub import FakeHub, FakeRepository
from tests.support.hub_clients import GUIDE, guide, guide_draft, in_cache
from tests.support.pull_stage import hub

pytestmark = pytest.mark.heavy

__all__ = ["hub"]
LARGE, SMALL = (open_snapshot(GUIDE / name).total_bytes for name in ("target", "draft"))


@pytest.fixture(autouse=True)
def in_this_process(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's process answers from here, without being started."""

    def ask(_: HubProcess, question: AnyAsk) -> Iterator[HubAnswer]:
        yield from answers_to(question, 20, lambda _: None)

    assert hub
    monkeypatch.setattr(HubProcess, "ask", ask)


@pytest.fixture
def grown(hub: FakeHub) -> FakeRepository:
    """org/g, whose first commit, also called v1, is smaller than its main."""
    first = hub.push(guide_draft("org/g"), "v1")
    hub.push(guide("org/g"))
    return first


def only(found: tuple[DrafterCandidate, ...]) -> DrafterCandidate:
    (one,) = found
    assert one.verdict is not None
    return one


def test_a_revision_is_that_revisions_answer_or_an_error(grown: FakeRepository):
    """Never main's; a revision that is not here is asked of the hub, though main is here."""
    in_cache("org/g", GUIDE / "target")
    assert compatibility.fit("org/g").num_bytes == LARGE
    for revision in ("v1", grown.commit):
        assert compatibility.fit(f"org/g@{revision}").num_bytes == SMALL
        assert only(compatibility.pair("guide", f"org/g@{revision}")).num_bytes == SMALL
    for names in (("org/g@nonsense", "guide"), ("guide", "org/g@nonsense")):
        with pytest.raises(NotDownloaded, match="no such revision of org/g"):
            compatibility.pair(*names)
    with pytest.raises(NotDownloaded, match="no such revision of org/g"):
        compatibility.fit("org/g@nonsense")
    with pytest.raises(NotDownloaded, match="no such revision of org/g"):
        compatibility.fit("guide", draft="org/g@nonsense")


def test_a_key_that_is_pinned_is_the_pinned_commit(grown: FakeRepository):
    """As a target and as a drafter, before it is downloaded."""
    paths.models_file().parent.mkdir(parents=True, exist_ok=True)
    entry = f'schema_version = 1\n[models.pinned]\nrepo = "org/g"\nrevision = "{grown.commit}"\n'
    paths.models_file().write_text(entry)
    assert compatibility.fit("pinned").num_bytes == SMALL
    assert only(compatibility.pair("guide", "pinned")).num_bytes == SMALL


def test_a_variant_is_that_file(hub: FakeHub, tmp_path: Path):
    """As a target and as a drafter; the candidate has the name that loads it."""
    from tests.support.gguf_files import save_pair

    files = {f"m-{kind}.gguf": save_pair(tmp_path / kind, kind)[0] for kind in ("Q8_0", "Q4_0")}
    first = hub.push(FakeRepository("org/x-GGUF", files), "v1")
    with pytest.raises(UsageError, match="several models"):
        compatibility.pair("org/x-GGUF", "guide")
    drafter = only(compatibility.pair("org/x-GGUF:Q8_0", f"org/x-GGUF@{first.commit}:Q4_0"))
    assert (drafter.name, drafter.on_disk) == (f"org/x-GGUF@{first.commit}:Q4_0", False)
    assert drafter.verdict is not None
    assert drafter.verdict.ok
    assert drafter.num_bytes == open_snapshot(files["m-Q4_0.gguf"]).total_bytes
    assert compatibility.fit("org/x-GGUF:Q8_0").num_bytes == open_snapshot(files["m-Q8_0.gguf"]).total_bytes


def test_a_folder_and_a_repository_are_a_pair(hub: FakeHub, monkeypatch: pytest.MonkeyPatch):
    """Either of them may be the one that is here, by a path from this folder."""
    hub.push(guide())
    monkeypatch.chdir(GUIDE)
    here = only(compatibility.pair("org/guide", "./draft"))
    there = only(compatibility.pair("./draft", "org/guide"))
    assert (here.name, here.on_disk, here.num_bytes) == ("./draft", True, SMALL)
    assert (there.name, there.on_disk, there.num_bytes) == ("org/guide", False, LARGE)
    assert compatibility.fit("./target", draft="org/guide").drafter == "org/guide"
    assert compatibility.fit("org/guide", draft="./draft").drafter == "./draft"


def test_a_draft_model_that_comes_with_a_model_is_known_by_its_name_there():
    found = only(compatibility.pair("guide"))
    assert (found.name, found.on_disk, found.num_bytes) == ("small", True, SMALL)
    assert only(compatibility.pair("guide", "small")).verdict == found.verdict
    assert compatibility.fit("guide", draft="small").drafter == "small"
    with pytest.raises(NotDownloaded, match="'small'"):
        compatibility.pair(str(GUIDE / "target"), "small")


def strange(folder: Path) -> Path:
    """A model that can be opened, and of a kind that is not supported."""
    shutil.copytree(GUIDE / "draft", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "vampire"}))
    return folder


def test_candidates_on_disk_of_a_model_that_is_not_here(hub: FakeHub, tmp_path: Path):
    """Without `hub` nothing is searched. One of a strange kind does not end it."""
    hub.push(guide("org/Guide-7B"))
    hub.push(guide_draft("org/Guide-1B"))
    in_cache("org/small", GUIDE / "draft")
    in_cache("org/strange", strange(tmp_path / "strange"))
    found = only(compatibility.pair("org/Guide-7B"))
    assert (found.name, found.on_disk) == ("org/small", True)
    assert not hub.seen("search")


def test_candidates_on_the_hub_of_a_folder(hub: FakeHub, tmp_path: Path):
    """Its family is found by its own name, and that of a cached repository by the repository's; guide has none."""
    hub.push(guide("org/Guide-7B"))
    hub.push(guide_draft("org/Guide-1B"))
    (tmp_path / "Guide-7B-mine").symlink_to(GUIDE / "target")
    in_cache("org/Guide-7B", GUIDE / "target", "b" * 40)
    cached = tmp_path / "hub" / "models--org--Guide-7B" / "snapshots" / ("b" * 40)
    for name in (str(tmp_path / "Guide-7B-mine"), str(cached), "org/Guide-7B"):
        assert only(compatibility.pair(name, hub=True)).name == "org/Guide-1B"
    assert hub.seen("search")[0].query["search"] == ["Guide"]
    assert only(compatibility.pair("guide", hub=True)).name == "org/Guide-1B"


def test_what_names_nothing_is_an_error(hub: FakeHub):
    """And is not asked of the hub."""
    for name in ("gude", "./nowhere", "ollama:nothing"):
        with pytest.raises(NotDownloaded):
            compatibility.pair(name, "guide")
        with pytest.raises(NotDownloaded):
            compatibility.fit(name)
    assert hub.log == ()
