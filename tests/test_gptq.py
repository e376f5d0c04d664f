"""Repositories that GPTQ quantised: transformers runs them where gptqmodel is installed, else it is one sentence."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from localspec import formats, load, loader_generic
from localspec.__main__ import main
from localspec.checkpoint import open_snapshot
from localspec.drain import drain
from localspec.engine.arch import read_arch
from localspec.engine.drafters.model import DraftModel
from localspec.engine.generic_arch import GenericArch, read_any
from localspec.engine.session import Session
from localspec.errors import CheckpointError, UsageError
from localspec.fit import Plan, Wish, draft_format, ladder, make_plan
from localspec.footprint import footprint, in_16_bits
from localspec.loader import Files, assemble
from localspec.loader_generic import build, far, load_generic
from localspec.requests import Message
from tests.engine.fakes import generate
from tests.gptq_made_here import SAID, gptq_tensors
from tests.models_made_here import save_snapshot
from tests.tokenizers_made_here import CHATML, gpt2_like

HI = [Message("user", "hello there general")]
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "tie_word_embeddings": False}
MISSING = [name for name in formats.GPTQ_NEEDS if find_spec(name) is None]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One in GPTQ's layout, and the floats that it stands for."""
    top = tmp_path_factory.mktemp("models")
    for name in ("gptq", "meant"):
        save_snapshot(top / name, gpt2_like(), template=CHATML, eos="<|im_end|>", **SIZES)
    stored, meant = gptq_tensors(load_file(top / "meant" / "model.safetensors"))
    save_file(stored, top / "gptq" / "model.safetensors")
    save_file(meant, top / "meant" / "model.safetensors")
    say(top / "gptq", SAID)
    return top


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What GPTQ needs is there, for whoever only asks."""
    monkeypatch.setattr(formats, "find_spec", lambda name: name)


def say(folder: Path, quantised: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": quantised}))


@pytest.mark.usefixtures("installed")
def test_both_tables_stay_in_16_bits(models: Path):
    kept = in_16_bits(open_snapshot(models / "gptq"), "gptq", keep_head=False, device="cpu")
    assert kept.keys() == {"embedding", "head"}


def test_without_gptqmodel_it_is_one_sentence_with_the_next_command(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    monkeypatch.setattr("localspec.cli.read_prompt", lambda prompt: prompt)
    monkeypatch.setattr(sys, "argv", ["localspec", "run", str(models / "gptq"), "hi"])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr().err
    assert (left.value.code, said.count("\n")) == (1, 1)
    for words in (
        "This model is quantised already, by gptq, which needs gptqmodel and optimum installed.",
        "pip install 'gptqmodel<7.7' optimum",
        "--quant nf4",
    ):
        assert words in said


def test_what_is_missing_is_named(models: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "optimum" else name)
    with pytest.raises(CheckpointError, match=r"which needs optimum installed\."):
        read_any(open_snapshot(models / "gptq").config)


@pytest.mark.usefixtures("installed")
def test_transformers_runs_it_in_its_own_format_and_no_other(models: Path):
    snapshot = open_snapshot(models / "gptq")
    arch = read_any(snapshot.config)
    assert isinstance(arch, GenericArch)
    assert (arch.can_rewind, arch.num_layers, arch.num_kv_heads, arch.head_dim) == (True, 2, 2, 16)
    for device in ("cpu", "cuda"):
        (plan,) = ladder(snapshot, Wish(device=device))
        assert (plan.quant, plan.packed, plan.resident) == ("gptq", None, None)
    assert footprint(snapshot, "gptq", 64).tables == snapshot.total_bytes
    for quant in ("int8", "nf4", "bf16"):
        with pytest.raises(UsageError, match=f"is stored in gptq and cannot be {quant}") as met:
            make_plan(snapshot, Wish(quant, device="cpu"))
        assert met.value.hint == "Use --quant auto."


@pytest.mark.usefixtures("installed")
def test_its_format_is_no_drafts_and_a_draft_in_it_keeps_it(models: Path):
    gptq, floats = open_snapshot(models / "gptq"), open_snapshot(models / "meant")
    assert draft_format(gptq, "int8", "cpu") == draft_format(gptq, "bf16", "cuda") == "gptq"
    assert (draft_format(floats, "gptq", "cpu"), draft_format(floats, "gptq", "cuda")) == ("int8", "bf16")


@pytest.mark.usefixtures("installed")
def test_of_what_the_repository_says_only_the_layout_reaches_transformers(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """B4: a dataset to fetch, a tokenizer to load and a kernel to compile are not a stranger's to choose."""
    from transformers import LlamaForCausalLM

    asked: list[Any] = []

    def from_pretrained(*_: Any, config: Any, **__: Any) -> Any:
        asked.append(config.quantization_config)
        report = dict.fromkeys(("missing_keys", "mismatched_keys", "unexpected_keys"), ())
        return SimpleNamespace(eval=lambda: None), report

    monkeypatch.setattr(LlamaForCausalLM, "from_pretrained", from_pretrained)
    folder = save_snapshot(tmp_path / "gptq", gpt2_like(), **SIZES)
    (folder / "model.safetensors").write_bytes((models / "gptq" / "model.safetensors").read_bytes())
    say(folder, {**SAID, "backend": "marlin", "dataset": "c4", "tokenizer": "a/b", "meta": {"x": 1}, "dynamic": {}})
    build(open_snapshot(folder), torch.bfloat16)
    assert asked == [{**SAID, "checkpoint_format": "gptq", "backend": "torch"}]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "wrong", [{"bits": 5}, {"bits": "4"}, {"bits": [4]}, {"group_size": 0}, {"group_size": "x"}, {"format": "marlin"}]
)
def test_a_layout_that_is_none_is_refused(wrong: dict[str, Any]):
    config = {"model_type": "llama", "quantization_config": {**SAID, **wrong}}
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
    from transformers import LlamaConfig, LlamaForCausalLM

    def floats(_: Any, dtype: torch.dtype) -> Any:
        model = LlamaForCausalLM(LlamaConfig(**open_snapshot(models / "meant").config))
        model.load_state_dict(load_file(models / "meant" / "model.safetensors"))
        return model.to(dtype).eval()

    monkeypatch.setattr(loader_generic, "build", floats)
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
    target = drain(load_generic(snapshot, arch, Plan("gptq", 64, "cpu"), stage="weights"))
    meant = assemble(read_arch(floats.config), Files(floats), dtype=torch.float32, context=64)
    assert target.weights.num_bytes == pytest.approx(footprint(snapshot, "gptq", 64).tables, rel=0.1)
    ids = torch.arange(24)
    expected = meant.forward(ids)
    assert far(target.forward(ids), expected) < 0.05
    target.crop(0)
    meant.crop(0)
    session = Session(target, DraftModel(meant, arch.vocab_size))
    assert sum(one.accepted for one in generate(session, [1, 2, 3], max_tokens=8, policy=3)) > 0
    assert capsys.readouterr().out == ""
