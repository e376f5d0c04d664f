"""benchmarks/real_model.py: its prompts, its drafters, its tables, and its peers on small stand-ins."""

from __future__ import annotations

import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import peers, real_model
from benchmarks.program import run
from localspec.bench.prompts import KINDS, PROMPTS, Prompt
from localspec.bench.report import PLAIN, Report, Run, Way
from localspec.core.errors import NotDownloaded
from localspec.runtime import draft_choice

OURS_PLAIN = Way("plain", "0", "int8")
EXIT = Way("early exit 7", "auto", "int8", "early exit")
LLAMA = Way("llama.cpp plain", "0", "Q4_1", PLAIN, "llama.cpp")
TWO = (Prompt("chat", "a"), Prompt("code", "b"), Prompt("chat", "c"))


def runs(*seconds: float) -> dict[tuple[int, int], Run]:
    """Ten tokens for each of the three prompts."""
    return {(place, 0): Run((7,) * 10, took) for place, took in enumerate(seconds)}


FOUND = Report(
    "real",
    "int8",
    10,
    1,
    {},
    {OURS_PLAIN: runs(1, 2, 1), EXIT: runs(0.5, 2.5, 0.25), LLAMA: runs(2, 2, 2)},
)


def test_every_kind_has_two_prompts_and_none_is_asked_twice():
    assert Counter(prompt.kind for prompt in PROMPTS) == dict.fromkeys(KINDS, 2)
    assert len({prompt.text for prompt in PROMPTS}) == len(PROMPTS)


def test_the_table_by_kind_has_speeds_and_the_ratio_to_the_same_engines_plain():
    assert real_model.by_kind(FOUND, TWO) == [
        ["method", "format", "chat", "code"],
        ["plain", "int8", "10.0", "5.0"],
        ["early exit 7", "int8", "30.0 (3.00)", "4.0 (0.80)"],
        ["llama.cpp plain", "Q4_1", "5.0", "5.0"],
    ]


def test_one_kind_is_a_report_of_its_own():
    chat = real_model.only(FOUND, TWO, "chat")
    assert {key for every in chat.runs.values() for key in every} == {(0, 0), (2, 0)}
    assert chat.runs.keys() == FOUND.runs.keys()


def test_plain_comes_first_and_each_drafter_is_measured_or_named():
    found, missing = real_model.drafters()
    assert next(iter(found.items())) == (PLAIN, "off")
    assert len(found) + len(missing) == 1 + len(real_model.DRAFTERS)
    for written in found.values():
        draft_choice.parse(written)


def test_a_model_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["benchmarks.real_model", "./nowhere.gguf"])
    assert run(real_model.main) == NotDownloaded.exit_code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "nowhere.gguf" in said.err


class Counting:
    """Stands in for a context of llama.cpp: says one more than it read last."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.read_ids: list[int] = []

    def crop(self, length: int) -> None:
        del self.read_ids[length:]

    def read(self, ids: list[int]) -> None:
        self.read_ids += ids

    def logits(self) -> np.ndarray:
        return np.eye(32)[self.read_ids[-1] + 1]


def opened(*end: int) -> Any:
    return SimpleNamespace(
        snapshot=SimpleNamespace(eos_ids=end, stored_as="Q4_1"),
        plan=SimpleNamespace(context=64),
        prompter=SimpleNamespace(chat=lambda messages: [1, 2, len(messages[0].content)]),
    )


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> peers.LlamaCpp:
    monkeypatch.setattr(peers, "Context", Counting)
    return peers.LlamaCpp(opened(9), None, None, flash=False, threads=2)


def test_llama_cpp_writes_greedily_until_the_end_of_a_turn(llama: peers.LlamaCpp):
    assert llama.answer("four", 20).ids == (5, 6, 7, 8, 9)
    assert llama.answer("four", 3).ids == (5, 6, 7), "and forgets between answers"


def test_llama_cpp_reads_nothing_that_no_answer_needs(llama: peers.LlamaCpp):
    """A forward for the prompt, and one for every token but the last."""
    llama.answer("four", 3)
    assert llama.context.read_ids == [1, 2, 4, 5, 6]  # type: ignore[attr-defined]


def test_llama_cpp_is_a_row_of_its_own_format(llama: peers.LlamaCpp):
    assert llama.way == Way("llama.cpp plain", "0", "Q4_1", PLAIN, "llama.cpp", 2)
