"""What is replayed is what the decoder says: every width, bucket, exit and flag, in float64, with kernels on a tape.

CUDA's own recording is not run here: `tape.py` stands in for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.shapes.layer_offload import offloaded
from localspec.engine import cuda_graphs, shortlist
from localspec.engine.batch import Batch
from localspec.engine.cache import Cache
from localspec.engine.cuda_graphs import Capture, Graphed, Shape, unrecordable
from localspec.engine.decoder import Decoder, Span
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.lengths import Lengths
from localspec.engine.linear import EightBit
from localspec.engine.passes import Pass
from localspec.engine.protocols import Drafter, ExitStates
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.loading.test_families import FAMILIES
from tests.support.fakes import GREEDY, generate, text
from tests.support.models import TINY, tiny_decoder
from tests.support.tape import Taping, frozen

pytestmark = pytest.mark.heavy

VOCAB, CONTEXT = TINY["vocab_size"], 70
FLAGS = {name: said for name, said in FAMILIES.items() if "rope_scaling" not in said}  # rope is a table, made at load
DRAFTERS: dict[str, Callable[[Decoder], Drafter]] = {
    "none": lambda _: NoDrafter(),
    "exit 2": lambda target: EarlyExitDrafter(target, 2),
    "a model": lambda _: ModelDrafter(graphed(tiny_decoder(seed=9, num_hidden_layers=1, context=CONTEXT)), VOCAB),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of 8, 16, 32, 64 and 70 positions; prompts of up to 32 rows."""
    monkeypatch.setattr(cuda_graphs, "SHORTEST", 8)
    monkeypatch.setattr(cuda_graphs, "GRAPH_ROWS", 32)


def graphed(decoder: Decoder, capture: Capture | None = None) -> Graphed:
    cache = Cache(decoder.arch, decoder.context, dtype=decoder.cache.dtype)
    return Graphed(decoder.arch, decoder.weights, cache, Taping() if capture is None else capture)


class Pair:
    """A decoder and one of the same weights that replays, asked for the same."""

    def __init__(self, seed: int = 0, **config: Any) -> None:
        self.dice = random.Random(seed)
        self.eager = tiny_decoder(seed=seed, context=CONTEXT, **config)
        self.tapes = Taping()
        self.graphed = graphed(self.eager, self.tapes)
        self.given: list[tuple[Tensor, Tensor]] = []

    def ids(self, rows: int) -> Tensor:
        return torch.tensor([self.dice.randrange(self.eager.arch.vocab_size) for _ in range(rows)])

    def same(self, ask: Callable[[Decoder], Tensor | tuple[Tensor, Tensor]]) -> None:
        found, expected = ask(self.graphed), ask(self.eager)
        for one, other in zip(both(found), both(expected), strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-9)
            self.given.append((one, other))
        length = self.eager.length
        assert (self.graphed.length, self.graphed.bytes_read) == (length, self.eager.bytes_read)
        stores = (one.cache.store[:, :length] for one in (self.graphed, self.eager))
        assert torch.allclose(*stores, rtol=0, atol=1e-9)

    def forward(self, rows: int, *, last_only: bool = False) -> None:
        ids = self.ids(rows)
        self.same(lambda one: one.forward(ids, last_only=last_only))

    def round(self, exit_layer: int, k: int) -> None:
        """k drafts of one row, then all of them and one more."""
        at, ids = self.eager.length, self.ids(k + 1)
        for place in range(k):
            self.same(lambda one, place=place: one.early(ids[place : place + 1], exit_layer, at + place))
        states = {one: torch.cat([found[0] for found in self.drafts(one, ids, exit_layer, k)]) for one in self.both}
        self.same(lambda one: one.forward(ids, ExitStates(exit_layer, states[one])))

    def drafts(self, one: Decoder, ids: Tensor, exit_layer: int, k: int) -> Iterator[tuple[Tensor, Tensor]]:
        for place in range(k):
            yield one.early(ids[place : place + 1], exit_layer, one.length + place)

    @property
    def both(self) -> tuple[Decoder, Decoder]:
        return self.graphed, self.eager

    def crop(self, length: int) -> None:
        for one in self.both:
            one.crop(length)


