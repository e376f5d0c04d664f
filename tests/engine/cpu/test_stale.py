"""What lies in the cache past its length changes nothing: an earlier draft's rows, the largest numbers, or none."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.protocols import ExitStates
from tests.support.packed_models import KINDS, packed_decoder, pieces, random_ids

pytestmark = pytest.mark.heavy

SHAPES: dict[str, dict[str, Any]] = {
    "all positions": {"num_hidden_layers": 3},
    "window": {"num_hidden_layers": 3, "model_type": "mistral", "sliding_window": 19, "head_dim": 24},
}
LARGEST = torch.finfo(torch.float16).max
NAN = float("nan")


def wander(decoder: PackedDecoder, dice: random.Random) -> list[int]:
    """Forwards, drafts that are not kept, and crops, as they come; the ids that are left in the cache."""
    held: list[int] = []
    for _ in range(25):
        ids = [dice.randrange(40) for _ in range(dice.choice((1, 1, 2, 5, 16, 60)))]
        ids = ids[: decoder.context - len(held)]
        if not ids or dice.random() < 0.3:
            held = held[: dice.randint(0, len(held))]
            decoder.crop(len(held))
        elif dice.random() < 0.3:
            states, _ = decoder.early(torch.tensor(ids), 2, len(held))
            if dice.random() < 0.5:
                decoder.forward(torch.tensor(ids), ExitStates(2, states))
                held += ids
        else:
            decoder.forward(torch.tensor(ids))
            held += ids
        assert decoder.length == len(held)
    return held


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_after_crops_and_drafts_rows_are_a_fresh_decoders(kind: PackedFormat, shape: str) -> None:
    said: dict[str, Any] = {"kind": kind, "context": 300, **SHAPES[shape]}
    for seed in range(6):
        decoder, dice = packed_decoder(**said), random.Random(seed)
        held = wander(decoder, dice)
        decoder.crop(len(held := held[:290]))
        fresh, ids = packed_decoder(**said), torch.tensor([*held, 1, 2, 3])
        expected = fresh.forward(ids)[-3:]
        assert torch.equal(decoder.forward(ids[-3:]), expected)
        assert expected.isfinite().all()


@pytest.mark.parametrize("value", [LARGEST, -LARGEST, NAN])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_lies_past_the_length_changes_nothing(shape: str, value: float) -> None:
    """All that is not yet written is as large as can be, or NaN, as a draft that failed would leave it."""
    for count, width in ((1, 1), (40, 1), (40, 7), (130, 128), (300, 60)):
        clean, full = (packed_decoder(context=301, **SHAPES[shape]) for _ in range(2))
        full.cache.store.fill_(value)
        for part in pieces(random_ids(count), width):
            expected = clean.forward(part)
            assert expected.isfinite().all()
            assert torch.equal(full.forward(part), expected)


@pytest.mark.parametrize("value", [LARGEST, NAN])
@pytest.mark.parametrize("window", [None, 100])
def test_it_changes_nothing_where_segments_meet(window: int | None, value: float) -> None:
    said: dict[str, Any] = {"num_hidden_layers": 1, "max_position_embeddings": 2048, "context": 1100}
    said |= {"model_type": "mistral", "sliding_window": window} if window else {}
    clean, full = packed_decoder(**said), packed_decoder(**said)
    full.cache.store.fill_(value)
    ids = random_ids(1040)
    for decoder in (clean, full):
        decoder.forward(ids[:1015])
    for start, width in ((1015, 1), (1016, 1), (1017, 12), (1029, 3)):
        part = ids[start : start + width]
        assert torch.equal(full.forward(part), clean.forward(part))


def test_what_is_within_the_length_does_change_something() -> None:
    """The comparison can fail."""
    clean, full = packed_decoder(), packed_decoder()
    for decoder in (clean, full):
        decoder.forward(random_ids(20))
    full.cache.store.fill_(1.0)
    assert not torch.equal(full.forward(random_ids(1)), clean.forward(random_ids(1)))
