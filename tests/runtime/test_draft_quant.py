"""--draft-quant: a draft model in a format of its own, beside a target in any other; and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from localspec import load
from localspec.core.errors import UsageError
from localspec.core.requests import LoadRequest, Message, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.loading.plan import draft_format, needed
from localspec.loading.plan_request import PlanRequest
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import LLM
from localspec.tui.control.bench_run import arguments
from tests.conftest import Program
from tests.support.generic_models import make_model, save_generic
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

HI = [Message("user", "hello there general")]
SIZES = {"hidden_size": 64, "intermediate_size": 128}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top, tokenizer = tmp_path_factory.mktemp("models"), gpt2_like()
    save_snapshot(top / "target", tokenizer, template=CHATML, eos="<|im_end|>", **SIZES)
    save_snapshot(top / "draft", tokenizer, num_hidden_layers=2, **SIZES)
    gpt2 = make_model("gpt2", vocab_size=tokenizer.get_vocab_size())
    save_generic(gpt2.float(), top / "gpt2", tokenizer)
    return top


def opened(models: Path, quant: str, draft_quant: str, **options: int) -> LLM:
    return load(
        str(models / "target"), draft=str(models / "draft"), quant=quant, draft_quant=draft_quant, k=3, **options
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("quant", "draft_quant"), [("int8", "nf4"), ("nf4", "int8"), ("fp32", "int4"), ("int8", "fp32"), ("fp32", "fp32")]
)
def test_a_draft_in_its_own_format_drafts_and_changes_no_word(quant: str, draft_quant: str, models: Path):
    """The packed formats and float32 give each row what it gives it alone on these sizes; nf4's fused product too."""
    with load(str(models / "target"), draft="off", quant=quant, threads=1) as plain:
        expected = plain.generate(HI, max_tokens=24).text
        held = plain.ready.memory.target_bytes
    with opened(models, quant, draft_quant, threads=1) as llm:
        answer = llm.generate(HI, max_tokens=24)
        assert answer.text == expected
        assert answer.stats.draft_n > 0
        assert llm.ready.model.quant == quant
        assert llm.ready.memory.target_bytes == held


def test_a_narrow_draft_takes_less_memory_held_and_planned(models: Path):
    with opened(models, "fp32", "int4", threads=1) as narrow, opened(models, "fp32", "auto", threads=1) as wide:
        assert narrow.ready.memory.drafter_bytes < wide.ready.memory.drafter_bytes / 2
    target, draft = open_snapshot(models / "target"), open_snapshot(models / "draft")
    plans = [
        needed(target, PlanRequest(WeightOptions(ctx=64, draft_format=asked), drafter=draft), find_format("fp32"))
        for asked in ("int4", "auto")
    ]
    assert plans[0].drafter < plans[1].drafter
    assert plans[0].layer == plans[1].layer


def test_torch_has_its_threads_where_one_of_the_two_is_torchs(models: Path):
    """The CPU engine's own begin with torch's set to one."""
    for quant, draft_quant, threads in (("fp32", "int8", 2), ("int8", "fp32", 2), ("int8", "int8", 1)):
        with opened(models, quant, draft_quant, threads=2) as llm:
            assert llm.ready.model.quant == quant
            assert torch.get_num_threads() == threads


def test_without_the_flag_it_is_as_it_was(models: Path):
    draft, gpt2 = open_snapshot(models / "draft"), open_snapshot(models / "gpt2")
    assert str(draft_format(draft, find_format("int8"))) == "int8"
    assert str(draft_format(gpt2, find_format("int8"))) == "fp32"
    assert str(draft_format(gpt2, find_format("int8"), "nf4")) == "nf4"


@pytest.mark.parametrize(
    ("draft", "asked", "device", "said"),
    [
        ("draft", "q4", "cpu", "There is no weight format 'q4'"),
        ("draft", "int4", "cuda", "run on a CPU only"),
        ("gpt2", "int8", "cpu", "does not run models of type 'gpt2'"),
    ],
)
def test_a_format_that_the_draft_cannot_have_is_refused(draft: str, asked: str, device: str, said: str, models: Path):
    with pytest.raises(UsageError, match=said) as caught:
        draft_format(open_snapshot(models / draft), find_format("int8", device), asked)
    assert "--draft-quant" in caught.value.hint


def test_an_early_exit_has_no_format_of_its_own(localspec: Program):
    code, _, err = localspec("run", "guide", "hi", "--draft", "early-exit:1", "--draft-quant", "int4")
    assert code == 2
    assert "drafts with the target's own weights" in err
    assert "--draft ./FOLDER" in err


def test_the_command_line_says_it_and_bench_in_the_chat_repeats_it(models: Path, localspec: Program):
    words = ["run", models / "target", "hi", "--draft", models / "draft", "--threads", "1", "--max-tokens", "2"]
    assert localspec(*words, "--draft-quant", "int4")[0] == 0
    code, _, err = localspec(*words, "--draft-quant", "int5")
    assert code == 2
    assert "There is no weight format 'int5'" in err
    assert arguments(LoadRequest.of("m", draft="d", draft_quant="nf4"))[-4:] == ["--draft-quant", "nf4", "--", "m"]
    assert "--draft-quant" not in arguments(LoadRequest("m"))