def both(found: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", FLAGS)
def test_whatever_is_asked_a_replay_says_what_the_decoder_says(family: str):
    """Rounds, plain rows, prompts and rewinds in any order, up to the last position; nothing given before changes."""
    pair = Pair(**FLAGS[family])
    for _ in range(40):
        room, kind = CONTEXT - pair.eager.length, pair.dice.randrange(4)
        if room == 0 or kind == 0:
            pair.crop(pair.dice.randint(0, pair.eager.length))
        elif kind == 1:
            pair.forward(min(room, pair.dice.randint(1, 17)))
        elif kind == 2:
            pair.forward(min(room, pair.dice.randint(1, 40)), last_only=True)
        elif room > 1:
            pair.round(pair.dice.randint(1, 3), min(room - 1, pair.dice.randint(1, 4)))
    assert all(torch.allclose(found, expected, rtol=0, atol=1e-9) for found, expected in pair.given)
    assert sum(tape.replays for tape in pair.tapes.tapes) > len(pair.tapes.tapes) + 20
    assert pair.graphed.fault is None


def test_every_width_over_every_edge_of_a_bucket(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuda_graphs, "MAX_GRAPHS", 1000)
    pair = Pair(num_hidden_layers=2)
    for rows in range(1, 18):
        for edge in (8, 16, 32, 64, CONTEXT):
            for end in (edge - 1, edge, edge + 1):
                if rows <= end <= CONTEXT:
                    pair.crop(end - rows)
                    if missing := end - rows - pair.eager.length:
                        pair.forward(missing, last_only=True)
                    pair.forward(rows)
    made = {(shape.rows, shape.end) for shape in pair.graphed.graphs if not shape.last}
    assert {rows for rows, _ in made} == set(range(1, 18))
    assert {end for _, end in made} == {8, 16, 32, 64, CONTEXT}


def test_a_width_and_a_bucket_have_one_graph():
    pair = Pair(num_hidden_layers=2)
    for _ in range(20):
        pair.forward(1)
    pair.crop(3)
    for _ in range(20):
        pair.forward(1)
    assert set(pair.graphed.graphs) == {Shape(1, end) for end in (8, 16, 32)}
    assert len(pair.tapes.tapes) == 3


def test_prompts_share_a_few_graphs_and_long_ones_have_none():
    pair = Pair(num_hidden_layers=2)
    for rows in (*range(2, 33), 33, 60):
        pair.crop(0)
        pair.forward(rows, last_only=True)
    sizes = {(shape.rows, shape.last) for shape in pair.graphed.graphs}
    assert sizes - {(1, False)} == {(2 << n, True) for n in range(5)}
    pair.crop(0)
    for rows in (40, 28):  # padded to 32 they would not fit into the context
        pair.forward(rows, last_only=True)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0, seed=3)], ids=["greedy", "seeded"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_text_is_the_decoders_token_for_token(drafter: str, sampling: Sampling):
    """To the end of the context, with rewinds between."""
    eager = tiny_decoder(seed=1, context=CONTEXT)
    target = graphed(eager)
    session, alone = Session(target, DRAFTERS[drafter](target)), Session(eager, NoDrafter())
    for k, prompt in ((1, [1, 2, 3]), (4, [1, 2, 9, 4]), (16, list(range(30)))):
        expected = text(generate(alone, prompt, max_tokens=99, sampling=sampling))
        assert len(expected) + len(prompt) == CONTEXT
        assert text(generate(session, prompt, max_tokens=99, sampling=sampling, policy=k)) == expected
    assert target.fault is None
    assert (drafter == "none") == all(shape.rows == 1 or shape.last for shape in target.graphs)


def short(words: int) -> Lengths:  # noqa: ARG001 - of any length
    return Lengths(8, 8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("drafter", ["early exit", "a model"])
def test_a_short_head_is_replayed_too(drafter: str, monkeypatch: pytest.MonkeyPatch):
    """Each drafter has a head of its own: what was recorded with another's is not replayed."""
    monkeypatch.setattr(shortlist, "MOST_MISSING", 10**6)
    eager = tiny_decoder(seed=1, context=CONTEXT)
    target = graphed(eager)
    own = target if drafter == "early exit" else graphed(tiny_decoder(seed=1, context=CONTEXT))
    expected, accepted = text(generate(Session(eager, NoDrafter()), [1, 2, 3], max_tokens=99)), []
    for _ in range(2):
        made = EarlyExitDrafter(target, 3, shorten=short) if own is target else ModelDrafter(own, VOCAB, shorten=short)
        assert made.shortlist is not None
        assert not any(shape.short for shape in own.graphs)
        rounds = generate(Session(target, made), [1, 2, 3], max_tokens=99, policy=3)
        assert text(rounds) == expected
        assert any(shape.short for shape in own.graphs)
        accepted.append(sum(done.accepted for done in rounds))
        del made
        for one in (target, own):
            one.crop(0)
    assert accepted[0] == accepted[1] > 0
    assert [target.fault, own.fault] == [None, None]


def test_no_more_graphs_are_kept_than_there_may_be(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuda_graphs, "MAX_GRAPHS", 3)
    pair = Pair(num_hidden_layers=2)
    for rows in (1, 2, 3, 4, 5, 1):
        pair.forward(rows)
    assert [shape.rows for shape in pair.graphed.graphs] == [4, 5, 1]


def test_what_invalid_numbers_left_in_the_cache_is_never_read():
    """By a wide forward, by drafts and by a prompt, in a bucket that is looked at again."""
    pair = Pair(num_hidden_layers=4)
    pair.forward(3)
    for rows in (5, 20):
        ids = pair.ids(rows)
        with torch.inference_mode():
            states = torch.full((rows - 1, pair.eager.arch.hidden_size), torch.nan, dtype=torch.float64)
            assert pair.graphed.forward(ids, ExitStates(1, states)).isnan().any()
        assert pair.graphed.cache.store.isnan().any()
        pair.graphed.crop(3)
        pair.graphed.bytes_read = pair.eager.bytes_read
        pair.forward(1)
        pair.crop(3)


# --- beside another


@pytest.mark.parametrize("leads", [False, True], ids=["behind another", "before another"])
def test_what_invalid_numbers_left_in_a_forward_with_another_is_never_read(leads: bool):
    """Such a forward is no replay, whichever of the two computes it."""
    pair = Pair(num_hidden_layers=4)
    pair.forward(3)
    other, ids = pair.graphed.beside(), pair.ids(20)
    with torch.inference_mode():
        states = torch.full((19, pair.eager.arch.hidden_size), torch.nan, dtype=torch.float64)
        passes = [Pass(pair.graphed, ids, 3, 4, ExitStates(1, states)), Pass(other, ids, 0, 4)]
        found = passes[not leads].decoder.together(passes if leads else passes[::-1])
    assert [logits.isnan().any() for _, logits in found] == [leads, not leads]
    assert pair.graphed.cache.store.isnan().any()
    pair.graphed.bytes_read = pair.eager.bytes_read
    pair.forward(1)


@pytest.mark.parametrize("drafter", ["none", "exit 2", "a model"])
def test_two_answers_at_once_are_each_the_text_alone(drafter: str):
    """The one that replays and one beside it, which does not; what ends first leaves the other to replay on."""
    eager = tiny_decoder(seed=1, context=CONTEXT)
    tapes = Taping()
    target = graphed(eager, tapes)
    views, batch, texts = [target, target.beside()], Batch(), dict[int, list[int]]()
    assert (type(views[1]), views[1].weights is target.weights) == (Decoder, True)
    asked = ([1, 2, 3], 50), ([2, 7, 1, 8, 2], 20)

    def write(index: int) -> None:
        session, (prompt, most) = Session(views[index], DRAFTERS[drafter](views[index])), asked[index]
        texts[index] = text(generate(session, prompt, max_tokens=most, policy=3))

    before = sum(tape.replays for tape in tapes.tapes)
    for view in views:
        batch.join(view)
    for index in range(2):
        batch.start(partial(write, index))
    while batch.step():
        pass
    batch.close()
    alone = [text(generate(Session(eager, NoDrafter()), prompt, max_tokens=most)) for prompt, most in asked]
    assert [texts[index] for index in range(2)] == alone
    assert sum(tape.replays for tape in tapes.tapes) > before
    assert target.fault is None


# --- what is not replayed


class FromPython(Graphed):
    """Takes its place from a number, which a recording keeps as it was."""

    def _step(self, shape: Shape) -> None:
        span = Span.at(self.cache, self.length, shape.rows)
        states = self.through(self.ids[: shape.rows], self.arch.num_layers, [span], [None])
        self.logits_out[: shape.rows].copy_(self.head(states))


@pytest.mark.parametrize("kind", ["nothing is replayed", "a number is read"])
def test_a_replay_that_says_something_else_is_not_believed(kind: str):
    eager = tiny_decoder(context=CONTEXT)
    cache = Cache(eager.arch, CONTEXT, dtype=torch.float64)
    parts = eager.arch, eager.weights, cache
    broken = Graphed(*parts, frozen) if kind == "nothing is replayed" else FromPython(*parts, Taping())
    assert [broken.unreported_fault(), broken.unreported_fault()] == ["a replay gave other logits than the model", None]
    ids = torch.tensor([3, 1, 4])
    assert torch.equal(broken.forward(ids), eager.forward(ids))
    assert (broken.length, broken.bytes_read, broken.graphs) == (3, eager.bytes_read, {})


@pytest.mark.parametrize("failing", [1, 2, 4])
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (RuntimeError("operation not permitted.\nCompile with"), "operation not permitted"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), "memory ran out"),
    ],
)
def test_what_cannot_be_recorded_is_computed_as_ever(failing: int, fault: Exception, told: str):
    eager = tiny_decoder(seed=1, context=CONTEXT)
    target = graphed(eager, Taping(failing, fault))
    session = Session(target, EarlyExitDrafter(target, 2))
    expected = text(generate(Session(eager, NoDrafter()), [1, 2, 3], max_tokens=20))
    assert text(generate(session, [1, 2, 3], max_tokens=20, policy=3)) == expected
    assert (target.unreported_fault(), target.unreported_fault(), target.graphs) == (told, None, {})


