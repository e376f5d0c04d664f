"""Repositories that GPTQ quantised, of families that transformers runs: with gptqmodel, else it is one sentence."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from safetensors.torch import load_file

from localspec import load
from localspec.__main__ import main
from localspec.core.drain import drain
from localspec.core.errors import CheckpointError, UsageError
from localspec.core.requests import Message, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.generic_arch import GenericArch, read_any
from localspec.engine.session import Session
from localspec.loading import generic
from localspec.loading.footprint import footprint, in_16_bits
from localspec.loading.generic import build, far, load_generic
from localspec.loading.plan import Plan, draft_format, ladder, make_plan
from localspec.loading.plan_request import PlanRequest
from localspec.models.checkpoint import open_snapshot
from localspec.models.prequantised import stored_format
from tests.support.fakes import generate
from tests.support.generic_models import make_model, save_generic
from tests.support.prequantised import STYLES, store_folder
from tests.support.tokenizers import CHATML, gpt2_like

HI = [Message("user", "hello there general")]
SAID = STYLES["gptq"].config
SIZES = {"hidden_size": 64, "intermediate_size": 96, "tie_word_embeddings": False, "num_key_value_heads": 2}
MISSING = [name for name in stored_format.GPTQ_NEEDS if find_spec(name) is None]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One in GPTQ's layout, and the floats that it stands for."""
    top, tokenizer = tmp_path_factory.mktemp("models"), gpt2_like()
    model = make_model("olmo", vocab_size=tokenizer.get_vocab_size(), **SIZES).float()
    words = {"eos_token": "<|im_end|>", "chat_template": CHATML}
    save_generic(model, top / "gptq", tokenizer, **words)
    model.load_state_dict(store_folder(top / "gptq", STYLES["gptq"]))
    save_generic(model, top / "meant", tokenizer, **words)
    return top


def meant_model(models: Path) -> Any:
    from transformers import OlmoConfig, OlmoForCausalLM

    model = OlmoForCausalLM(OlmoConfig(**open_snapshot(models / "meant").config))
    model.load_state_dict(load_file(models / "meant" / "model.safetensors"))
    return model.eval()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What GPTQ needs is there, for whoever only asks."""
    monkeypatch.setattr(stored_format, "find_spec", lambda name: name)


def say(folder: Path, quantised: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": quantised}))


@pytest.mark.usefixtures("installed")
def test_both_tables_stay_in_16_bits(models: Path):
    kept = in_16_bits(open_snapshot(models / "gptq"), find_format("gptq"), keep_head=False)
    assert kept.keys() == {"embedding", "head"}


def test_without_gptqmodel_it_is_one_sentence_with_the_next_command(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(stored_format, "find_spec", lambda _: None)
    monkeypatch.setattr("localspec.cli.main.read_prompt", lambda prompt: prompt)
    monkeypatch.setattr(sys, "argv", ["localspec", "run", str(models / "gptq"), "hi"])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr().err
    assert (left.value.code, said.count("\n")) == (1, 1)
    for words in (
        "This model is quantised already, by gptq, which needs gptqmodel and optimum installed.",
        "pip install 'localspec[gptq]'",
        "--quant nf4",
    ):
        assert words in said


def test_what_is_missing_is_named(models: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stored_format, "find_spec", lambda name: None if name == "optimum" else name)
    with pytest.raises(CheckpointError, match=r"which needs optimum installed\."):
        read_any(open_snapshot(models / "gptq").config)


@pytest.mark.usefixtures("installed")
def test_transformers_runs_it_in_its_own_format_and_no_other(models: Path):
    snapshot = open_snapshot(models / "gptq")
    arch = read_any(snapshot.config)
    assert isinstance(arch, GenericArch)
    assert (arch.can_rewind, arch.num_layers, arch.num_kv_heads, arch.head_dim) == (True, 2, 2, 16)
    for device in ("cpu", "cuda"):
        (plan,) = ladder(snapshot, PlanRequest(device=device))
        assert (plan.weight_format.name, plan.packed, plan.resident) == ("gptq", None, None)
    assert footprint(snapshot, find_format("gptq"), 64).tables == snapshot.total_bytes
    for quant in ("int8", "nf4", "bf16"):
        with pytest.raises(UsageError, match=f"is stored in gptq and cannot be {quant}") as met:
            make_plan(snapshot, PlanRequest(WeightOptions(quant)))
        assert met.value.hint == "Use --quant auto."


@pytest.mark.usefixtures("installed")
def test_its_format_is_no_drafts_and_a_draft_in_it_keeps_it(models: Path):
    gptq, floats = open_snapshot(models / "gptq"), open_snapshot(models / "meant")
    targets = [find_format("int8"), find_format("bf16", "cuda")]
    assert [str(draft_format(gptq, target)) for target in targets] == ["gptq", "gptq"]
    targets = [find_format("gptq"), find_format("gptq", "cuda")]
    assert [str(draft_format(floats, target)) for target in targets] == ["fp32", "bf16"]


@pytest.mark.usefixtures("installed")
def test_of_what_the_repository_says_only_the_layout_reaches_transformers(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """B4: a dataset to fetch, a tokenizer to load and a kernel to compile are not a stranger's to choose."""
    from transformers import OlmoForCausalLM

    asked: list[Any] = []

    def from_pretrained(*_: Any, config: Any, **__: Any) -> Any:
        asked.append(config.quantization_config)
        report = dict.fromkeys(("missing_keys", "mismatched_keys", "unexpected_keys"), ())
        return SimpleNamespace(eval=lambda: None), report

    monkeypatch.setattr(OlmoForCausalLM, "from_pretrained", from_pretrained)
    folder = tmp_path / "gptq"
    shutil.copytree(models / "gptq", folder)
    say(folder, {**SAID, "backend": "marlin", "dataset": "c4", "tokenizer": "a/b", "meta": {"x": 1}, "dynamic": {}})
    build(open_snapshot(folder), torch.bfloat16)
    assert asked == [{**SAID, "checkpoint_format": "gptq", "backend": "torch"}]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "wrong", [{"bits": 5}, {"bits": "4"}, {"bits": [4]}, {"group_size": 0}, {"group_size": "x"}, {"format": "marlin"}]
)
def test_a_layout_that_is_none_is_refused(wrong: dict[str, Any]):
    config = {"model_type": "olmo", "quantization_config": {**SAID, **wrong}}
    with pytest.raises(CheckpointError, match="describes no weights of GPTQ's") as met:
        read_any(config)
    assert met.value.hint


