"""A drafter that nobody asked for never costs its target its place in memory; one that was asked for is said to."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import DoesNotFit
from localspec.core.events import Notice
from localspec.core.requests import LoadRequest
from localspec.models import hub_cache
from localspec.runtime.api import LLM
from localspec.runtime.known_pairs import PULLED
from localspec.runtime.open import open_model
from localspec.runtime.precheck import fits_beside, precheck
from localspec.tui.control.fit_report import what_fits

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

GUIDE = paths.packaged("assets/guide")
EARLY_EXIT = """schema_version = 1
[models.big]
repo = "org/big"
draft = { kind = "early-exit", exit_layer = 8 }
"""
LEFT_OUT = {
    "a draft model": "org/small could draft for org/big, but both do not fit in memory; look-up drafts alone.",
    "early exit": (
        "early exit 8 could draft for org/big, but the layers that it runs through do not fit in memory; look-up drafts"
        " alone."
    ),
}
ASKED = {"a draft model": "org/small", "early exit": "early-exit"}
BANDS = [  # the words of both and of the target alone were read from the plans
    ("a draft model", "50MB", "with layers from disk", ""),
    ("a draft model", "47MB", "", "with layers from disk"),
    ("early exit", "47MB", "", "with layers from disk"),
]


def fetch(repo: str, made: Path) -> None:
    kept = hub_cache.kept(repo)
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text(commit := "c" * 40)
    (folder := kept / "snapshots" / commit).mkdir(parents=True)
    for file in made.iterdir():
        (folder / file.name).symlink_to(file)


@pytest.fixture(autouse=True)
def fetched() -> None:
    fetch("org/big", GUIDE / "target")
    fetch("org/small", GUIDE / "draft")


def known(drafter: str) -> None:
    if drafter == "early exit":
        paths.models_file().parent.mkdir(parents=True)
        paths.models_file().write_text(EARLY_EXIT)
    else:
        PULLED.put("org/big", "org/small")


def asking(memory: str | None, draft: str = "auto") -> LoadRequest:
    return LoadRequest.of("org/big", draft=draft, max_memory=memory, device="cpu")


def opened(request: LoadRequest) -> tuple[LLM, list[Notice]]:
    notices, events = [], open_model(request)
    while True:
        try:
            if isinstance(event := next(events), Notice):
                notices.append(event)
        except StopIteration as ended:
            return LLM(ended.value), notices


@pytest.mark.parametrize(("drafter", "memory", "both", "alone"), BANDS)
def test_it_is_left_out_where_it_makes_the_target_slower_or_too_large(drafter: str, memory: str, both: str, alone: str):
    """And stays so when "auto" is asked for again: the memory is no larger."""
    known(drafter)
    model, notices = opened(asking(memory))
    with model:
        told = [one.message for one in notices if one.code == "draft_memory"]
        spec = model.ready.spec
        assert (told, spec.kind, spec.reason) == ([LEFT_OUT[drafter]], "lookup", LEFT_OUT[drafter])
        assert model.ready.model.is_offloaded == bool(alone)
        assert model.generate("hello", max_tokens=2).text
        assert model.change_drafter("auto").kind == "lookup"
    checked = precheck(asking(memory))
    assert str(checked.plan).endswith(alone or str(checked.plan.weight_format))
    assert checked.draft.left_out
    assert not fits_beside(asking(None), checked.draft, model.ready.model)
    assert "org/small" not in what_fits(asking(memory), None)
    if both:
        assert str(precheck(asking(memory, ASKED[drafter])).plan).endswith(both)
        return
    with pytest.raises(DoesNotFit) as refused:
        precheck(asking(memory, ASKED[drafter]))
    assert refused.value.hint == "Try --draft off or a smaller --ctx."


@pytest.mark.parametrize("drafter", LEFT_OUT)
def test_it_drafts_where_it_costs_the_target_nothing(drafter: str):
    known(drafter)
    checked = precheck(asking("60MB"))
    assert (checked.draft.kind, checked.draft.left_out) == (
        "model" if drafter == "a draft model" else "early-exit",
        False,
    )


def test_off_is_no_way_out_where_the_target_alone_is_too_large():
    with pytest.raises(DoesNotFit) as refused:
        precheck(asking("20MB", "org/small"))
    assert "--draft off" not in refused.value.hint
