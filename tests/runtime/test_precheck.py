"""Whether a load will work is known before anything is unloaded, from headers and tokenizers alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import (
    CheckpointError,
    DoesNotFit,
    IncompatiblePair,
    LocalspecError,
    NotDownloaded,
    UsageError,
)
from localspec.core.events import ModelCard
from localspec.core.requests import LoadRequest
from localspec.loading import plan
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import open_snapshot
from localspec.runtime import precheck as prechecked
from localspec.runtime.draft_choice import choose
from localspec.runtime.precheck import fits_beside, precheck
from tests.support.models import save_snapshot
from tests.support.tokenizers import wordpiece_like

CPU = ModelCard("guide", "int8", "cpu", 2048, chat=True)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes of memory."""
    memory = {"bytes": 1 << 30}
    for module in (plan, prechecked):
        monkeypatch.setattr(module, "available_bytes", lambda: memory["bytes"])
    return memory


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    return save_snapshot(tmp_path / "stranger", wordpiece_like())


def guide(**options: object) -> LoadRequest:
    return LoadRequest.of("guide", **options)


@pytest.mark.usefixtures("free")
def test_what_would_be_loaded_is_known():
    checked = precheck(guide(draft="small", quant="int4"))
    assert (checked.name, str(checked.plan), checked.plan.context) == ("guide", "int4", 2048)
    assert (checked.draft.kind, checked.draft.name) == ("model", "small")
    assert precheck(guide(ctx=100)).plan.context == 100
    assert precheck(guide()).draft.exit_layer == 2


@pytest.mark.usefixtures("free")
def test_each_fault_is_found_and_names_the_model_and_no_path(stranger: Path, tmp_path: Path):
    (broken := tmp_path / "dumb").mkdir()
    for file in stranger.iterdir():
        if file.name != "tokenizer.json":
            (broken / file.name).write_bytes(file.read_bytes())
    faults: list[tuple[LoadRequest, type[LocalspecError], str]] = [
        (LoadRequest("nosuch"), NotDownloaded, "nosuch"),
        (LoadRequest(str(broken)), CheckpointError, "Model 'dumb' has no tokenizer.json."),
        (guide(draft=str(stranger)), IncompatiblePair, "'stranger' cannot draft for 'guide'"),
        (guide(draft="early-exit:12"), UsageError, "guide, which has 12 layers"),
        (guide(draft_quant="int4"), UsageError, "no --draft-quant"),
        (guide(ctx=5), UsageError, "--ctx 5 is too short"),
        (guide(ctx=1 << 20), UsageError, "outside what guide was made for"),
        (guide(quant="int3"), UsageError, "int3"),
        (guide(max_memory="1MB"), DoesNotFit, "Not enough memory for guide"),
    ]
    for request, kind, words in faults:
        with pytest.raises(kind, match=words) as raised:
            precheck(request)
        assert str(tmp_path) not in raised.value.message


def test_what_unloading_frees_counts(free: dict[str, int]):
    free["bytes"] = 1 << 20
    with pytest.raises(DoesNotFit, match="Not enough memory for guide"):
        precheck(guide(quant="int8"))
    assert precheck(guide(quant="int8"), held_bytes=1 << 30).name == "guide"


def test_a_drafter_fits_beside_a_model_if_its_memory_is_free(free: dict[str, int]):
    early, small = precheck(guide()).draft, precheck(guide(draft="small")).draft
    assert fits_beside(guide(), early, CPU)
    assert fits_beside(guide(), small, CPU)
    free["bytes"] = 1 << 20
    assert fits_beside(guide(), early, CPU), "it has no weights of its own"
    assert not fits_beside(guide(), small, CPU)
    assert fits_beside(guide(), small, CPU, held_bytes=1 << 30), "the drafter before is freed"
    free["bytes"] = 1 << 30
    assert not fits_beside(guide(max_memory="1GB"), small, CPU), "that limit was shared out"
    offloaded = ModelCard("guide", "int8", "cpu and disk", 2048, chat=True)
    assert not fits_beside(guide(), early, offloaded), "its first layers may be on the disk"


def test_a_model_that_drafts_for_itself_is_said_not_to_pay():
    catalog = Catalog.load()
    entry = catalog.resolve("guide")
    target = open_snapshot(entry.path, entry.name)
    choice = choose(str(paths.packaged("assets/guide/target")), entry, target, catalog)
    assert choice.notice is not None
    assert choice.notice.message == (
        "guide drafts for itself: a draft costs as much as the answer, so this is never faster."
    )
    smaller = choose("small", entry, target, catalog).notice
    assert smaller is None
