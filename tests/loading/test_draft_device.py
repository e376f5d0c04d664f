"""Where a draft model goes: on the GPU that its target leaves free, if it has room there; planned, loaded and told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from localspec.core.drain import drain
from localspec.core.errors import DoesNotFit, UsageError
from localspec.core.events import AnyEvent, Notice
from localspec.core.requests import LoadRequest, Message, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine.cpu import program
from localspec.engine.cpu.isa import choose
from localspec.engine.drafters.guarded import Guarded
from localspec.loading.footprint import footprint
from localspec.loading.plan import draft_plan, make_plan, needed
from localspec.loading.plan_request import PlanRequest
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.runtime import drafter_setup
from localspec.runtime.api import LLM, load_events
from localspec.runtime.draft_choice import DrafterChoice
from localspec.runtime.open_target import plan_request
from tests.support.models import save_snapshot
from tests.support.second_device import SecondDevice
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

HI = [Message("user", "hello there general")]
SIZES = {"hidden_size": 128, "intermediate_size": 256}
ROOMY = 1 << 40


@pytest.fixture(scope="module", autouse=True)
def engine() -> program.Program:
    """Compiled before any test turns its cache away."""
    return program.load(choose())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top, tokenizer = tmp_path_factory.mktemp("models"), gpt2_like()
    save_snapshot(top / "target", tokenizer, template=CHATML, eos="<|im_end|>", num_hidden_layers=6, **SIZES)
    save_snapshot(top / "draft", tokenizer, num_hidden_layers=2, **SIZES)
    return top


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One that computes here; how much it has free."""
    free = [ROOMY]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free[0], ROOMY))
    with SecondDevice():
        yield free


@pytest.fixture
def target(models: Path) -> Snapshot:
    return open_snapshot(models / "target")


@pytest.fixture
def draft(models: Path) -> Snapshot:
    return open_snapshot(models / "draft")


# --- the plan


def test_it_takes_the_best_format_that_the_gpu_has_room_for(draft: Snapshot):
    sizes = {quant: footprint(draft, find_format(quant, "cuda"), 64).whole for quant in ("bf16", "int8", "nf4")}
    request = PlanRequest(WeightOptions("int4", ctx=64))

    def place(free: int | None, asked: str = "auto", max_bytes: int | None = None) -> tuple[str, str]:
        beside = replace(request, gpu_bytes=free, max_bytes=max_bytes).asking(draft_format=asked)
        plan = draft_plan(draft, beside, find_format("int4"))
        assert plan.resident is None, "whole or not at all"
        return plan.device, plan.weight_format.name

    assert place(sizes["bf16"]) == ("cuda", "bf16")
    assert place(sizes["bf16"] - 1) == ("cuda", "int8")
    assert place(sizes["int8"] - 1) == ("cuda", "nf4")
    assert place(sizes["nf4"] - 1) == place(None) == ("cpu", "int4")
    assert place(sizes["bf16"], max_bytes=1000) == ("cuda", "bf16"), "a limit is of where the target's layers are"
    assert place(ROOMY, "fp32") == ("cuda", "fp32")
    assert place(ROOMY, "int4") == ("cpu", "int4")
    with pytest.raises(UsageError, match="There is no weight format 'q4'") as met:
        place(ROOMY, "q4")
    assert "--draft-quant" in met.value.hint


def test_what_drafts_on_the_gpu_takes_nothing_from_the_targets_layers(target: Snapshot, draft: Snapshot):
    limit = footprint(target, find_format("int8"), 512).offloaded(3)
    request = PlanRequest(WeightOptions("int8", "offload"), max_bytes=limit)
    resident = {
        name: make_plan(target, replace(request, drafter=drafter, gpu_bytes=free)).resident
        for name, drafter, free in (("alone", None, None), ("apart", draft, ROOMY))
    }
    assert resident["apart"] == resident["alone"] == 3
    assert needed(target, replace(request, drafter=draft, gpu_bytes=ROOMY), find_format("int8")).drafter == 0
    with pytest.raises(DoesNotFit):  # it is as large as what is left for layers
        make_plan(target, replace(request, drafter=draft, gpu_bytes=1000))


