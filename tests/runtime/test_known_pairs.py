"""A drafter that came with a model, or was found fit before, is listed and used; nothing is compared for a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.core import paths
from localspec.hub.inventory import details, list_models
from localspec.models import hub_cache
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import open_snapshot
from localspec.runtime import pairs
from localspec.runtime.draft_choice import DrafterChoice, choose
from localspec.runtime.known_pairs import PULLED
from localspec.runtime.local_models import known_pairs, on_disk
from localspec.runtime.pairs import pair

GUIDE = paths.packaged("assets/guide")
COMMIT = "c" * 40
OFF = ("off", "decode plain")
LOOKED_UP = ("auto", "look-up")
SMALL = ("org/small", "a smaller model (small)")


def fetch(repo: str, made: Path) -> None:
    kept = hub_cache.kept(repo)
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(COMMIT)
    (folder := kept / "snapshots" / COMMIT).mkdir(parents=True)
    for file in made.iterdir():
        (folder / file.name).symlink_to(file)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model and one that can draft for it, of which models.toml says nothing."""
    monkeypatch.setattr(pairs, "LARGEST_SHARE", 2)
    fetch("org/big", GUIDE / "target")
    fetch("org/small", GUIDE / "draft")


def chosen(draft: str = "auto") -> DrafterChoice:
    catalog = Catalog.load()
    entry = catalog.resolve("org/big")
    return choose(draft, entry, open_snapshot(entry.path, "org/big"), catalog)


def listed(name: str) -> tuple[tuple[str, str], ...]:
    return next(one.drafts for one in on_disk(Catalog.load(), "") if one.name == name)


def never(*_: object) -> None:
    raise AssertionError("compared for a list")


@pytest.mark.usefixtures("fetched")
def test_where_nothing_is_known_a_look_up_drafts():
    assert listed("org/big") == (LOOKED_UP, OFF)
    assert (chosen().kind, chosen().name, chosen().lookup) == ("lookup", "look-up", False)
    assert (chosen("off").kind, chosen("off").reason) == ("off", "you turned it off")


@pytest.mark.usefixtures("fetched")
def test_a_drafter_that_was_pulled_with_its_target_drafts_for_it():
    PULLED.put("org/big", "org/small")
    assert listed("org/big") == (("auto", SMALL[1]), OFF)
    assert details("org/big").drafts == (("auto", SMALL[1]), OFF)
    assert next(one.drafter for one in list_models() if one.name == "org/big") == SMALL[1]
    assert (chosen().kind, chosen().name, chosen().lookup) == ("model", "org/small", True)
    assert not chosen("org/small").lookup
    both = chosen("lookup+org/small")
    assert (both.kind, both.name, both.lookup) == ("model", "org/small", True)
    assert chosen("off").reason == "you turned it off"


@pytest.mark.usefixtures("fetched")
def test_a_drafter_that_is_gone_is_known_no_more():
    PULLED.put("org/big", "org/gone")
    assert listed("org/big") == (LOOKED_UP, OFF)
    assert (chosen().kind, chosen().notice) == ("lookup", None)


@pytest.mark.usefixtures("fetched")
def test_models_toml_comes_before_what_was_pulled():
    paths.models_file().parent.mkdir(parents=True)
    text = "schema_version = 1\n[models.b]\nrepo = 'org/big'\n[models.b.draft]\nkind = 'early-exit'\nexit_layer = 3\n"
    paths.models_file().write_text(text)
    PULLED.put("org/big", "org/small")
    assert listed("b") == (("auto", "layers 1–3"), SMALL, OFF)
    assert chosen().kind == "early-exit"


@pytest.mark.usefixtures("fetched")
def test_what_pair_found_fit_is_listed_without_another_comparison(monkeypatch: pytest.MonkeyPatch):
    catalog = Catalog.load()
    target, drafter = (open_snapshot(catalog.resolve(name).path, name) for name in ("org/big", "org/small"))
    assert pair(target, drafter).ok
    monkeypatch.setattr(pairs, "compare_tokenizers", never)
    assert SMALL in listed("org/big")
    assert [one.fit for one in on_disk(catalog, "")] == ["fits"] * 3
    assert SMALL not in listed("org/small"), "it is no drafter of itself"
    assert chosen("off").reason == "you turned it off"
    assert chosen().kind == "lookup", "only what was pulled with it drafts unasked"


@pytest.mark.usefixtures("fetched")
def test_tokenizers_are_read_only_for_what_a_comparison_may_be_about(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.runtime.known_pairs.tokenizer_hash", never)
    catalog = Catalog.load()
    entry = catalog.resolve("org/big")
    assert known_pairs(catalog).of(entry, open_snapshot(entry.path)).compared == ()
