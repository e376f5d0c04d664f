"""What a model takes on this machine: parts that add up to the plan, words as loading would have them, no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.requests import WeightOptions
from localspec.core.weight_formats import LISTED, find_format
from localspec.loading import fit
from localspec.loading.fit import fit_report, request_here, rough_fit
from localspec.loading.plan import make_plan, needed
from localspec.loading.plan_request import PlanRequest
from localspec.models.checkpoint import Snapshot, open_snapshot

GUIDE = Path(__file__).parents[2] / "assets" / "guide"
GB = 10**9


@pytest.fixture
def target() -> Snapshot:
    return open_snapshot(GUIDE / "target", "guide")


@pytest.fixture
def draft() -> Snapshot:
    return open_snapshot(GUIDE / "draft", "draft")


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "available_bytes", lambda: GB)


@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("gpu_bytes", [None, GB])
def test_the_parts_add_up_to_what_loading_plans_with(
    target: Snapshot, draft: Snapshot, drafted: bool, gpu_bytes: int | None
):
    """To the byte, in every format, with the drafter beside it or without."""
    request = request_here(WeightOptions(), drafter=draft if drafted else None, gpu_bytes=gpu_bytes)
    report = fit_report(target, request)
    sums = {
        one.quant: needed(target, request.asking(ctx=report.context), find_format(one.quant, request.device)).whole
        for one in report.formats
    }
    assert {one.quant: one.total_bytes for one in report.formats} == sums
    assert all((one.drafter_bytes > 0) == drafted for one in report.formats)
    assert report.device == ("cpu" if gpu_bytes is None else "cuda")
    assert [one.quant for one in report.formats][:2] == (["int8", "int4"] if gpu_bytes is None else ["bf16", "int8"])


def test_every_format_that_quant_takes_is_listed(target: Snapshot):
    """Those that auto would try come first."""
    assert {one.quant for one in fit_report(target, request_here(WeightOptions())).formats} == {*LISTED}


@pytest.mark.parametrize("free", [GB, 60 * 10**6, 50 * 10**6, 47 * 10**6, 10**6])
def test_the_choice_is_what_loading_would_choose(target: Snapshot, free: int, monkeypatch: pytest.MonkeyPatch):
    """Whole, offloaded, or nothing."""
    monkeypatch.setattr(fit, "available_bytes", lambda: free)
    monkeypatch.setattr("localspec.loading.plan.available_bytes", lambda: free)
    request = request_here(WeightOptions())
    report = fit_report(target, request)
    try:
        plan = make_plan(target, request)
    except DoesNotFit:
        assert (report.chosen, report.word) == ("", "too large")
        assert {one.word for one in report.formats} <= {"too large"}
        return
    chosen = next(one for one in report.formats if one.quant == report.chosen)
    assert (report.chosen, chosen.word) == (plan.weight_format.name, "fits" if plan.resident is None else "from disk")
    assert report.word.startswith(chosen.word)


def test_memory_that_is_held_would_be_free(target: Snapshot, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fit, "available_bytes", lambda: 10**6)
    assert fit_report(target, request_here(WeightOptions())).word == "too large"
    held = fit_report(target, request_here(WeightOptions()), held_bytes=GB)
    assert (held.word, held.free_bytes) == ("fits", GB + 10**6)


def test_a_limit_is_the_memory(target: Snapshot):
    report = fit_report(target, request_here(WeightOptions(max_memory="1MB")))
    assert (report.free_bytes, report.word) == (10**6, "too large")


def test_a_gpu_has_formats_of_its_own_unless_the_cpus_are_asked_for(target: Snapshot):
    assert request_here(WeightOptions(device="cpu"), gpu_bytes=GB).device == "cpu"
    assert request_here(WeightOptions(weight_format="int4"), gpu_bytes=GB).device == "cpu"
    asked = fit_report(target, request_here(WeightOptions(weight_format="nf4"), gpu_bytes=GB))
    assert (asked.chosen, asked.word) == ("nf4", "fits")


def test_what_the_model_cannot_have_is_refused(target: Snapshot):
    with pytest.raises(UsageError, match="no weight format 'q9'"):
        fit_report(target, PlanRequest(WeightOptions("q9")))
    with pytest.raises(UsageError, match="outside what guide was made for"):
        fit_report(target, PlanRequest(WeightOptions(ctx=10**6)))
    with pytest.raises(UsageError, match="not a memory size"):
        request_here(WeightOptions(max_memory="much"))


@pytest.mark.parametrize(
    ("parameters", "free", "gpu_bytes", "word"),
    [
        (7 * GB, 16 * GB, None, "fits"),
        (7 * GB, 6 * GB, None, "fits in int4"),
        (7 * GB, 3 * GB, None, "too large"),
        (7 * GB, 0, 20 * GB, "fits"),
        (7 * GB, 0, 10 * GB, "fits in int8"),
        (7 * GB, 99 * GB, 1 * GB, "too large"),
    ],
)
def test_the_number_of_parameters_gives_a_rough_word(parameters: int, free: int, gpu_bytes: int | None, word: str):
    assert rough_fit(parameters, free=free, gpu_bytes=gpu_bytes) == word


def test_it_needs_no_torch():
    """Before a download there may be no time for it, and the hub's process has none."""
    code = (
        "import sys, localspec.loading.fit as f; f.usable_gpu_bytes(); assert not {'torch', 'numba'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=GUIDE.parents[1])
