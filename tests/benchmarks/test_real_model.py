"""benchmarks/real_model.py: its prompts, its drafters, its tables, and its contenders on small stand-ins."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import contenders, real_model
from benchmarks.program import run
from localspec.bench.prompts import KINDS, PROMPTS
from localspec.bench.report import PLAIN, BenchReport, TimedRun, Way, kind_table
from localspec.bench.transformers_peer import PeerMode
from localspec.core.errors import NotDownloaded, UsageError
from localspec.engine.drafters import table

OURS_PLAIN = Way("plain", 0, "int8")
EXIT = Way("early exit 7", "auto", "int8", "early exit")
LLAMA = Way("llama.cpp plain", 0, "Q4_1", PLAIN, "llama.cpp")


def runs(*seconds: float) -> dict[tuple[int, int], TimedRun]:
    """Ten tokens for each of the three prompts."""
    return {(place, 0): TimedRun((7,) * 10, took) for place, took in enumerate(seconds)}


FOUND = BenchReport(
    "real",
    "int8",
    10,
    1,
    {},
    {OURS_PLAIN: runs(1, 2, 1), EXIT: runs(0.5, 2.5, 0.25), LLAMA: runs(2, 2, 2)},
    kinds=("chat", "code", "chat"),
)


def test_every_kind_has_two_prompts_and_none_is_asked_twice():
    assert Counter(prompt.kind for prompt in PROMPTS) == dict.fromkeys(KINDS, 2)
    assert len({prompt.text for prompt in PROMPTS}) == len(PROMPTS)


def test_the_second_set_is_read_from_its_file_and_has_every_kind_once(tmp_path: Path):
    second = real_model.read_prompts(Path(real_model.__file__).parent / "texts" / "second_prompts.json")
    assert Counter(prompt.kind for prompt in second) == dict.fromkeys(KINDS, 1)
    assert {prompt.text for prompt in second}.isdisjoint(prompt.text for prompt in PROMPTS)
    (tmp_path / "other.json").write_text('[{"kind": "chat"}]')
    for wrong in ("other.json", "none.json"):
        with pytest.raises(UsageError, match="has no prompts"):
            real_model.read_prompts(tmp_path / wrong)


def test_the_table_by_kind_has_speeds_and_the_ratio_to_the_same_engines_plain():
    assert kind_table(FOUND.kind_rows()) == [
        ["tok/s", "plain int8", "early exit 7 int8", "llama.cpp plain Q4_1"],
        ["chat", "10.0", "30.0 ×3.00", "5.0"],
        ["code", "5.0", "4.0 ×0.80", "5.0"],
    ]


def test_plain_comes_first_and_each_drafter_is_one_that_draft_takes():
    assert next(iter(real_model.DRAFTERS.items())) == (PLAIN, "off")
    kinds = [table.parse(written).kind for written in real_model.DRAFTERS.values()]
    assert kinds == ["off", "lookup", "early-exit"]


OURS_LOOKUP = Way("look-up", "auto", "int8", "look-up")
LLAMA_LOOKUP = Way("llama.cpp look-up 2", 2, "Q4_1", "look-up", "llama.cpp")


def beside(ours: Sequence[float], theirs: Sequence[float]) -> BenchReport:
    """Look-ups with these seconds; ours in int4 is the slower one."""
    slow = {replace(way, quant="int4"): runs(8, 8, 8) for way in (OURS_PLAIN, OURS_LOOKUP)}
    return replace(FOUND, runs={**FOUND.runs, OURS_LOOKUP: runs(*ours), LLAMA_LOOKUP: runs(*theirs), **slow})


def test_ours_that_leads_in_every_kind_is_one_sentence():
    assert real_model.verdict(beside((0.5, 1, 0.5), (1.5, 1.5, 1.5))) == [real_model.AHEAD]


def test_each_kind_in_which_another_look_up_leads_is_named_with_both_figures():
    """Chat: 10 tokens in 0.9 s of 1 s, theirs in 1 s of 2 s. Code: theirs also in fewer seconds."""
    assert real_model.verdict(beside((0.9, 2, 0.9), (1, 1.6, 1))) == [
        "chat: llama.cpp look-up 2 in Q4_1 is ×2.00 its own plain, ours ×1.11; a plain token takes it 200.0 ms, "
        "ours 100.0.",
        "code: llama.cpp look-up 2 in Q4_1 writes 6.2 tok/s, ours 5.0.",
        "code: llama.cpp look-up 2 in Q4_1 is ×1.25 its own plain, ours ×1.00; a plain token takes it 200.0 ms, "
        "ours 200.0.",
    ]


def test_a_tie_is_no_lead_of_ours():
    assert len(real_model.verdict(beside((0.5, 1, 0.5), (0.5, 1.5, 0.5)))) == 2


def test_without_another_look_up_there_is_nothing_to_say():
    assert real_model.verdict(FOUND) == []


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch):
    def missing() -> str:
        raise UsageError("llama.cpp cannot be measured here (none).", hint="Try: pip install x")

    monkeypatch.setattr(contenders, "require", missing)
    found = real_model.installed(opened(), Path("m.gguf"), lambda _: None)
    assert found == (None, ["llama.cpp cannot be measured here (none). Try: pip install x"])


def test_a_model_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["benchmarks.real_model", "./nowhere.gguf"])
    assert run(real_model.main) == NotDownloaded.exit_code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "nowhere.gguf" in said.err


class Counting:
    """Stands in for a context of llama.cpp: says one more than what a row reads."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.read_ids: list[int] = []
        self.forwards: list[list[int]] = []
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def crop(self, length: int) -> None:
        del self.read_ids[length:]

    def read(self, ids: list[int], *, every: bool = False) -> None:
        self.read_ids += ids
        self.forwards.append(ids if every else ids[-1:])

    def logits(self, row: int = -1) -> np.ndarray:
        return np.eye(32)[(self.forwards[-1][row] + 1) % 32]


