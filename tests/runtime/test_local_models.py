"""The models on this machine: what has just come is found without reading what was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import Snapshot
from localspec.runtime import local_models
from localspec.runtime.local_models import in_repository, on_disk
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

COMMIT = "1a2b3c4d" * 5


def fetch(name: str) -> None:
    """Put a tiny model of this name where the hub's programs keep them."""
    kept = hub_cache.kept(name)
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(COMMIT)
    save_snapshot(kept / "snapshots" / COMMIT, gpt2_like(), template=CHATML, eos="<|im_end|>")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models whose headers are read."""
    names: list[str] = []
    real = local_models.open_snapshot

    def counted(path: Path, name: str) -> Snapshot:
        names.append(name)
        return real(path, name)

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(local_models, "open_snapshot", counted)
    return names


@pytest.mark.heavy
def test_of_all_models_only_the_new_ones_headers_are_read(opened: list[str]):
    """Check 17: how many others there are makes it no slower, and its row is the same as in the whole list."""
    for name in ("org/first", "org/new", "org/third"):
        fetch(name)
    catalog = Catalog.load()
    (found,) = in_repository(catalog, "org/new", "guide")
    assert opened == ["org/new"]
    assert found in list(on_disk(catalog, "guide"))
    assert set(opened) == {"guide", "org/first", "org/new", "org/third"}


@pytest.mark.heavy
def test_of_what_is_not_here_or_cannot_be_read_nothing_is_listed(opened: list[str]):
    fetch("org/broken")
    (hub_cache.kept("org/broken") / "snapshots" / COMMIT / "config.json").write_text("{")
    assert list(in_repository(Catalog.load(), "org/none", "guide")) == []
    assert list(in_repository(Catalog.load(), "org/broken", "guide")) == []
    assert opened == ["org/broken"]
