"""SmolLM2 answers twenty questions, several at once: to the letter what it answers to each alone, however it drafts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec import load
from localspec.core.requests import GenerateRequest, Message, SamplingOptions
from localspec.runtime.api import LLM
from tests.real.test_gguf import LENGTH, QUESTIONS
from tests.real.things import SMOLLM2, SMOLLM2_GGUF

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder", "verified")]


@pytest.fixture(scope="module")
def file() -> Path:
    return SMOLLM2.file(SMOLLM2_GGUF)


def answers(llm: LLM) -> Iterator[str]:
    """Of every other question sampled, by a seed of its own."""
    requests = [
        GenerateRequest(
            messages=(Message("user", question),),
            max_tokens=LENGTH + number,
            sampling=SamplingOptions(temperature=0.8 * (number % 2), seed=number),
        )
        for number, question in enumerate(QUESTIONS)
    ]
    found = dict(llm.answer_many(requests))
    return (found[number].result().text for number in range(len(requests)))


@pytest.mark.slow
@pytest.mark.parametrize("quant", ["int8", "int4"])
def test_many_at_once_are_each_what_they_are_alone(file: Path, quant: str):
    with load(file, draft="off", quant=quant, ctx=256) as llm:
        alone = list(answers(llm))
    with load(file, draft="lookup+early-exit:20", quant=quant, ctx=256, k=3, parallel=6) as llm:
        assert list(answers(llm)) == alone
