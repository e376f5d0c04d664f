"""SmolLM2 as somebody else packed it: our loader against transformers' own, and what we hold it in against itself."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from localspec import load
from localspec.core.drain import drain
from localspec.core.events import DraftLength
from localspec.core.requests import EarlyExit, LoadRequest, Message
from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.isa import choose
from localspec.loading.sources import open_source
from localspec.loading.torch import assemble
from localspec.models.checkpoint import open_snapshot
from localspec.models.prompt_sandbox import SandboxedPrompter
from localspec.runtime.api import LLM
from localspec.runtime.drafter_setup import attach
from localspec.runtime.open import open_target
from localspec.runtime.result import Result
from localspec.runtime.slots import Slots
from tests.real.things import SMOLLM2, SMOLLM2_GGUF

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder", "verified")]

QUESTIONS = (
    *("What is the capital of France?", "Write a haiku about rain.", "def fibonacci(n):", "Explain gravity briefly."),
    *("List three fruits.", "Who wrote Hamlet?", "Translate 'good morning' into French.", "What is 12 times 12?"),
    *("Summarise: The cat sat on the mat and slept.", "Give me a JSON object with a name and an age.", "Hi!"),
    *("Why is the sky blue?", "Name a planet.", "Write a SQL query that counts users.", "What is a prime number?"),
    *("Tell me a story about a fox.", "How do I boil an egg?", "What does HTTP stand for?", "Rewrite: me go store."),
    "Was ist ein Baum?",
)
KNOWN = {  # what an answer must have, and its question has not
    "What is the capital of France?": "Paris",
    "What is the largest ocean on Earth?": "Pacific",
    "Who wrote Romeo and Juliet?": "Shakespeare",
    "What is the opposite of hot?": "cold",
    "How many days are in a week?": "7",
    "What is the chemical formula H2O commonly called?": "water",
}
LENGTH = 16  # tokens of an answer
DRAFTS: list[tuple[str | EarlyExit, DraftLength]] = [
    *(("early-exit:8", 4), ("early-exit:20", 1), (EarlyExit(25, greedy=True), "heuristic")),
    *(("early-exit:25", "auto"), ("itself", 3), ("lookup+early-exit:20", 2), ("lookup", "auto")),
]


@pytest.fixture(scope="module", autouse=True)
def engine() -> program.Program:
    """Compiled before any test turns its cache away."""
    return program.load(choose())


@pytest.fixture(scope="module")
def file() -> Path:
    return SMOLLM2.file(SMOLLM2_GGUF)


@pytest.fixture(scope="module")
def ours(file: Path) -> Any:
    snapshot = open_snapshot(file)
    return assemble(read_arch(snapshot.config), open_source(snapshot), dtype=torch.float32, context=256)


@pytest.fixture(scope="module")
def theirs(file: Path) -> Any:
    """Of transformers' own loading three quarters are gguf's: it reads the file twice, number by number out of a mapped
    array, and makes its table of names again for every module. Here it does each once, out of a plain array."""
    import gguf
    from gguf import gguf_reader
    from transformers import AutoModelForCausalLM

    mapped = {"memmap": lambda path, **_: numpy.fromfile(path, numpy.uint8)}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr(gguf_reader, "np", SimpleNamespace(**{**vars(numpy), **mapped}))
        for name in ("GGUFReader", "get_tensor_name_map"):
            patch.setattr(gguf, name, cache(getattr(gguf, name)))
        return AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)


@pytest.fixture(scope="module")
def prompts(file: Path) -> list[list[int]]:
    prompter = SandboxedPrompter.open(open_snapshot(file))
    try:
        return [prompter.chat([Message("user", question)]) for question in QUESTIONS]
    finally:
        prompter.close()


def logits(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return found


def test_logits_are_those_of_transformers_own_loading(ours: Any, theirs: Any, prompts: list[list[int]]):
    for ids in prompts[:4]:
        ours.crop(0)
        assert (ours.forward(torch.tensor(ids)) - logits(theirs, ids)).abs().max() < 1e-3


@pytest.mark.parametrize("each", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_greedy_text_is_that_of_transformers(each: int, ours: Any, theirs: Any, prompts: list[list[int]]):
    """Every token of theirs is our first choice behind the same tokens: so it is what we would have written."""
    assert len(prompts) == 20
    asked = prompts[::each]
    for ids, written in zip(asked, generated(theirs, asked), strict=True):
        ours.crop(0)
        assert len(written) == LENGTH
        assert ours.forward(torch.tensor(ids + written))[len(ids) - 1 : -1].argmax(-1).tolist() == written


def generated(model: Any, prompts: list[list[int]]) -> list[list[int]]:
    """What transformers' generate goes on with, past the end of a turn too; all at once, in fewer forwards."""
    longest = max(map(len, prompts))
    blanks = [longest - len(ids) for ids in prompts]
    rows = torch.tensor([[0] * blank + ids for blank, ids in zip(blanks, prompts, strict=True)])
    mask = torch.tensor([[0] * blank + [1] * (longest - blank) for blank in blanks])
    model.generation_config.eos_token_id = None
    found = model.generate(rows, attention_mask=mask, max_new_tokens=LENGTH, do_sample=False, pad_token_id=0)
    texts: list[list[int]] = found[:, longest:].tolist()
    return texts


@pytest.fixture(scope="module", params=["int8", pytest.param("int4", marks=pytest.mark.slow)])
def opened(request: pytest.FixtureRequest, file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A target that all drafters share; packed once, and mapped by what drafts. In int8, which is taken unasked; in
    int4 test_packed_loading.py has guide, which is real too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
        patch.setenv("LOCALSPEC_STATE_DIR", str(tmp_path_factory.getbasetemp() / "one-state"))
        patch.setattr("localspec.loading.kernels.verify_config", lambda _: None)  # `verified` is later
        found = drain(open_target(LoadRequest.of(str(file), quant=request.param, ctx=512)))
        yield found
        found.target.close()
        found.prompter.close()


def chat(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def answers(llm: LLM, each: int) -> list[Result]:
    """To two questions, greedy and drawn with a seed; each third of the four is one of each."""
    ways: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9, "seed": 7}]
    asked = [(question, way) for question in QUESTIONS[1:4:2] for way in ways][::each]
    return [llm.generate(chat(question), max_tokens=LENGTH, **way) for question, way in asked]


def texts(found: list[Result]) -> list[list[int]]:
    return [[token.id for token in one.tokens] for one in found]


@pytest.mark.parametrize("each", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_no_drafter_changes_a_token(each: int, opened: Any, file: Path):
    """Greedy or with a seed, whoever drafts, and however many: of the drafts some are accepted, and some are not."""
    plain = texts(answers(LLM(Slots(drain(attach(opened, "off", "auto")))), each))
    assert len({tuple(ids) for ids in plain}) == len(plain)
    accepted = rejected = 0
    for draft, k in DRAFTS:
        model = drain(attach(opened, str(file) if draft == "itself" else draft, k))
        found = answers(LLM(Slots(model)), each)
        model.close()
        assert texts(found) == plain
        assert k == "auto" or all(one.stats.draft_n for one in found)
        accepted += sum(one.stats.draft_n_accepted for one in found)
        rejected += sum(one.stats.draft_n_rejected for one in found)
    assert min(accepted, rejected) > 10


def test_it_answers_sensibly(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    """In a conversation, unasked in int8."""
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    with load(str(file), ctx=512) as llm:
        assert llm.ready.model.quant == "int8"
        for question, word in KNOWN.items():
            assert word not in question
            assert word in llm.generate(chat(question), max_tokens=32).text
