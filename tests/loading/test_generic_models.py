"""A folder of a family that transformers runs, from the request to the answer: what is told, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from localspec import load
from localspec.core.drain import drain
from localspec.core.errors import CheckpointError, DoesNotFit, EngineError, IncompatiblePair, UsageError
from localspec.core.events import AnyEvent, Loading, Notice
from localspec.core.requests import GenerateRequest, LoadRequest, Message, SpecOptions, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine.generic_arch import read_any
from localspec.loading import generic
from localspec.loading.footprint import footprint
from localspec.loading.generic import load_generic
from localspec.loading.plan import Plan, fit_word, ladder, make_plan, needed
from localspec.loading.plan_request import PlanRequest
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import LLM, load_events
from localspec.tui.control.fit_report import what_fits
from tests.support.generic_models import blurred, make_model, save_generic
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

HI = [Message("user", "hello there general")]
WORDS = {"chat_template": CHATML, "eos_token": "<|im_end|>"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top, tokenizer = tmp_path_factory.mktemp("models"), gpt2_like()
    rows = tokenizer.get_vocab_size()
    gpt2, mamba = make_model("gpt2", vocab_size=rows), make_model("mamba", vocab_size=rows)
    save_generic(gpt2.float(), top / "gpt2", tokenizer, **WORDS)
    save_generic(mamba.float(), top / "mamba", tokenizer, **WORDS)
    save_generic(blurred(gpt2, 0.02).float(), top / "draft", tokenizer)
    save_snapshot(top / "llama", tokenizer, template=CHATML, eos="<|im_end|>")
    return top


def opened(folder: Path, **options: Any) -> tuple[LLM, list[Notice]]:
    """With what was told meanwhile."""
    request = LoadRequest.of(str(folder), **{"draft": "off", "quant": "fp32", "threads": 1, **options})
    events: list[AnyEvent] = []
    llm = drain(load_events(request), events.append)
    return llm, [event for event in events if isinstance(event, Notice)]


def test_it_chats_with_a_draft_model_and_says_who_runs_it(models: Path):
    with load(str(models / "gpt2"), draft="off", quant="fp32", threads=1) as llm:
        plain = llm.generate(HI, max_tokens=20)
    llm, notices = opened(models / "gpt2", draft=str(models / "draft"), k=3)
    with llm:
        assert [note.code for note in notices] == ["generic"]
        assert (llm.ready.spec.kind, llm.ready.model.layers, llm.ready.model.context_max) == ("model", 0, 256)
        assert llm.ready.memory.kv_bytes == 2 * 2 * 2 * 32 * 256 * 4  # target and draft, keys and values, two layers
        answer = llm.generate(HI, max_tokens=20)
        assert answer.text == plain.text
        assert answer.stats.draft_n_accepted > 0
        again = llm.generate(HI, max_tokens=20)
        assert again.text == plain.text
        assert again.stats.cached_n > answer.stats.cached_n  # the prompt was kept


def test_an_early_exit_is_refused_with_what_to_do_instead(models: Path):
    with pytest.raises(UsageError, match="cannot draft by early exit: transformers runs it") as caught:
        opened(models / "gpt2", draft="early-exit:1")
    assert "--draft ./FOLDER" in caught.value.hint
    llm, _ = opened(models / "gpt2")
    with llm, pytest.raises(UsageError, match="early exit"):
        list(llm.answer(GenerateRequest(messages=tuple(HI), exit_layer=1, max_tokens=4)))


@pytest.mark.parametrize("draft", ["auto", "llama"])
def test_what_cannot_take_a_draft_back_runs_plain_and_says_so(models: Path, draft: str):
    llm, notices = opened(models / "mamba", draft=draft if draft == "auto" else str(models / draft), k=4)
    with llm:
        (note,) = (note for note in notices if note.code == "no_rewind")
        assert "its state cannot be rolled back" in note.message
        assert llm.ready.spec.kind == "off"
        assert "its state cannot be rolled back" in llm.ready.spec.reason
        assert llm.steer(SpecOptions("on", 4)).kind == "off"
        answer = llm.generate(HI, max_tokens=6)
        assert answer.stats.draft_n == 0
        assert answer.text == llm.generate(HI, max_tokens=6).text


def test_what_cannot_take_a_draft_back_cannot_draft(models: Path):
    with pytest.raises(IncompatiblePair, match="its state cannot be rolled back"):
        opened(models / "gpt2", draft=str(models / "mamba"))


@pytest.mark.parametrize(("target", "draft"), [("llama", "gpt2"), ("gpt2", "llama")])
def test_it_drafts_for_our_own_decoder_and_the_other_way_round(models: Path, target: str, draft: str):
    with load(str(models / target), draft="off", quant="fp32", threads=1) as llm:
        plain = llm.generate(HI, max_tokens=12).text
    with load(str(models / target), draft=str(models / draft), quant="fp32", threads=1, k=3) as llm:
        assert llm.ready.spec.kind == "model"
        assert llm.generate(HI, max_tokens=12).text == plain


@pytest.mark.parametrize(
    ("family", "quant", "says"),
    [
        ("gpt2", "int4", "does not run models of type 'gpt2'"),
        ("gpt2", "int8", "does not run models of type 'gpt2'"),
        ("mamba", "nf4", "run in floats only"),
    ],
)
def test_a_format_it_cannot_have_is_refused_with_those_it_can(models: Path, family: str, quant: str, says: str):
    with pytest.raises(UsageError, match=says) as caught:
        make_plan(open_snapshot(models / family), PlanRequest(WeightOptions(quant)))
    assert "--quant fp32" in caught.value.hint


def test_auto_is_the_best_floats_that_fit(models: Path):
    snapshot = open_snapshot(models / "gpt2")
    plan = make_plan(snapshot, PlanRequest())
    assert (plan.weight_format.name, plan.packed, plan.context) == ("fp32", None, 256)
    assert fit_word(snapshot, 1 << 40) == "fits"
    assert fit_word(snapshot, 1) == "too large"
    assert fit_word(snapshot, footprint(snapshot, find_format("fp32"), 256).whole - 1) == "fits in bf16"


def test_it_cannot_be_offloaded_and_says_so(models: Path):
    with pytest.raises(UsageError, match="'gpt2' cannot be offloaded") as caught:
        opened(models / "gpt2", device="offload")
    assert "Leave out --device offload" in caught.value.hint


def test_its_ladder_has_its_own_formats_and_never_the_disk(models: Path):
    def rungs(family: str, device: str) -> list[str]:
        plans = list(ladder(open_snapshot(models / family), PlanRequest(device=device)))
        assert {plan.resident for plan in plans} == {None}
        return [plan.weight_format.name for plan in plans]

    assert rungs("gpt2", "cpu") == rungs("mamba", "cpu") == ["fp32", "bf16"]
    assert (rungs("gpt2", "cuda"), rungs("mamba", "cuda")) == (["bf16", "int8", "nf4"], ["bf16"])
    snapshot = open_snapshot(models / "gpt2")
    in_bf16 = footprint(snapshot, find_format("bf16"), 256).whole
    for quant, limit, way in (
        ("auto", 1_000_000, "a larger --max-memory"),
        ("fp32", 1_000_000, "a larger --max-memory"),
        ("fp32", in_bf16, "--quant auto"),
    ):
        with pytest.raises(DoesNotFit, match=r"--max-memory is \d+ MB") as caught:
            make_plan(snapshot, PlanRequest(WeightOptions(quant), max_bytes=limit))
        assert caught.value.hint == f"Try {way} or a smaller --ctx."


def test_memory_that_runs_out_while_loading_leads_to_bf16(models: Path, monkeypatch: pytest.MonkeyPatch):
    real = generic.build

    def build(snapshot: Any, dtype: torch.dtype) -> Any:
        if dtype == torch.float32:
            raise torch.OutOfMemoryError("a planted one")
        return real(snapshot, dtype)

    monkeypatch.setattr(generic, "build", build)
    llm, notices = opened(models / "gpt2", quant="auto")
    with llm:
        assert llm.ready.model.quant == "bf16"
        assert [note.code for note in notices] == ["memory", "format", "generic"]
        assert llm.generate(HI, max_tokens=4).tokens
    with pytest.raises(DoesNotFit, match="Memory ran out") as caught:
        opened(models / "gpt2", quant="fp32")
    assert caught.value.hint == "Try --quant bf16 or a smaller --ctx."


def test_the_plan_counts_what_is_loaded(models: Path):
    planned = footprint(open_snapshot(models / "gpt2"), find_format("fp32"), 256)
    llm, _ = opened(models / "gpt2")
    with llm:
        assert llm.ready.memory.target_bytes == pytest.approx(planned.tables, rel=0.01)
        assert llm.ready.memory.kv_bytes == planned.kv
    narrow = [footprint(open_snapshot(models / "gpt2"), find_format(quant), 256).tables for quant in ("nf4", "int8")]
    assert narrow == sorted(set(narrow))


def test_a_draft_is_counted_in_the_format_that_it_gets(models: Path):
    """Which is not int8: that is the CPU engine's."""
    target, draft = open_snapshot(models / "llama"), open_snapshot(models / "gpt2")
    alone = footprint(draft, find_format("fp32"), 64)
    request = PlanRequest(WeightOptions("int8", ctx=64), drafter=draft)
    both = needed(target, request, find_format("int8"))
    assert both.drafter + both.workspace == alone.tables + alone.kv + max(alone.workspace, both.workspace)


