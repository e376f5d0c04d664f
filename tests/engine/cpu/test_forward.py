"""The CPU engine's forward is the torch decoder's on the same weights, up to the rounding of activations.

Where the torch decoder rounds alike, what is left is that a float32 may fall on the other side of a half, which turns
a code by one and is seen in all that follows. Each fault seeded here is ten times as large as the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.cpu.isa import Isa
from localspec.engine.decoder import Decoder, Span
from tests.support.packed_models import ISAS, KINDS, packed_decoder, pieces, random_ids, torch_decoder

pytestmark = pytest.mark.heavy

BOUND = 0.03  # root mean square of the error, as a share of the logits'
UNROUNDED = 0.07  # the same, where only the engine rounds
Said = dict[str, Any]

ROPE: dict[str, Said] = {
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
    "llama3": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 128,
        }
    },
    "yarn": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        }
    },
    "dynamic": {  # by the context, which is longer
        "max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0},
    },
    "longrope": {
        "max_position_embeddings": 512,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "original_max_position_embeddings": 64,
            "short_factor": [1.0] * 8,
            "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0],
        },
    },
}
SMALL: Said = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "rms_norm_eps": 1e-5}
SHAPES: dict[str, Said] = {
    "grouped queries": {},
    "a head each": {"num_key_value_heads": 4},
    "one key head": {"num_key_value_heads": 1},
    "heads of 24": {"head_dim": 24},
    "heads of 64": {"head_dim": 64},
    "heads of 80": {"head_dim": 80},
    "heads of 128": {"head_dim": 128},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "biases of queries, keys and values": {"model_type": "qwen2", "num_key_value_heads": 1},
    "norms": {"model_type": "qwen3", "head_dim": 16},
    "norms, heads of 24": {"model_type": "qwen3", "head_dim": 24, "num_attention_heads": 3, "num_key_value_heads": 3},
    "window": {"model_type": "mistral", "sliding_window": 21},
    "window in the last layer": {
        "model_type": "qwen2",
        "sliding_window": 21,
        "use_sliding_window": True,
        "max_window_layers": 1,
    },
    "odd sizes": {
        "hidden_size": 200,
        "num_attention_heads": 5,
        "num_key_value_heads": 5,
        "head_dim": 24,
        "intermediate_size": 136,
        "vocab_size": 77,
        "tie_word_embeddings": False,
    },
    "less than a block": {
        "hidden_size": 24,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "intermediate_size": 8,
        "vocab_size": 5,
    },
    "a head of its own": {"tie_word_embeddings": False},
    **{f"positions by {kind}": said for kind, said in ROPE.items()},
}


def error(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


def read(decoder: Any, ids: Tensor) -> Tensor:  # Any: either decoder
    """Logits of all rows, read in uneven pieces."""
    decoder.crop(0)
    return torch.cat([decoder.forward(part) for part in pieces(ids, 100)])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_the_torch_decoders(shape: str, kind: PackedFormat) -> None:
    said = {**SMALL, **SHAPES[shape]}
    ids = random_ids(150, vocab=said.get("vocab_size", 40))
    got = read(packed_decoder(context=203, kind=kind, **said), ids)
    assert error(got, read(torch_decoder(context=203, kind=kind, **said), ids)) <= BOUND
    exact = torch_decoder(context=203, kind=kind, rounded=False, **said)
    assert error(got, read(exact, ids)) <= UNROUNDED


@pytest.mark.parametrize("isa", ISAS[1:], ids=lambda isa: isa.name)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_processor_is_the_torch_decoders(kind: PackedFormat, isa: Isa) -> None:
    said = {**SMALL, "model_type": "qwen3", "head_dim": 80, "sliding_window": 21, "use_sliding_window": True}
    ids = random_ids(140)
    ours, theirs = packed_decoder(context=150, kind=kind, on=isa, **said), torch_decoder(context=150, kind=kind, **said)
    assert error(read(ours, ids), read(theirs, ids)) <= BOUND


@pytest.mark.parametrize("window", [None, 130, 1000])
def test_depth_crosses_chunks_and_segments(window: int | None) -> None:
    said = {**SMALL, "max_position_embeddings": 4096}
    said |= {"model_type": "mistral", "sliding_window": window} if window else {}
    ids = random_ids(2100)
    ours, theirs = (make(context=2101, **said) for make in (packed_decoder, torch_decoder))
    expected = read(theirs, ids)
    assert error(read(ours, ids), expected) <= BOUND
    for border in (2048, 1024, 128):
        ours.crop(border - 2)
        singles = torch.cat([ours.forward(ids[at : at + 1]) for at in range(border - 2, border + 2)])
        assert error(singles, expected[border - 2 : border + 2]) <= BOUND


@pytest.mark.parametrize("rows", [1, 3])
def test_only_the_last_row_may_be_asked_for(rows: int) -> None:
    ours = packed_decoder(**SMALL)
    ids = random_ids(129 + rows)
    whole = read(ours, ids)
    ours.crop(0)
    assert torch.equal(ours.forward(ids, last_only=True), whole[-1:])
    assert ours.length == 129 + rows


# --- faults


def eps_by_ten(decoder: Decoder) -> None:
    decoder.arch = replace(decoder.arch, norm_eps=10 * decoder.arch.norm_eps)


def turned_the_other_way(decoder: Decoder) -> None:
    decoder.sin = -decoder.sin


def window_by(change: int) -> Callable[[Decoder], None]:
    def fault(decoder: Decoder) -> None:
        wider = tuple(window and window + change for window in decoder.arch.windows)
        decoder.arch = replace(decoder.arch, windows=wider)

    return fault


def changed(decoder: Decoder, part: str, change: Callable[[Any], Any]) -> None:
    layers = [replace(layer, **{part: change(getattr(layer, part))}) for layer in decoder.weights.layers]
    decoder.weights = replace(decoder.weights, layers=tuple(layers))


def without(norm: str) -> Callable[[Decoder], None]:
    return lambda decoder: changed(decoder, norm, torch.ones_like)


def seen_by(shift: int) -> Callable[[Decoder], None]:
    """A row sees one position more, or one less (but for the first, which must see something)."""

    def fault(decoder: Decoder) -> None:
        right = decoder.mask

        def mask(span: Span, window: int | None) -> Tensor | None:
            found = right(span, window)
            if found is None:
                return None
            moved = found.roll(shift, dims=1)
            moved[:, 0] = 0
            return moved

        decoder.mask = mask  # type: ignore[method-assign]

    return fault


def one_position_on(decoder: Decoder) -> None:
    """Only of queries: turning both changes no score."""
    right = decoder.rotary_tables

    def rotary_tables(spans: Sequence[Span]) -> tuple[Tensor, Tensor]:
        (span,) = spans
        assert isinstance(span.positions, slice)
        heads, start = decoder.arch.num_heads, span.positions.start
        pairs = zip(right(spans), right([Span.at(span.cache, start + 1, span.end - start)]), strict=True)
        cos, sin = (torch.cat((there[:, :heads], here[:, heads:]), dim=1) for here, there in pairs)
        return cos, sin

    decoder.rotary_tables = rotary_tables  # type: ignore[method-assign]


def unscaled(decoder: Decoder) -> None:
    """Rotary frequencies without their scaling."""
    rope = (("rope_theta", 10_000.0), ("rope_type", "default"))
    decoder.__init__(replace(decoder.arch, rope=rope), decoder.weights, decoder.cache)  # type: ignore[misc]


def without_bias(part: str) -> Callable[[Decoder], None]:
    return lambda decoder: changed(decoder, part, lambda found: replace(found, dense=replace(found.dense, bias=None)))


def groups_mixed_up(decoder: Decoder) -> None:
    """Query heads dealt out to key heads in turn, not group by group."""
    size, heads = decoder.arch.head_dim, decoder.arch.num_heads
    order = torch.arange(heads).view(-1, decoder.arch.num_kv_heads).t().flatten()
    for layer in decoder.weights.layers:
        queries = layer.qkv.dense.weight[: heads * size]  # type: ignore[attr-defined]
        queries.copy_(queries.view(heads, size, -1)[order].reshape_as(queries))


WINDOWED: Said = {"model_type": "mistral", "sliding_window": 21}
NORMED: Said = {"model_type": "qwen3", "head_dim": 16}
BIASED: Said = {"attention_bias": True, "mlp_bias": True}
FAULTS: dict[str, tuple[Said, Callable[[Decoder], None]]] = {
    "epsilon ten times": ({"rms_norm_eps": 2e-3}, eps_by_ten),
    "turned the other way": ({}, turned_the_other_way),
    "queries a position on": ({}, one_position_on),
    "window 8 wider": (WINDOWED, window_by(8)),
    "window 8 narrower": (WINDOWED, window_by(-8)),
    "window 1 wider": (WINDOWED, window_by(1)),
    "window forgotten": (WINDOWED, window_by(10_000)),
    "no norm of queries": (NORMED, without("q_norm")),
    "no norm of keys": (NORMED, without("k_norm")),
    "sees one ahead": ({}, seen_by(1)),
    "sees one less": ({}, seen_by(-1)),
    "no bias of queries, keys and values": (BIASED, without_bias("qkv")),
    "no bias of the output": (BIASED, without_bias("output")),
    "no bias of gate and up": (BIASED, without_bias("gate_up")),
    "no bias of down": (BIASED, without_bias("down")),
    "query groups mixed up": ({}, groups_mixed_up),
    **{f"{kind} forgotten": (said, unscaled) for kind, said in ROPE.items()},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_bound_sees_a_fault(fault: str) -> None:
    """In the torch decoder, since the difference is the same from either side; without it both agree."""
    said, seeded = FAULTS[fault]
    said = {**SMALL, **said}
    ids = random_ids(100)
    got = read(packed_decoder(context=128, **said), ids)
    theirs = torch_decoder(context=128, **said)
    assert error(got, read(theirs, ids)) <= BOUND
    seeded(theirs)
    assert error(got, read(theirs, ids)) > 5 * BOUND
