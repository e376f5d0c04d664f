"""`localspec verify` on real weights: SmolLM2 in the CPU engine's formats, look-up and early exit mixed."""

from __future__ import annotations

import pytest

from localspec.bench.proof import prove
from localspec.core.requests import LoadRequest
from tests.real.things import SMOLLM2, SMOLLM2_GGUF

pytestmark = [pytest.mark.real, pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder", "verified")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("quant", ["int8", "int4"])
def test_drafted_text_is_plain_text_token_for_token(quant: str):
    """No near tie is allowed: rows are equal bit for bit. Two kinds of prompt, greedily and with a seed."""
    asked = LoadRequest.of(str(SMOLLM2.file(SMOLLM2_GGUF)), draft="lookup+early-exit:20", quant=quant, threads=1)
    (row,) = prove(asked, num_prompts=2, max_tokens=16).rows
    assert (row.answers, row.same, row.differences, row.fault) == (4, 4, (), "")
    assert row.drafted == row.accepted + row.rejected + row.ignored > row.accepted > 0