def opened(*end: int) -> Any:
    return SimpleNamespace(
        snapshot=SimpleNamespace(eos_ids=end, stored_as="Q4_1"),
        plan=SimpleNamespace(context=64),
        prompter=SimpleNamespace(chat=lambda messages: [1, 2, len(messages[0].content)]),
    )


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> contenders.LlamaCpp:
    monkeypatch.setattr(contenders, "Context", Counting)
    return contenders.LlamaCpp(opened(9), None, None, flash=False, threads=2)


def test_llama_cpp_writes_greedily_until_the_end_of_a_turn(llama: contenders.LlamaCpp):
    assert llama.answer("four", 20).ids == (5, 6, 7, 8, 9)
    assert llama.answer("four", 3).ids == (5, 6, 7), "and forgets between answers"


def test_llama_cpp_reads_nothing_that_no_answer_needs(llama: contenders.LlamaCpp):
    """A forward for the prompt, and one for every token but the last."""
    llama.answer("four", 3)
    assert llama.context.read_ids == [1, 2, 4, 5, 6]  # type: ignore[attr-defined]


def test_llama_cpp_is_a_row_of_its_own_format(llama: contenders.LlamaCpp):
    assert llama.way == Way("llama.cpp plain", 0, "Q4_1", PLAIN, "llama.cpp", 2)


def by_lookup(*steps: int) -> contenders.LlamaCpp:
    """Drafts tokens this much above the last one."""
    return contenders.LlamaCpp(
        opened(9), None, None, flash=False, threads=2, propose=lambda ids: [ids[-1] + step for step in steps], length=4
    )


@pytest.mark.parametrize("steps", [(), (1, 2, 3, 4), (1, 2, 9, 9), (9, 9, 9, 9), (1, 9, 3, 4)])
@pytest.mark.usefixtures("llama")
def test_llama_cpp_writes_by_look_up_what_it_writes_plain(steps: tuple[int, ...]):
    drafting = by_lookup(*steps)
    assert drafting.answer("four", 20).ids == (5, 6, 7, 8, 9)
    assert drafting.answer("four", 3).ids == (5, 6, 7), "and no more than it may"
    assert drafting.context.read_ids == [1, 2, 4, 5, 6]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("llama")
def test_llama_cpp_verifies_a_draft_in_one_forward():
    """What it accepted stays in the cache, and what it rejected does not."""
    drafting = by_lookup(1, 2, 9, 9)
    drafting.answer("four", 20)
    assert drafting.context.forwards == [[4], [5, 6, 7, 14, 14], [8, 9, 10, 17, 17]]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("llama")
def test_llama_cpp_by_look_up_is_compared_with_our_look_up():
    way = by_lookup().way
    assert way == Way("llama.cpp look-up 4", 4, "Q4_1", "look-up", "llama.cpp", 2)
    assert way.kind in real_model.DRAFTERS


def test_llama_cpp_is_measured_plain_and_by_the_look_up_of_its_library(monkeypatch: pytest.MonkeyPatch):
    """With the attention and the threads that won plain's trial."""
    freed: list[object] = []
    library = SimpleNamespace(llama_backend_init=lambda: None, llama_model_free=freed.append)
    speculative = SimpleNamespace(
        LlamaPromptLookupDecoding=lambda num_pred_tokens: lambda ids: [ids[0]] * num_pred_tokens
    )
    found = {"llama_cpp": library, "llama_cpp.llama_speculative": speculative}
    for name, stand_in in (
        ("Context", Counting),
        ("require", lambda: "0"),
        ("silence", lambda _: None),
        ("load", lambda *_: "model"),
        ("import_module", found.__getitem__),
    ):
        monkeypatch.setattr(contenders, name, stand_in)
    llama = contenders.Llama(opened(9), Path("m.gguf"))
    plain, *lookups = llama.contenders
    assert [one.way.name for one in llama.contenders] == [
        "llama.cpp plain",
        "llama.cpp look-up 2",
        "llama.cpp look-up 10",
    ]
    assert {(one.flash, one.way.threads) for one in lookups} == {(plain.flash, plain.way.threads)}
    assert [len(one.propose(np.array([7, 7]))) for one in lookups if one.propose] == [2, 10]
    contexts: list[Any] = [one.context for one in llama.contenders]
    assert not any(one.closed for one in contexts)
    llama.close()
    assert all(one.closed for one in contexts)
    assert freed == ["model"]


def test_transformers_is_measured_plain_and_by_look_up_in_each_format(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(contenders, "GgufCheckpoints", lambda _: None)
    monkeypatch.setattr(contenders, "modes", lambda *_: (PeerMode(PLAIN, PLAIN, 0), PeerMode("found", "look-up")))
    monkeypatch.setattr(contenders, "best", lambda make, counts: make(threads=counts[0]))
    found = contenders.transformers(SimpleNamespace(target=SimpleNamespace(device="cpu")))  # type: ignore[arg-type]
    assert [(one.way.kind, one.way.quant) for one in found] == [
        (PLAIN, "fp32"),
        ("look-up", "fp32"),
        (PLAIN, "bf16"),
        ("look-up", "bf16"),
    ]
