"""A complete tiny checkpoint of each published configuration, from its files to the text: as transformers writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from localspec import load
from localspec.engine.arch import Arch, read_arch
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.generic_arch import GenericArch, read_any
from localspec.engine.protocols import Drafter
from localspec.engine.session import Session
from localspec.loading.sources import open_source
from localspec.loading.torch import assemble
from localspec.models.checkpoint import open_snapshot
from tests.models.test_real_configs import CONFIGS, OWN, THEIRS, expected
from tests.support.fakes import generate, text
from tests.support.tiny_published import CONTEXT, greedy, model_of, save, tiny
from tests.support.tokenizers import gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified", "one_state_folder")]

QUICK = (
    "meta-llama/Llama-3.2-3B-Instruct",
    "mistralai/Mistral-7B-v0.1",
    "mistralai/Mistral-Nemo-Instruct-2407",
    "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen3-0.6B",
    "google/gemma-3-1b-it",
    "microsoft/Phi-4-mini-instruct",
    "openai-community/gpt2",
    "allenai/OLMo-2-1124-7B",
    "state-spaces/mamba-130m-hf",
)
OTHERS = (
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-2-70b-hf",
    "facebook/layerskip-codellama-34B",
    "facebook/layerskip-llama3-8B",
    "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.2-1B-Instruct",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "HuggingFaceTB/SmolLM-360M-Instruct",
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    "a fine-tune of SmolLM2-135M, saved by transformers 4.48",
    "tiiuae/Falcon3-7B-Instruct",
    "tiiuae/Falcon3-10B-Instruct",
    "01-ai/Yi-1.5-34B",
    "NousResearch/Yarn-Llama-2-7b-64k",
    "ALLaM-AI/ALLaM-7B-Instruct-preview",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "mistralai/Mistral-Small-24B-Instruct-2501",
    "mistralai/Ministral-8B-Instruct-2410",
    "dicta-il/dictalm2.0-instruct",
    "Qwen/Qwen1.5-4B-Chat",
    "Qwen/Qwen2-72B-Instruct",
    "Qwen/Qwen2.5-3B",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    "Qwen/Qwen3-8B, with yarn as its card says",
    "Qwen/Qwen3-14B",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-0.6B, saved by transformers 5",
    "google/gemma-2b",
    "google/gemma-7b",
    "google/gemma-2-9b-it",
    "google/gemma-2-27b-it",
    "google/gemma-3-270m-it",
    "microsoft/phi-2",
    "microsoft/Phi-3-mini-4k-instruct",
    "microsoft/Phi-3.5-mini-instruct",
    "microsoft/phi-4",
    "allenai/OLMo-1B-hf",
    "allenai/OLMo-2-0325-32B",
    "allenai/Olmo-3.1-32B-Instruct",
    "a Granite 3 of 8B",
    "LGAI-EXAONE/EXAONE-4.0-32B",
    "stabilityai/stablelm-3b-4e1t",
    "stabilityai/stablelm-2-zephyr-1_6b",
    "CohereForAI/c4ai-command-r-v01",
    "CohereForAI/aya-23-8B",
    "bigcode/gpt_bigcode-santacoder",
    "bigcode/starcoder2-7b",
    "EleutherAI/gpt-j-6b",
    "EleutherAI/pythia-6.9b-deduped",
    "togethercomputer/RedPajama-INCITE-Chat-3B-v1",
    "facebook/opt-125m",
    "facebook/opt-350m",
    "bigscience/bloom-560m",
    "tiiuae/falcon-40b",
    "tiiuae/falcon-7b-instruct",
    "mosaicml/mpt-7b",
    "THUDM/GLM-4-9B-0414",
    "THUDM/glm-4-9b-chat-hf",
    "HuggingFaceTB/SmolLM3-3B",
)
TOKENIZER = gpt2_like()
PROMPT = [5, 9, 14, 3, 30, 22, 41, 8, 17, 5, 33, 12]
LENGTH = 24
ASKED = "once upon a time there was"


def cases(verdict: str) -> list[object]:
    judged = set(expected(verdict))
    slow = [pytest.param(name, marks=pytest.mark.slow) for name in OTHERS if name in judged]
    return [*(name for name in QUICK if name in judged), *slow]


def test_each_family_is_tried_here():
    """Every type that has a configuration here, and every one that is judged is either."""
    tried = {CONFIGS[name]["model_type"] for name in (*QUICK, *OTHERS)}
    assert tried == {CONFIGS[name]["model_type"] for name in expected(OWN, THEIRS)}
    assert set(expected(OWN, THEIRS)) >= {*QUICK, *OTHERS}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", cases(OWN))
def test_our_decoder_writes_what_transformers_writes(name: str, tmp_path: Path):
    """In float64, one token at a time and drafted; in int8, drafted as it is plain."""
    config = tiny(CONFIGS[name], TOKENIZER.get_vocab_size())
    model = model_of(config)
    folder = save(model, config, tmp_path / "model", TOKENIZER)
    model = model.double()
    model.set_attn_implementation("sdpa")  # eager attention takes its softmax in float32
    theirs = greedy(model, PROMPT, LENGTH)
    snapshot = open_snapshot(folder)
    assert isinstance(read_any(snapshot.config), Arch)
    decoder = assemble(read_arch(snapshot.config), open_source(snapshot), dtype=torch.float64, context=CONTEXT)
    drafters: list[tuple[Drafter, int]] = [(NoDrafter(), 0), (EarlyExitDrafter(decoder, 1), 3)]
    for drafter, k in drafters:
        decoder.crop(0)
        assert text(generate(Session(decoder, drafter), PROMPT, max_tokens=LENGTH, policy=k)) == theirs
    assert len(set(theirs)) >= 3
    plain, drafted = (answer(folder, draft, "int8") for draft in ("off", "early-exit:2"))
    assert plain == drafted


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", cases(THEIRS))
def test_what_transformers_runs_writes_what_its_generate_writes(name: str, tmp_path: Path):
    config = tiny(CONFIGS[name], TOKENIZER.get_vocab_size())
    model = model_of(config)
    folder = save(model, config, tmp_path / "model", TOKENIZER)
    arch = read_any(open_snapshot(folder).config)
    assert isinstance(arch, GenericArch)
    with load(str(folder), draft="auto", quant="fp32", threads=1, ctx=CONTEXT) as llm:
        found = llm.generate(ASKED, max_tokens=LENGTH, temperature=0)
        why = llm.ready.spec
    assert [token.id for token in found.tokens] == greedy(model, TOKENIZER.encode(ASKED).ids, LENGTH)
    assert len({token.id for token in found.tokens}) >= 2
    if not arch.can_rewind:
        assert (why.kind, "its state cannot be rolled back" in why.reason) == ("off", True)


def answer(folder: Path, draft: str, quant: str) -> str:
    with load(str(folder), draft=draft, quant=quant, threads=1, k=3) as llm:
        found = llm.generate(ASKED, max_tokens=LENGTH, temperature=0)
        assert bool(found.stats.draft_n) == (draft != "off")
        return str(found.text)
