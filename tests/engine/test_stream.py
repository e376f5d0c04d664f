"""Layers that come and go: once in every round, never for a drafted token, and the text is the resident decoder's."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from benchmarks.shapes.layer_offload import offloaded
from localspec.core.requests import MAX_DRAFT
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.decode import speculative_round
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.limits import PREFILL_CHUNK
from localspec.engine.offload import CopyIn, LayerStream, OnThread
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import Choice, Drafter
from localspec.engine.samplers import make_sampler
from localspec.engine.session import Session
from tests.engine import test_exact_in_float64 as exact
from tests.engine.cpu import test_lossless as lossless
from tests.support.fakes import GREEDY, generate, plain, text
from tests.support.models import TINY, tiny_decoder
from tests.support.packed_models import packed_decoder

LAYERS, VOCAB = TINY["num_hidden_layers"], TINY["vocab_size"]
PROMPT = [3, 14, 15, 9, 2, 6, 5]
KINDS = ("float64", "int8", "int4")


@dataclass
class Counting:
    """A transfer that writes down what it brings."""

    copy_in: CopyIn
    begun: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.real = OnThread(self.copy_in)

    def begin(self, layer: int, place: int) -> None:
        self.begun.append(layer)
        self.real.begin(layer, place)

    def wait(self, place: int) -> None:
        self.real.wait(place)

    def close(self) -> None:
        self.real.close()


def resident_decoder(kind: str, **said: Any) -> Any:
    return tiny_decoder(**said) if kind == "float64" else packed_decoder(kind=kind, **said)  # type: ignore[arg-type]


def streamed(kind: str, resident: int, **said: Any) -> Any:
    """A decoder whose layers from `resident` on are counted when they come."""
    return offloaded(resident_decoder(kind, **said), resident, Counting)


def begun(target: Decoder | PackedDecoder) -> list[int]:
    assert target.weights.stream is not None
    assert isinstance(target.weights.stream.transfer, Counting)
    return target.weights.stream.transfer.begun


def session_of(target: Any, drafter: Drafter) -> Session:
    session = Session(target, drafter)
    session.begin(make_sampler(GREEDY))
    for _ in session.prefill(PROMPT):
        pass
    return session


# --- bytes


@pytest.mark.parametrize("k", [0, 1, 5, 8])
@pytest.mark.parametrize("exit_layer", range(1, LAYERS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_brings_every_layer_that_is_not_resident_once_and_a_drafted_token_none(
    kind: str, exit_layer: int, k: int
):
    """Exactly (L - E) / L of the layers' bytes a round where all are alike, whatever is drafted, and plain decoding as
    much a token. In int4 the first, which is never brought, has more."""
    target = streamed(kind, exit_layer)
    session = session_of(target, EarlyExitDrafter(target, exit_layer) if k else NoDrafter())
    each, moved = target.layer_bytes, begun(target)
    for _ in range(4):
        before = len(moved)
        speculative_round(session, Constant(k), MAX_DRAFT)
        brought = moved[before:]
        assert sorted(brought) == list(range(exit_layer, LAYERS))
        assert sum(each[layer] for layer in brought) == (LAYERS - exit_layer) * each[-1]
        assert (each[1:], each[0] > each[-1]) == ([each[-1]] * (LAYERS - 1), kind == "int4")


@pytest.mark.parametrize("kind", KINDS)
def test_drafting_alone_brings_nothing(kind: str):
    target = streamed(kind, 2)
    session = session_of(target, EarlyExitDrafter(target, 2))
    before = len(begun(target))
    for _ in range(3):
        session.drafter.draft(session, Choice(8))
    assert len(begun(target)) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_brings_the_layers_once_for_every_chunk(kind: str):
    target = streamed(kind, 1, context=PREFILL_CHUNK + 200)
    prompt = [place * 7 % VOCAB for place in range(PREFILL_CHUNK + 100)]
    generate(Session(target, NoDrafter()), prompt, max_tokens=1)
    rounds = 3  # two chunks and the round itself
    assert len(begun(target)) == rounds * (LAYERS - 1) + 2  # the two that wait for the next one


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_are_the_resident_layers_and_two_slots(kind: str):
    whole, target = resident_decoder(kind), streamed(kind, 1)
    layer = whole.layer_bytes[-1]
    assert whole.weights.num_bytes - target.weights.num_bytes == (LAYERS - 1 - 2) * layer
    assert target.layer_bytes == whole.layer_bytes


def test_the_next_layer_is_on_its_way_while_one_is_computed_with():
    """And behind the last layer the first ones again, so that they are there when the next round comes to them."""
    order: list[str] = []

    class Told:
        def begin(self, layer: int, slot: int) -> None:
            order.append(f"begin {layer} in {slot}")

        def wait(self, slot: int) -> None:
            order.append(f"wait {slot}")

        def close(self) -> None: ...

    stream = LayerStream(Told(), ["a", "b"], 1, 4)
    for _ in range(2):
        for slot in stream.iter_layers(1, 4):
            order.append(f"use {slot}")
    start = ["begin 1 in 0", "begin 2 in 1"]
    first = ["wait 0", "use 0", "begin 3 in 0", "wait 1", "use 1", "begin 1 in 1", "wait 0", "use 0", "begin 2 in 0"]
    second = ["wait 1", "use 1", "begin 3 in 1", "wait 0", "use 0", "begin 1 in 0", "wait 1", "use 1", "begin 2 in 1"]
    assert order == [*start, *first, *second]


# --- texts


@pytest.mark.sampled(4)
@pytest.mark.heavy
@pytest.mark.parametrize("resident", range(1, LAYERS))
@pytest.mark.parametrize("drafter", exact.DRAFTERS)
def test_in_float64_every_drafter_says_what_the_resident_decoder_says(
    drafter: str, resident: int, monkeypatch: pytest.MonkeyPatch
):
    """Also an early exit behind the resident layers, for which layers come for every drafted token."""
    asked = exact.prompts(4)
    expected = exact.plain_texts(asked, 24)

    def made(**said: Any) -> Any:
        return tiny_decoder(**said) if "num_hidden_layers" in said else offloaded(tiny_decoder(**said), resident)

    monkeypatch.setattr(exact, "tiny_decoder", made)
    exact.check_cases(drafter, zip((0, 1, 4, 8), asked, expected, strict=True))


@pytest.mark.heavy
@pytest.mark.parametrize("resident", [1, 2])
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_8_sessions_with_cancels_and_rewinds_say_what_the_resident_engine_says(kind: str, resident: int):
    """Packed rows are equal bit for bit, so every drafter, cancel and rewind is compared with a fresh plain session."""
    said = {"kind": kind, "seed": 3, "context": 90}
    target = offloaded(packed_decoder(**said), resident)  # type: ignore[arg-type]
    for case in range(8):
        lossless.play(case, target, said)  # type: ignore[arg-type]
    target.close()


@pytest.mark.heavy
@pytest.mark.parametrize("resident", [1, 3])
def test_8_sessions_with_cancels_and_rewinds_in_float64(resident: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lossless, "packed_decoder", tiny_decoder)
    said = {"seed": 3, "context": 90}
    target = offloaded(tiny_decoder(**said), resident)
    for case in range(8):
        lossless.play(case, target, said)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_logits_are_the_same_to_the_bit_at_every_width(kind: str):
    whole, target = resident_decoder(kind, context=600), streamed(kind, 1, context=600)
    ids = torch.arange(300) * 7919 % VOCAB
    for part in torch.split(ids, [1, 5, 17, 130, 147]):
        assert torch.equal(whole.forward(part), target.forward(part))
        assert torch.equal(whole.forward(part, last_only=True), target.forward(part, last_only=True))
        whole.crop(whole.length - len(part))
        target.crop(whole.length)


def test_a_transfer_that_brings_another_layer_is_seen():
    """The tests above can fail."""

    class Mistaken(Counting):
        def begin(self, layer: int, slot: int) -> None:
            super().begin(max(layer - 1, 1), slot)

    target = offloaded(tiny_decoder(), 1, Mistaken)
    expected = text(plain(tiny_decoder(), PROMPT, max_tokens=8))
    assert text(generate(Session(target, NoDrafter()), PROMPT, max_tokens=8)) != expected


# --- faults


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_layer_that_did_not_come_the_next_round_is_right_again(kind: str):
    failing = {"at": -1}

    class Broken(Counting):
        def wait(self, slot: int) -> None:
            super().wait(slot)
            failing["at"] -= 1
            if failing["at"] == 0:
                raise OSError("the disk is gone")

    expected = text(plain(resident_decoder(kind), PROMPT, max_tokens=12))
    target = offloaded(resident_decoder(kind), 1, Broken)
    for at in range(1, 12):
        failing["at"] = at
        with pytest.raises(OSError, match="gone"):
            generate(Session(target, NoDrafter()), PROMPT, max_tokens=12)
        target.crop(0)
    failing["at"] = -1
    assert text(generate(Session(target, NoDrafter()), PROMPT, max_tokens=12)) == expected


def test_closing_ends_the_thread_and_twice_does_no_harm():
    before = set(threading.enumerate())
    target = offloaded(tiny_decoder(), 1)
    target.forward(torch.tensor([1]))
    (thread,) = set(threading.enumerate()) - before
    target.close()
    target.close()
    assert not thread.is_alive()


def test_a_drafter_with_weights_of_its_own_costs_the_target_nothing():
    target = streamed("float64", 1)
    session = session_of(target, ModelDrafter(tiny_decoder(seed=9, num_hidden_layers=1), VOCAB))
    before = len(begun(target))
    speculative_round(session, Constant(6), MAX_DRAFT)
    assert len(begun(target)) - before == LAYERS - 1


def test_random_orders_of_passes_find_every_layer_in_its_slot():
    """Whatever passes are asked for, and given up half-way, a slot holds what was asked for."""
    dice = random.Random(5)
    held: dict[int, int] = {}
    carry: Callable[[CopyIn], OnThread] = OnThread
    stream = LayerStream(carry(lambda layer, slot: held.__setitem__(slot, layer)), ["a", "b"], 3, 9)
    for _ in range(300):
        first = dice.randrange(3, 9)
        last = dice.randint(first, 9)
        for layer, slot in enumerate(stream.iter_layers(first, last), first):
            assert held[slot] == layer
            if dice.random() < 0.1:
                break
    stream.close()
