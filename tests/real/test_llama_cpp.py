"""Our float32 beside what llama.cpp chose on the same file, which tests/real/record.py recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.llama_cpp.quantiser import quantise
from benchmarks.models import TECHNICAL, tokenizer_of
from localspec.engine.arch import read_arch
from localspec.loading.sources import open_source
from localspec.loading.torch import assemble
from localspec.models.checkpoint import open_snapshot
from tests.real import record
from tests.real.things import SMOLLM2, SMOLLM2_GGUF

pytestmark = pytest.mark.real

CHUNK = 250  # rows at a time: their logits are 49 MB


def share(same: Sequence[bool]) -> float:
    return sum(same) / len(same)


@pytest.mark.slow
def test_float32_chooses_what_llama_cpp_chose_where_the_choice_is_clear():
    """At 98 of 100 positions where our first two logits differ by more than 0.2: llama.cpp rounds rows to 8 bits."""
    recorded = record.read()
    snapshot = open_snapshot(SMOLLM2.file(SMOLLM2_GGUF))
    ids = torch.tensor(recorded.ids)
    decoder = assemble(read_arch(snapshot.config), open_source(snapshot), dtype=torch.float32, context=record.POSITIONS)
    top = [decoder.forward(chunk).topk(2) for chunk in ids.split(CHUNK)]
    choices, logits = (torch.cat(parts) for parts in ([one.indices for one in top], [one.values for one in top]))
    same = (choices[:, 0] == torch.tensor(recorded.choices)).tolist()
    clear = (logits[:, 0] - logits[:, 1] > record.CLEAR).tolist()
    where_clear = [equal for equal, is_clear in zip(same, clear, strict=True) if is_clear]
    told = f"equal at {share(where_clear):.2%} of {len(where_clear):,} clear positions, {share(same):.2%} of all"
    print(told)
    assert len(same) == record.POSITIONS
    assert len(where_clear) > record.POSITIONS / 2
    assert share(where_clear) >= 0.98, told


def test_our_tokenizer_reads_the_text_as_llama_cpp_does():
    tokenizer = tokenizer_of(open_snapshot(SMOLLM2.file(SMOLLM2_GGUF)))
    ids = tokenizer.encode(TECHNICAL.read_text(encoding="utf-8"), add_special_tokens=False).ids
    assert ids[: record.POSITIONS] == record.read().ids


def test_the_recording_is_of_the_text_and_the_file_that_are_here():
    """Who changes either records anew."""
    recorded = record.read()
    assert recorded.text_sha256 == hashlib.sha256(TECHNICAL.read_bytes()).hexdigest()
    assert recorded.model == f"{SMOLLM2_GGUF} of {SMOLLM2.package} {SMOLLM2.version}"
    assert len(recorded.ids) == len(recorded.choices) == len(recorded.margins) == record.POSITIONS
    assert record.FILE.stat().st_size < 50_000


@pytest.mark.slow
def test_llama_cpp_still_chooses_what_was_recorded():
    """Another processor rounds otherwise: where its first two logits are near each other it may choose the other."""
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed: run make peers")
    recorded, found = record.read(), record.record(SMOLLM2.file(SMOLLM2_GGUF))
    assert (found.ids, found.text_sha256) == (recorded.ids, recorded.text_sha256)
    pairs = zip(found.choices, recorded.choices, recorded.clear(), strict=True)
    assert [(mine, theirs) for mine, theirs, clear in pairs if clear and mine != theirs] == []
    if found.made_with == recorded.made_with:
        assert found == recorded


MADE = {  # what llama.cpp makes of SmolLM2, and types that its file then has; its rows of 576 are in none of K's
    "Q2_K": {"Q3_K", "Q4_0", "Q8_0"},
    "Q4_K_M": {"Q4_K", "Q5_0", "Q6_K"},
    "IQ4_NL": {"IQ4_NL", "Q5_K"},
    "IQ4_XS": {"IQ4_XS", "IQ4_NL"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MADE)
def test_files_that_llama_cpp_makes_say_what_it_reads_in_them(kind: str, tmp_path: Path):
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed: run make peers")
    file, ids = tmp_path / "made.gguf", record.read().ids[:300]
    quantise(SMOLLM2.file(SMOLLM2_GGUF), file, kind)
    with record.opened(file) as (api, model):
        choices, _ = record.teacher_forced(api, model, ids)
    snapshot = open_snapshot(file)
    assert {info.dtype for info in snapshot.tensors.values()} >= MADE[kind]
    decoder = assemble(read_arch(snapshot.config), open_source(snapshot), dtype=torch.float32, context=len(ids))
    top = decoder.forward(torch.tensor(ids)).topk(2)
    clear = top.values[:, 0] - top.values[:, 1] > record.CLEAR
    same = (top.indices[:, 0] == torch.tensor(choices))[clear].tolist()
    assert len(same) > len(ids) / 2
    assert share(same) >= 0.98
