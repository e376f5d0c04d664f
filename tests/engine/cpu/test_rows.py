"""Rows are equal bit for bit: at any width, by any number of threads, in both formats, on every kind of processor.

It is what makes speculative text plain's text: a draft of k is verified by k + 1 rows that are each a single row's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from localspec.core.requests import MAX_DRAFT
from localspec.engine.cpu import linears
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.cpu.isa import Isa
from localspec.engine.cpu.model import PackedModel
from localspec.engine.protocols import ExitStates
from tests.support.packed_models import ISAS, KINDS, packed_decoder, pieces, random_ids, threaded

pytestmark = pytest.mark.heavy

LAYERS = 3
SHAPES: dict[str, dict[str, Any]] = {
    "grouped queries": {"num_hidden_layers": LAYERS, "tie_word_embeddings": False},
    "all at once": {
        "model_type": "qwen3",
        "num_hidden_layers": LAYERS,
        "head_dim": 24,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "hidden_size": 72,
        "intermediate_size": 200,
        "sliding_window": 37,
        "use_sliding_window": True,
        "max_window_layers": 1,
        "attention_bias": True,
    },
}
every_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
every_kind = pytest.mark.parametrize("kind", KINDS)
every_shape = pytest.mark.parametrize("shape", SHAPES)


def in_pieces(decoder: PackedDecoder, ids: Tensor, start: int, width: int) -> Tensor:
    """Logits of ids[start:], which the decoder has read before, read again."""
    decoder.crop(start)
    return torch.cat([decoder.forward(part) for part in pieces(ids[start:], width)])


def check(decoder: PackedDecoder, ids: Tensor, start: int, widths: Iterable[int]) -> None:
    """From `start` on, all widths say what one row at a time says."""
    alone = in_pieces(decoder, ids, start, 1)
    for width in widths:
        assert torch.equal(in_pieces(decoder, ids, start, width), alone), (start, width)


@pytest.mark.sampled(2)
@every_shape
@every_kind
@every_isa
def test_a_row_is_the_same_at_every_width(isa: Isa, kind: PackedFormat, shape: str) -> None:
    """Read again from 110, as many rows as the longest draft's verify has cross the border of the first chunk; from 0,
    passes of up to 150 rows."""
    decoder, ids = packed_decoder(kind=kind, on=isa, **SHAPES[shape]), random_ids(150)
    decoder.forward(ids)
    check(decoder, ids, 110, range(2, MAX_DRAFT + 2))
    check(decoder, ids, 0, (5, MAX_DRAFT + 1, 127, 128, 150))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "threads"), [("grouped queries", 2), ("all at once", 3)])
@every_kind
def test_a_row_is_the_same_by_any_number_of_threads(kind: PackedFormat, shape: str, threads: int) -> None:
    ids = random_ids(150)
    expected = in_pieces(packed_decoder(kind=kind, **SHAPES[shape]), ids, 0, 1)
    with threaded(threads, kind=kind, **SHAPES[shape]) as decoder:
        for width in (1, 5, 150):
            assert torch.equal(in_pieces(decoder, ids, 0, width), expected), width


def test_long_runs_of_blocks_are_claimed_first_and_single_ones_last() -> None:
    run_length = linears.run_length.py_func  # type: ignore[attr-defined]  # numba's
    for threads in (1, 2, 3, 64):
        for blocks in (1, 5, 64, 4008):
            left, runs = blocks, list[int]()
            while left > 0:
                runs.append(run_length(left, threads, 34_816))
                left -= runs[-1]
            assert runs[0] == max(1, blocks // (2 * threads))
            assert runs == sorted(runs, reverse=True)
            assert runs[-1] == 1
    assert run_length(-3, 2, 34_816) == 1
    assert run_length(1, 2, 1000) == 8  # small ones are claimed together


@pytest.mark.sampled(5)
@pytest.mark.parametrize("threads", [2, 3, 8])
@every_kind
def test_every_block_is_computed_where_threads_claim_runs_of_many_lengths(
    kind: PackedFormat, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever nobody wrote would be no number: all room to work in holds NaN before each pass."""
    said: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 1024, "vocab_size": 2048, "num_hidden_layers": 2}
    ids, rooms = random_ids(70), list[Tensor]()
    expected = in_pieces(packed_decoder(kind=kind, **said), ids, 0, 70)
    make_buffer, make = PackedModel._buffer, torch.empty

    def noted(self: PackedModel, num_bytes: int) -> int:
        address = make_buffer(self, num_bytes)
        rooms.append(self.kept[-1])
        return address

    monkeypatch.setattr(PackedModel, "_buffer", noted)
    monkeypatch.setattr(torch, "empty", lambda *sizes: make(*sizes).fill_(torch.nan))
    with threaded(threads, kind=kind, **said) as decoder:
        for width in (1, 3, 70):
            decoder.crop(0)
            for part, wanted in zip(pieces(ids, width), pieces(expected, width), strict=True):
                for room in rooms:
                    room.fill_(255)
                assert torch.equal(decoder.forward(part), wanted), width