def refuses(_: object) -> Any:
    raise AssertionError("this must not be recorded")


def test_layers_that_come_and_go_are_not_recorded():
    streamed = offloaded(tiny_decoder(context=CONTEXT), 2)
    target = graphed(streamed, refuses)  # type: ignore[arg-type]
    assert target.unreported_fault() == "some layers are offloaded"
    ids = torch.tensor([3, 1, 4])
    assert torch.equal(target.forward(ids), tiny_decoder(context=CONTEXT).forward(ids))
    target.close()


def test_int8_is_recorded_without_a_threshold_only():
    weights = tiny_decoder().weights

    def with_int8(threshold: float) -> Any:
        qkv = EightBit(torch.zeros(2, 2, dtype=torch.int8), torch.ones(2), None, threshold)
        return replace(weights, layers=(replace(weights.layers[0], qkv=qkv), *weights.layers[1:]))

    assert "beyond 6 in 16 bits (" in str(unrecordable(with_int8(6.0)))
    assert [unrecordable(with_int8(0.0)), unrecordable(weights)] == [None, None]


def test_a_decoder_that_is_closed_keeps_no_graphs():
    target = graphed(tiny_decoder(context=CONTEXT))
    assert target.graphs
    target.close()
    target.close()
    assert not target.graphs