def test_it_is_placed_before_the_layers_of_a_target_on_the_gpu(target: Snapshot, draft: Snapshot):
    """Whole, and counted: what is left is the target's."""
    drafter = footprint(draft, find_format("bf16", "cuda"), 512)
    room = footprint(target, find_format("bf16", "cuda"), 512).offloaded(2) + drafter.whole - drafter.workspace
    request = PlanRequest(WeightOptions("bf16", "offload"), "cuda", drafter=draft, max_bytes=room, gpu_bytes=room)
    assert make_plan(target, request).resident == 2
    assert make_plan(target, replace(request, drafter=None)).resident is None, "without it all of them fit"
    plan = draft_plan(draft, request, find_format("bf16", "cuda"))
    assert (plan.device, plan.weight_format.name, plan.resident) == ("cuda", "bf16", None)


@pytest.mark.usefixtures("gpu")
def test_who_names_the_cpu_has_everything_on_the_cpu(draft: Snapshot):
    drafts, exits = DrafterChoice("model", snapshot=draft), DrafterChoice("early-exit", exit_layer=2)

    def known(choice: DrafterChoice, device: str) -> tuple[str, bool]:
        request = plan_request(WeightOptions("int4", device), choice)
        return request.device, request.gpu_bytes is not None

    assert known(drafts, "cpu") == ("cpu", False)
    assert known(drafts, "auto") == known(drafts, "offload") == ("cpu", True)
    assert known(exits, "auto") == ("cpu", False)


def test_a_gpu_that_cannot_be_used_is_none(draft: Snapshot, monkeypatch: pytest.MonkeyPatch):
    def taken(*_: object) -> Any:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", taken)
    request = plan_request(WeightOptions("int4"), DrafterChoice("model", snapshot=draft))
    assert (request.device, request.gpu_bytes) == ("cpu", None)


# --- opening


def opened(models: Path, **asked: Any) -> tuple[LLM, list[Notice]]:
    heard: list[AnyEvent] = []
    request = LoadRequest.of(str(models / "target"), draft=str(models / "draft"), k=3, threads=1, ctx=64, **asked)
    llm = drain(load_events(request), heard.append)
    return llm, [one for one in heard if isinstance(one, Notice) and one.code == "draft_device"]


def drafter_of(llm: LLM) -> Any:
    drafter: Any = llm._model.state.parts.session.drafter
    return (drafter.drafter if isinstance(drafter, Guarded) else drafter).decoder


def answer(llm: LLM) -> str:
    said = llm.generate(HI, max_tokens=8, temperature=0)
    assert said.stats.draft_n > 0
    return said.text


@pytest.mark.parametrize("device", ["auto", "offload"])
def test_it_drafts_on_the_gpu_for_a_target_on_the_cpu_and_changes_no_word(
    device: str, models: Path, gpu: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """int4's text is the plain one to the bit, whoever drafts."""
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path))
    told = {}
    for free in (1000, ROOMY):
        gpu[0] = free
        llm, notices = opened(models, quant="int4", device=device)
        with llm:
            told[free] = answer(llm)
            decoder = drafter_of(llm)
            assert llm.ready.model.device == ("cpu" if device == "auto" else "cpu and disk")
            assert llm.ready.memory.drafter_bytes == decoder.weights.num_bytes
            assert (str(decoder.device), len(notices)) == (("cuda", 1) if free == ROOMY else ("cpu", 0))
    assert notices[0].message.endswith("draft drafts on the GPU, in bf16, for a target on the CPU.")
    assert told[ROOMY] == told[1000]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "fault", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUDA error: no kernel")]
)
def test_what_the_gpu_fails_to_hold_drafts_on_the_cpu(fault: Exception, models: Path, monkeypatch: pytest.MonkeyPatch):
    real = drafter_setup.load_decoder

    def fails(snapshot: Snapshot, plan: Any, **said: Any) -> Any:
        if plan.device == "cuda":
            raise fault
        return (yield from real(snapshot, plan, **said))

    monkeypatch.setattr(drafter_setup, "load_decoder", fails)
    llm, (notice,) = opened(models, quant="int4")
    with llm:
        assert (str(drafter_of(llm).device), notice.level) == ("cpu", "warning")
        assert "draft drafts on the CPU" in notice.message
        assert answer(llm)
