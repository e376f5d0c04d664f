"""The plan for several answers at once: a context for each, as many as fit, and less of it before a smaller format."""

from __future__ import annotations

import pytest
import torch

from localspec.core.drain import drain
from localspec.core.errors import DoesNotFit
from localspec.core.requests import MAX_DRAFT, LoadRequest, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine.generic_arch import read_any
from localspec.loading.footprint import footprint
from localspec.loading.plan import ladder, make_plan, needed
from localspec.loading.plan_request import PlanRequest
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.runtime.open import open_model
from tests.support.models import save_snapshot
from tests.support.tokenizers import gpt2_like

CONTEXT = 4096
INT8, INT4 = find_format("int8"), find_format("int4")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return open_snapshot(
        save_snapshot(folder, gpt2_like(), max_position_embeddings=CONTEXT, hidden_size=256, head_dim=64)
    )


def asked(parallel: int | str, quant: str = "auto", *, max_bytes: int | None = None) -> PlanRequest:
    return PlanRequest(WeightOptions(quant, ctx=CONTEXT, parallel=parallel), max_bytes=max_bytes)  # type: ignore[arg-type]


def test_every_context_has_its_keys_and_values(snapshot: Snapshot):
    for row in (INT8, find_format("fp32")):
        one, four = (footprint(snapshot, row, CONTEXT, parallel=parallel) for parallel in (1, 4))
        assert four.kv == 4 * one.kv
        assert (four.tables, four.layer) == (one.tables, one.layer)
        assert one.workspace <= four.workspace < 4 * one.workspace


def test_the_logits_of_all_drafts_are_planned(snapshot: Snapshot):
    """A forward has a row for every drafted token of every answer, and one more each, and all are read."""
    arch = read_any(snapshot.config)
    for row in (INT8, find_format("fp32")):
        one, eight = (footprint(snapshot, row, CONTEXT, parallel=parallel) for parallel in (1, 8))
        logits = torch.empty(7 * (MAX_DRAFT + 1), arch.vocab_size)
        assert eight.workspace - one.workspace >= logits.nbytes


def test_a_draft_model_has_as_many_contexts(snapshot: Snapshot):
    request = asked(3, "int8")
    own = footprint(snapshot, INT8, CONTEXT, parallel=3)
    both = needed(snapshot, PlanRequest(request.options, drafter=snapshot), INT8)
    assert both.whole == 2 * own.whole - own.workspace


def test_auto_takes_as_many_as_fit_up_to_four(snapshot: Snapshot):
    sizes = [footprint(snapshot, INT8, CONTEXT, parallel=parallel).whole for parallel in range(1, 6)]
    assert sizes == sorted(sizes)
    for parallel, limit in enumerate(sizes, 1):
        plan = make_plan(snapshot, asked("auto", "int8", max_bytes=limit))
        assert (plan.parallel, plan.weight_format) == (min(parallel, 4), INT8)
    assert make_plan(snapshot, asked("auto")).parallel == 4


def test_fewer_answers_come_before_a_smaller_format(snapshot: Snapshot):
    limit = footprint(snapshot, INT8, CONTEXT).whole
    first = next(ladder(snapshot, asked("auto", max_bytes=limit)))
    assert (first.weight_format, first.parallel) == (INT8, 1)


def test_a_number_that_was_asked_for_is_kept_or_refused(snapshot: Snapshot):
    eight, four = (footprint(snapshot, row, CONTEXT, parallel=6).whole for row in (INT8, INT4))
    assert four < eight
    plan = make_plan(snapshot, asked(6, max_bytes=four))
    assert (plan.weight_format, plan.parallel) == (INT4, 6)
    for parallel, hint in ((6, "a smaller --ctx or --parallel."), (1, "a smaller --ctx.")):
        with pytest.raises(DoesNotFit) as refused:
            make_plan(snapshot, asked(parallel, "int8", max_bytes=1 << 20))
        assert refused.value.hint.endswith(hint)
    with pytest.raises(DoesNotFit):
        make_plan(snapshot, asked(6, "int8", max_bytes=four))


@pytest.mark.heavy
@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize("quant", ["fp32", "int8"])
def test_the_caches_that_are_loaded_take_what_was_planned(snapshot: Snapshot, quant: str):
    request = LoadRequest.of(str(snapshot.folder), draft="off", quant=quant, threads=1, ctx=CONTEXT, parallel=3)
    slots = drain(open_model(request))
    planned = footprint(snapshot, find_format(quant), CONTEXT, parallel=3)
    assert slots.ready.memory.kv_bytes == planned.kv
    slots.close()
