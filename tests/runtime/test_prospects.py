"""What could draft for a model is found without a hub, and with what it brought here."""

from __future__ import annotations

from dataclasses import replace as replace_fields

import pytest
from msgspec.structs import replace

from localspec.core import paths
from localspec.core.events import Stats
from localspec.engine.drafters.table import COPIES, TRAINED, UNTRAINED
from localspec.history import History
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import open_snapshot
from localspec.runtime import pairs
from localspec.runtime.prospects import SAME, Prospect, prospects, with_current
from tests.runtime.test_known_pairs import GUIDE, fetch
from tests.support.chats import answer, chat


def of(name: str, quant: str = "int8") -> list[Prospect]:
    catalog = Catalog.load()
    entry = catalog.resolve(name)
    return list(prospects(entry, open_snapshot(entry.path, entry.key), catalog, quant))


def test_a_model_that_the_catalogue_has_trained_for_early_exit_drafts_by_it():
    lookup, first, *_ = of("guide")
    assert (lookup.draft, lookup.detail, lookup.suits, lookup.speedup) == ("lookup", COPIES, True, None)
    assert (first.draft, first.name) == ("lookup+early-exit:2", "look-up + layers 1–2")
    assert (first.detail, first.suits) == (TRAINED, True)


def test_a_draft_model_that_comes_with_the_model_is_listed_by_the_name_that_loads_it():
    own = [(one.draft, one.detail, one.suits) for one in of("guide") if "small" in one.draft]
    assert own == [("lookup+small", SAME, True)]


def test_of_another_model_it_is_said_that_it_may_not_be_and_what_fits_beside_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pairs, "LARGEST_SHARE", 2)
    fetch("org/big", GUIDE / "target")
    fetch("org/small", GUIDE / "draft")
    found = of("org/big")
    assert [(one.draft, one.detail, one.suits) for one in found] == [
        ("lookup", COPIES, True),
        ("lookup+early-exit:3", UNTRAINED, False),
        ("lookup+org/small", SAME, True),
    ]
    assert [(one.speedup, one.missing) for one in found] == [(None, "")] * 3


def test_the_catalogues_draft_model_that_is_not_here_is_named_with_its_command():
    file = paths.models_file()
    file.parent.mkdir(parents=True)
    table = f"[models.mine]\npath = '{GUIDE / 'target'}'\n[models.mine.draft]\nkind = 'model'\nmodel = 'Org/Tiny'\n"
    file.write_text(f"schema_version = 1\n{table}")
    (missing,) = (one for one in of("mine") if one.missing)
    assert (missing.draft, missing.missing) == ("Org/Tiny", "Fetch it: localspec pull Org/Tiny")


@pytest.mark.parametrize(
    ("speedup", "minutes", "said"),
    [(0.98, 12, True), (1.0, 1, True), (1.2, 12, False), (0.5, 0.9, False), (None, 12, False)],
)
def test_a_drafter_that_saved_no_time_over_a_long_while_is_said_to(speedup: float | None, minutes: float, said: bool):
    """One answer of another kind says nothing, and neither does a long while in which nothing was compared."""
    with History() as history:
        given = answer()
        made = replace(given.generation, target="guide", draft="lookup+early-exit:2", quant="int8")
        made = replace(made, stats=replace(made.stats, speedup=speedup, predicted_ms=60_000 * minutes))
        history.save(chat(history, "Once?", "")[-1].id, replace(given, generation=made))
    first = of("guide")[1]
    assert first.detail == TRAINED + (f"; it saved no time in {minutes} min of answers here" if said else "")
    assert first.suits is not said


def test_what_was_measured_of_this_pair_in_this_format_stands_beside_it():
    with History() as history:
        given = answer()
        measured = ("lookup+early-exit:2", "int8", 1.5), ("lookup+early-exit:2", "fp32", 0.5), ("lookup", "int8", 9)
        for draft, quant, speedup in measured:
            made = replace(given.generation, target="guide", draft=draft, quant=quant)
            made = replace(made, stats=replace(made.stats, speedup=speedup))
            history.save(chat(history, "Once?", "")[-1].id, replace(given, generation=made))
    lookup, first, *_ = of("guide")
    assert (lookup.speedup, first.speedup) == (pytest.approx(9), pytest.approx(1.5))
    assert first.acceptance == pytest.approx(2 / 3)
    assert {one.speedup for one in of("guide", "bf16")} == {None}


def test_where_none_is_kept_the_last_answers_figures_stand_beside_its_drafter():
    stats = Stats(speedup=1.4, draft_n_accepted=3, draft_n_rejected=1)
    one = Prospect("lookup", "look-up", COPIES, suits=True)
    assert with_current(one, "lookup", stats) == replace_fields(one, speedup=1.4, acceptance=0.75)
    assert with_current(one, "early-exit:2", stats) == one
    kept = replace_fields(one, speedup=1.2)
    assert with_current(kept, "lookup", stats) == kept