def test_what_it_needs_is_told_format_by_format(models: Path):
    told = what_fits(LoadRequest(str(models / "gpt2"), "off"), None)
    assert [word for word in ("fp32", "bf16", "It would be loaded in fp32.") if word not in told] == []
    assert "int8" not in told


def with_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def with_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a family nobody tried": (lambda at: with_config(at, model_type="t5"), "'t5' are not supported yet"),
    "quantised by AWQ": (
        lambda at: with_config(at, quantization_config={"quant_method": "awq", "bits": 4}),
        "quantised already, by awq",
    ),
    "quantised by MLX": (lambda at: with_config(at, quantization={"group_size": 64, "bits": 4}), "already, by MLX"),
    "a classifier": (
        lambda at: with_config(at, architectures=["GPT2ForSequenceClassification"]),
        "does not generate text: .*GPT2For",
    ),
    "more layers than weights": (lambda at: with_config(at, n_layer=200), "describes .* weights"),
    "one layer more": (lambda at: with_config(at, n_layer=3), "lacks the tensor 'transformer.h.2"),
    "one layer less": (lambda at: with_config(at, n_layer=1), "does not explain: 'transformer.h.1"),
    "more positions": (lambda at: with_config(at, n_positions=512), "another shape"),
    "no sizes": (lambda at: with_config(at, n_layer=None), "num_hidden_layers = None"),
    "an activation nobody knows": (lambda at: with_config(at, activation_function="none such"), "cannot load"),
    "a tensor missing": (
        lambda at: with_weights(at, lambda weights: weights.pop("transformer.ln_f.weight")),
        "lacks the tensor 'transformer.ln_f.weight'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_is_not_what_it_says_is_one_sentence(tmp_path: Path, name: str):
    spoil, says = BROKEN[name]
    folder = save_generic(make_model("gpt2"), tmp_path / "model")
    with_weights(folder, lambda weights: weights.update({"transformer.h.0.attn.bias": torch.ones(1)}))  # as old ones
    spoil(folder)
    with pytest.raises(CheckpointError, match=says) as caught:
        opened_blind(folder)
    assert "\n" not in str(caught.value)


def opened_blind(folder: Path) -> None:
    """Whatever its tokenizer says."""
    snapshot = open_snapshot(folder)
    drain(load_generic(snapshot, read_any(snapshot.config), Plan(find_format("fp32"), 64), stage="weights"))


def test_numbers_that_are_none_are_refused(tmp_path: Path):
    folder = save_generic(make_model("gpt2").float(), tmp_path / "model")
    with_weights(folder, lambda weights: weights["transformer.h.0.mlp.c_fc.weight"].fill_(float("nan")))
    with pytest.raises(EngineError, match="invalid numbers"):
        opened_blind(folder)


def test_a_token_of_zeros_is_nothing_to_divide_by(tmp_path: Path):
    """A padding token, whose rows were never trained: without biases all its logits are exactly zero."""
    model = make_model("gemma").float()
    with torch.no_grad():
        model.get_input_embeddings().weight[0] = 0
    opened_blind(save_generic(model, tmp_path / "model"))


def test_what_files_have_and_we_do_not_know_is_no_reason_to_fetch_them_again(tmp_path: Path):
    folder = save_generic(make_model("gpt2"), tmp_path / "model")
    with_weights(folder, lambda weights: weights.update({"transformer.h.0.more": torch.ones(1)}))
    with pytest.raises(CheckpointError, match="does not explain") as caught:
        opened_blind(folder)
    assert "Download" not in caught.value.hint


def test_loading_is_told(models: Path):
    request = LoadRequest.of(str(models / "gpt2"), draft="off", quant="fp32", threads=1)
    told = [event for event in load_events(request) if isinstance(event, Loading) and event.stage == "loading weights"]
    assert (told[0].done, told[-1].done) == (0, told[-1].total)