@pytest.mark.usefixtures("installed")
def test_what_folds_its_past_is_not_run_in_it():
    with pytest.raises(CheckpointError, match="quantised already, by gptq"):
        read_any({"model_type": "mamba", "quantization_config": SAID})


@pytest.mark.usefixtures("installed")
def test_it_is_opened_and_answers_as_what_transformers_runs(models: Path, monkeypatch: pytest.MonkeyPatch):
    """With a model of floats where gptqmodel would make one: everything but its product."""

    def floats(_: Any, dtype: torch.dtype) -> Any:
        return meant_model(models).to(dtype)

    monkeypatch.setattr(generic, "build", floats)
    with load(str(models / "gptq"), draft="off", threads=1) as llm:
        card = llm.ready.model
        assert (card.quant, card.device, card.layers) == ("gptq", "cpu", 0)
        assert llm.generate(HI, max_tokens=4, temperature=0).tokens


@pytest.mark.heavy
@pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}")
@pytest.mark.filterwarnings("ignore")  # theirs
def test_it_says_what_the_floats_say_that_it_stands_for(models: Path, capsys: pytest.CaptureFixture[str]):
    """Within what rows in bf16 are rounded by; wrong codes or zeros would be off by half or more."""
    snapshot, floats = open_snapshot(models / "gptq"), open_snapshot(models / "meant")
    arch = read_any(snapshot.config)
    assert isinstance(arch, GenericArch)
    target = drain(load_generic(snapshot, arch, Plan(find_format("gptq"), 64), stage="weights"))
    meant = drain(load_generic(floats, arch, Plan(find_format("fp32"), 64), stage="weights"))
    assert target.weights.num_bytes == pytest.approx(footprint(snapshot, find_format("gptq"), 64).tables, rel=0.1)
    ids = torch.arange(24)
    expected = meant.forward(ids)
    assert far(target.forward(ids), expected) < 0.2
    target.crop(0)
    meant.crop(0)
    session = Session(target, ModelDrafter(meant, arch.vocab_size))
    assert sum(one.accepted for one in generate(session, [1, 2, 3], max_tokens=8, policy=3)) > 0
    assert capsys.readouterr().out == ""


def test_the_extra_brings_what_it_needs_and_no_more():
    extra = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    bounds = {found.name: found.specifier for found in map(Requirement, extra["gptq"])}
    assert bounds.keys() == set(stored_format.GPTQ_NEEDS)
    assert not bounds["gptqmodel"].contains("7.7.0")
