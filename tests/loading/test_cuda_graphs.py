"""Graphs from loading to answering: the same text, planned memory, and one Notice where they cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.core.drain import drain
from localspec.core.events import Notice, Step
from localspec.core.requests import LoadRequest, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine import cuda_graphs
from localspec.engine.cuda_graphs import Graphed
from localspec.engine.limits import MAX_GRAPHS
from localspec.loading import torch as loader
from localspec.loading.footprint import GRAPH_BYTES, footprint
from localspec.loading.plan import needed
from localspec.loading.plan_request import PlanRequest
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import LLM, load_events
from tests.support.models import save_snapshot
from tests.support.tape import Taping
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

PROMPT = "the quick brown fox"
Opener = Callable[..., tuple[LLM, list[str]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "draft", gpt2_like(), seed=1, num_hidden_layers=1)


@pytest.fixture
def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Opener:
    """With graphs on the CPU, made by this Capture."""

    def opened(capture: Taping | None, draft: str | Path, quant: str = "fp64") -> tuple[LLM, list[str]]:
        monkeypatch.setattr(loader, "CAPTURES", {"cpu": lambda: capture} if capture else {})
        steps, heard = load_events(LoadRequest.of(str(folder), draft=str(draft), k=2, quant=quant)), list[Any]()
        return drain(steps, heard.append), told(heard)

    return opened


def told(heard: Iterable[Any]) -> list[str]:
    """About graphs."""
    return [event.message for event in heard if isinstance(event, Notice) and event.code == "graphs"]


def answered(llm: LLM) -> tuple[str, list[str]]:
    """The text, and what was told."""
    events = list(llm.stream(PROMPT, max_tokens=40, temperature=0))
    return "".join(event.text for event in events if isinstance(event, Step)), told(events)


@pytest.mark.parametrize("drafter", ["off", "early-exit:2", "a model"])
def test_a_loaded_model_says_the_same_through_graphs(drafter: str, draft: Path, opened: Opener):
    asked, tapes = draft if drafter == "a model" else drafter, Taping()
    with opened(None, asked)[0] as plain:
        expected, _ = answered(plain)
    llm, at_load = opened(tapes, asked)
    with llm:
        decoders = llm._model.state.parts.decoders
        assert [type(one) for one in decoders] == [Graphed] * (1 + (asked == draft))
        assert (*answered(llm), at_load) == (expected, [], [])
        assert sum(tape.replays for tape in tapes.tapes) > 20


@pytest.mark.parametrize("failing", [1, 3])
def test_why_there_are_no_graphs_is_told_once(failing: int, opened: Opener):
    """At load, or in the middle of an answer."""
    with opened(None, "early-exit:2")[0] as plain:
        expected, _ = answered(plain)
    llm, at_load = opened(Taping(failing), "early-exit:2")
    with llm:
        text, in_answer = answered(llm)
        message = "CUDA graphs are off: operation not permitted when stream is capturing."
        assert (text, at_load, in_answer) == (expected, [message] * (failing == 1), [message] * (failing > 1))
        assert answered(llm) == (expected, [])


def test_there_are_graphs_on_cuda_and_nowhere_else():
    assert list(cuda_graphs.CAPTURES) == ["cuda"]


def test_the_plan_for_a_gpu_has_room_for_graphs(folder: Path, draft: Path, opened: Opener):
    on_gpu = find_format("bf16", "cuda")
    snapshot, request = open_snapshot(folder), PlanRequest(WeightOptions("bf16", ctx=256), "cuda")
    alone, on_cpu = needed(snapshot, request, on_gpu), footprint(snapshot, find_format("bf16"), 256)
    assert (on_cpu.graphs, alone.whole - on_cpu.whole) == (0, alone.graphs)
    assert alone.offloaded(1) == on_cpu.offloaded(1)
    with opened(Taping(), "off", "fp32")[0] as llm:
        target = llm._model.state.parts.decoders[0]
        assert isinstance(target, Graphed)
        buffers = (target.ids, target.positions, target.states_in, target.states_out, target.logits_out)
        assert 0 < sum(buffer.nbytes for buffer in buffers) < alone.graphs - MAX_GRAPHS * GRAPH_BYTES
    drafter = footprint(open_snapshot(draft), on_gpu, 256)
    beside = needed(snapshot, replace(request, drafter=open_snapshot(draft)), on_gpu)
    assert beside.drafter == drafter.whole - drafter.workspace > drafter.graphs > 0
