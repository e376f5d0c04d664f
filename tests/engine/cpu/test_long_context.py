"""32,768 tokens of context: the last rows are the torch decoder's, see all that came before, and are equal bit for bit.

Scores of random weights are sharp enough that a row attends to some hundred positions of all, so each of the 32
segments that attention is computed in counts: hiding any of them from the torch decoder is five times the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.layout import SEGMENT
from localspec.engine.decoder import Decoder, Span
from tests.engine.cpu.test_forward import BOUND, error
from tests.engine.cpu.test_rows import check, in_pieces
from tests.support.packed_models import packed_decoder, pieces, random_ids, torch_decoder

pytestmark = pytest.mark.slow

CONTEXT = 32 * SEGMENT
LAST = 64  # rows that are compared
SAID = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "vocab_size": 4096,
    "max_position_embeddings": CONTEXT,
}


@dataclass(frozen=True, slots=True)
class Read:
    """A decoder that has read all `ids`, and what it said of the last."""

    decoder: PackedDecoder
    ids: Tensor
    logits: Tensor


@pytest.fixture(scope="module")
def whole() -> Read:
    """The full context, read as a prompt is, in int8."""
    decoder, ids = packed_decoder(context=CONTEXT, **SAID), random_ids(CONTEXT, vocab=SAID["vocab_size"])
    return Read(decoder, ids, decoder.forward(ids)[-LAST:].clone())


class Blind(Decoder):
    """Does not see one segment."""

    hidden: int | None = None

    def mask(self, span: Span, window: int | None) -> Tensor | None:
        found = super().mask(span, window)
        if found is not None and self.hidden is not None:
            found[:, self.hidden * SEGMENT : (self.hidden + 1) * SEGMENT] = -math.inf
        return found


def test_the_last_rows_of_a_full_context_are_the_torch_decoders_and_see_every_segment(whole: Read) -> None:
    theirs = torch_decoder(context=CONTEXT, **SAID)
    theirs.__class__ = Blind
    for part in pieces(whole.ids, 512):
        expected = theirs.forward(part)[-LAST:]
    assert error(whole.logits, expected) <= BOUND
    for segment in range(CONTEXT // SEGMENT - 1):  # a row of the last segment must see itself
        theirs.hidden = segment
        theirs.crop(CONTEXT - LAST)
        assert error(whole.logits, theirs.forward(whole.ids[-LAST:])) > 5 * BOUND, segment


@pytest.mark.parametrize("threads", [1, 3])
def test_k_and_one_rows_are_single_rows_up_to_the_last_place_of_a_full_context(whole: Read, threads: int) -> None:
    """From 34 before the end, and across the last border of segments; a prompt's rows are the same."""
    whole.decoder.set_threads(threads)
    try:
        alone = in_pieces(whole.decoder, whole.ids, CONTEXT - 34, 1)
        assert torch.equal(alone, whole.logits[-34:])
        check(whole.decoder, whole.ids, CONTEXT - 34, range(2, 18))
        border = CONTEXT - SEGMENT
        check(whole.decoder, whole.ids[: border + 17], border - 17, range(2, 18))
    finally:
        whole.decoder.set_threads(1)
        whole.decoder.cache.length = CONTEXT  # all of it is still there