@pytest.mark.parametrize("window", [None, 100, 1000])
@every_isa
def test_a_row_is_the_same_across_chunks_segments_and_the_windows_far_end(isa: Isa, window: int | None) -> None:
    """The far end of a window of 1000 crosses from one segment to the next at 2023, one of 100 crosses a chunk's
    border at 2147, and 2048 is the near end's."""
    said: dict[str, Any] = {"num_hidden_layers": 1, "max_position_embeddings": 4096}
    said |= {"model_type": "mistral", "sliding_window": window} if window else {}
    decoder, ids = packed_decoder(on=isa, context=2200, **said), random_ids(2160)
    decoder.forward(ids)
    for border in (2147, 2048, 2023, 1024):
        ids = ids[: border + 8]
        check(decoder, ids, border - 7, (2, 3, 7, 15))
    assert torch.equal(in_pieces(decoder, ids, 1000, 32), in_pieces(decoder, ids, 1000, 3))


@every_kind
@every_isa
def test_states_of_an_early_exit_end_in_the_full_passes_rows(isa: Isa, kind: PackedFormat) -> None:
    """k drafted rows one by one, then a verify of k + 1 that starts from their states; and of k, all handed in."""
    decoder, ids = packed_decoder(kind=kind, on=isa, **SHAPES["all at once"]), random_ids(150)
    expected = decoder.forward(ids)
    for start in (126, 30):
        for leave in range(1, LAYERS):
            for k in (1, 2, 5, 8):
                decoder.crop(start)
                early = [decoder.early(ids[start + i : start + i + 1], leave, start + i) for i in range(k)]
                assert decoder.length == start
                states = ExitStates(leave, torch.cat([state for state, _ in early]))
                for end in (start + k, start + k + 1):
                    decoder.crop(start)
                    assert torch.equal(decoder.forward(ids[start:end], states), expected[start:end])
                together = decoder.early(ids[start : start + k], leave, start)
                assert torch.equal(together[0], states.states)
                assert torch.equal(together[1], torch.cat([logits for _, logits in early]))


def test_an_exit_after_the_last_layer_is_the_whole_model() -> None:
    decoder, ids = packed_decoder(**SHAPES["all at once"]), random_ids(20)
    assert torch.equal(decoder.early(ids, LAYERS, 0)[1], decoder.forward(ids))


def test_rows_differ_where_they_should() -> None:
    """The comparisons above can fail: another token, position or prefix changes the bits."""
    decoder, ids = packed_decoder(**SHAPES["grouped queries"]), random_ids(20)
    rows = decoder.forward(ids)
    for place, change in ((19, ids[19:]), (3, (ids[3:4] + 1) % 40)):
        decoder.crop(0)
        other = ids.clone()
        other[place : place + len(change)] = change
        if place == 19:
            other = torch.cat((ids[:18], ids[19:]))
        assert not torch.equal(decoder.forward(other)[-1], rows[-1])
