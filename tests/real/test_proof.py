"""`localspec verify` on real weights: SmolLM2 in the CPU engine's formats and in torch's, look-up alone and mixed."""

from __future__ import annotations

import pytest

from localspec.bench.proof import prove
from localspec.bench.proof_report import ProofRow
from localspec.core.requests import LoadRequest
from tests.real.things import SMOLLM2, SMOLLM2_GGUF

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder", "verified")]


MIXES = ("lookup", "lookup+early-exit:8", "lookup+itself")


def proven(draft: str, quant: str, **more: int) -> ProofRow:
    """Greedily and with a seed; `itself`: the target is its own draft model."""
    file = str(SMOLLM2.file(SMOLLM2_GGUF))
    asked = LoadRequest.of(file, draft=draft.replace("itself", file), quant=quant, threads=1)
    (row,) = prove(asked, **{"num_prompts": 2, "max_tokens": 16, **more}).rows
    assert row.fault == ""
    assert row.drafted == row.accepted + row.rejected + row.ignored > row.accepted > 0
    return row


@pytest.mark.sampled(2)
@pytest.mark.parametrize("quant", ["int8", "int4"])
def test_drafted_text_is_plain_text_token_for_token(quant: str):
    """No near tie is allowed: rows are equal bit for bit. Two kinds of prompt."""
    row = proven("lookup+early-exit:20", quant)
    assert (row.answers, row.same, row.differences) == (4, 4, ())


@pytest.mark.slow
@pytest.mark.parametrize("draft", MIXES)
@pytest.mark.parametrize("quant", ["int8", "int4"])
def test_drafted_text_is_plain_text_with_every_mix(quant: str, draft: str):
    row = proven(draft, quant, num_prompts=4, max_tokens=32)
    assert (row.answers, row.same, row.differences) == (8, 8, ())


@pytest.mark.slow
@pytest.mark.parametrize("draft", MIXES)
def test_drafted_text_is_plain_text_in_float64(draft: str):
    """With the torch decoder, where that is exact."""
    row = proven(draft, "fp64")
    assert (row.answers, row.same, row.differences) == (4, 4, ())


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["lookup", "lookup+early-exit:20"])
@pytest.mark.parametrize("quant", ["fp32", "bf16"])
def test_where_wide_forwards_round_otherwise_every_difference_is_a_near_tie(quant: str, draft: str):
    assert proven(draft, quant, num_prompts=4, max_tokens=32).divergences == []
