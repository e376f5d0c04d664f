"""Many sequences at once: every text is the one it has alone, whoever else is answered, comes, leaves or fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from localspec.core.errors import Cancelled, EngineError
from localspec.engine.batch import Batch
from localspec.engine.beams import beam_search
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.decode import decode
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.mixed import Mixed
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.limits import PREFILL_CHUNK
from localspec.engine.passes import Batched, Pass
from localspec.engine.pieces import LEAST_READ
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import Drafter, ExitStates
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.models import TINY, tiny_decoder
from tests.support.packed_models import packed_decoder

VOCAB, LAYERS = TINY["vocab_size"], TINY["num_hidden_layers"]
WINDOWED: dict[str, Any] = {"model_type": "mistral", "sliding_window": 7}
KINDS: dict[str, Callable[..., Batched]] = {
    "int8": lambda **said: packed_decoder(kind="int8", **said),
    "int4": lambda **said: packed_decoder(kind="int4", threads=2, **said),
    "int8, window": lambda **said: packed_decoder(kind="int8", **WINDOWED, **said),
    "float64": tiny_decoder,
    "float64, window": lambda **said: tiny_decoder(**WINDOWED, **said),
}


def drafter_of(kind: str, target: Batched, small: Batched) -> Drafter:
    makers: dict[str, Callable[[], Drafter]] = {
        "off": NoDrafter,
        "look-up": LookupDrafter,
        "early exit": lambda: EarlyExitDrafter(target, 2),
        "model": lambda: ModelDrafter(small, VOCAB),
        "mixed": lambda: Mixed(LookupDrafter(), EarlyExitDrafter(target, 1)),
    }
    return makers[kind]()


class Asked(NamedTuple):
    """A request. It comes at step `begins`, and is cancelled before its forward number `stops`, if ever."""

    prompt: list[int]
    tokens: int
    drafter: str = "off"
    sampling: Sampling = Sampling()
    k: int = 3
    begins: int = 0
    stops: int | None = None


def some_requests(seed: int, count: int, drafters: tuple[str, ...], longest: int = 60) -> list[Asked]:
    dice = random.Random(seed)
    return [
        Asked(
            [dice.randrange(VOCAB) for _ in range(dice.randint(1, longest))],
            dice.randint(1, 30),
            dice.choice(drafters),
            dice.choice((Sampling(), Sampling(temperature=1.0, seed=dice.randrange(100)))),
            dice.randint(0, 5),
            dice.randrange(12),
            dice.choice((None, None, dice.randint(1, 20))),
        )
        for _ in range(count)
    ]


def written(asked: Asked, target: Batched, small: Batched) -> Iterator[int]:
    """The answer's tokens, until it ends or is stopped."""
    session = Session(target, drafter_of(asked.drafter, target, small))
    checks = iter(range(10**9))
    stopped = (lambda: next(checks) >= asked.stops) if asked.stops is not None else (lambda: False)
    session.begin(make_sampler(asked.sampling, greedy_draft=False), cancelled=stopped)
    try:
        for _ in session.prefill(asked.prompt):
            pass
        for done in decode(session, Constant(asked.k), max_tokens=asked.tokens):
            yield from done.tokens
    except Cancelled:
        return


def texts_alone(requests: list[Asked], target: Batched, small: Batched) -> list[list[int]]:
    return [list(written(asked, target.beside(), small.beside())) for asked in requests]


def texts_together(requests: list[Asked], target: Batched, small: Batched) -> list[list[int]]:
    batch, texts = Batch(), [list[int]() for _ in requests]
    batch.join(target)
    views = [(target.beside(), small.beside()) for _ in requests]
    for view in chain(*views):
        batch.join(view)
    coming, step = sorted(range(len(requests)), key=lambda index: requests[index].begins), 0
    while coming or len(batch):
        while coming and requests[coming[0]].begins <= step:
            index = coming.pop(0)
            batch.start(lambda index=index: texts[index].extend(written(requests[index], *views[index])))  # type: ignore[misc]
        batch.step()
        step += 1
    batch.close()
    return texts


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drafter", ["off", "look-up", "early exit", "model", "mixed"])
def test_every_text_is_the_one_it_has_alone(kind: str, drafter: str):
    target, small = KINDS[kind](seed=1), KINDS[kind](seed=2, num_hidden_layers=1)
    requests = some_requests(7, 6, (drafter,))
    assert texts_together(requests, target, small) == texts_alone(requests, target, small)


@pytest.mark.parametrize("kind", ["int8", "float64"])
def test_drafters_of_every_kind_write_beside_each_other(kind: str):
    target, small = KINDS[kind](seed=1), KINDS[kind](seed=2, num_hidden_layers=1)
    requests = some_requests(8, 12, ("off", "look-up", "early exit", "model", "mixed"))
    assert texts_together(requests, target, small) == texts_alone(requests, target, small)


@pytest.mark.parametrize("kind", KINDS)
def test_beams_are_rows_of_the_forward_that_others_write_in(kind: str):
    """Two searches and two answers, none of which waits for another to end."""
    target, batch = KINDS[kind](seed=1), Batch()
    prompts = [[3, 1, 4], [1, 5], [9, 2, 6], [5, 3, 5, 8]]

    def work(view: Batched, prompt: list[int], beams: int) -> list[int]:
        session = Session(view, NoDrafter())
        session.begin(make_sampler(Sampling(), greedy_draft=False))
        for _ in session.prefill(prompt):
            pass
        rounds = (
            beam_search(session, view, Sampling(), beams=beams, max_tokens=12)
            if beams > 1
            else decode(session, Constant(0), max_tokens=12)
        )
        return [token for done in rounds for token in done.tokens]

    asked = list(zip(prompts, (3, 1, 4, 1), strict=True))
    alone = [work(target.beside(), prompt, beams) for prompt, beams in asked]
    together, rows = [list[int]() for _ in asked], list[int]()
    for index, (prompt, beams) in enumerate(asked):
        view = target.beside()
        batch.join(view)
        batch.start(lambda i=index, v=view, p=prompt, b=beams: together[i].extend(work(v, p, b)))  # type: ignore[misc]
    while batch.step():
        rows.append(batch.last.rows if batch.last else 0)
    assert together == alone
    assert max(rows) == 3 + 1 + 4 + 1
    assert len(rows) < 12 + 6, "as many forwards as one of them takes, and its prompt"


def test_a_search_that_fails_or_is_ended_harms_no_other():
    target, batch = tiny_decoder(seed=1), Batch()
    views, faults, text = [target.beside() for _ in range(3)], list[str](), list[int]()
    for view in views:
        batch.join(view)

    def search(view: Batched, cancelled: Callable[[], bool]) -> None:
        session = Session(view, NoDrafter())
        session.begin(make_sampler(Sampling(), greedy_draft=False), cancelled=cancelled)
        try:
            for _ in session.prefill([3, 1, 4]):
                pass
            list(beam_search(session, view, Sampling(), beams=3, max_tokens=30))
        except (Cancelled, EngineError) as fault:
            faults.append(fault.code)
        finally:
            faults.append("cleaned up")

    checks = iter(range(100))
    batch.start(lambda: search(views[0], lambda: next(checks) > 8))
    batch.start(lambda: search(views[1], lambda: False))
    batch.start(lambda: text.extend(written(Asked([5, 6], 20), views[2], views[2])))
    for _ in range(15):
        batch.step()
    assert faults == ["cancelled", "cleaned up"]
    assert len(batch) == 2
    batch.close()
    assert faults == ["cancelled", "cleaned up", "cleaned up"]
    whole = list(written(Asked([5, 6], 20), target, target))
    assert text == whole[: len(text)] != []
    assert list(written(Asked([5, 6], 20), views[2], views[2])) == whole


def test_long_prompts_are_read_in_pieces_while_others_write():
    target, small = packed_decoder(context=1500, seed=1), packed_decoder(seed=2)
    requests = [
        Asked([5, 6], 60),
        Asked([index % VOCAB for index in range(1000)], 20, "early exit", begins=2),
        Asked([7 * index % VOCAB for index in range(900)], 20, begins=3, sampling=Sampling(temperature=1.0, seed=4)),
    ]
    assert texts_together(requests, target, small) == texts_alone(requests, target, small)


def test_nobody_waits_for_a_whole_prompt(monkeypatch: pytest.MonkeyPatch):
    """While one writes, a step reads a small part of another's prompt; alone, it is read in whole chunks."""
    target, rows = packed_decoder(context=1500), list[int]()
    together = PackedDecoder.together

    def noted(self: PackedDecoder, passes: Any) -> Any:
        rows.append(sum(len(one) for one in passes))
        return together(self, passes)

    monkeypatch.setattr(PackedDecoder, "together", noted)
    monkeypatch.setattr("localspec.engine.pieces.STEP_SECONDS", 0.0)
    prompt = [index % VOCAB for index in range(1200)]
    texts_together([Asked([1, 2], 1400), Asked(prompt, 2)], target, packed_decoder())
    assert max(rows[1:]) < 60
    rows.clear()
    texts_together([Asked(prompt, 2)], target, packed_decoder())
    assert max(rows) == PREFILL_CHUNK


def test_nobody_waits_for_a_whole_prompt_of_a_draft_model(monkeypatch: pytest.MonkeyPatch):
    """Its pieces lie between the forwards of one that writes; alone, it reads whole chunks."""
    target, small = packed_decoder(context=1500), packed_decoder(context=1500, num_hidden_layers=1)
    forwards, together = list[tuple[bool, int]](), PackedDecoder.together

    def noted(self: PackedDecoder, passes: Any) -> Any:
        forwards.append((self.weights is small.weights, sum(len(one) for one in passes)))
        return together(self, passes)

    monkeypatch.setattr(PackedDecoder, "together", noted)
    monkeypatch.setattr("localspec.engine.pieces.STEP_SECONDS", 0.0)
    reader = Asked([index % VOCAB for index in range(1200)], 2, "model")
    texts = texts_together([Asked([1, 2], 1400), reader], target, small)
    assert max(rows for _, rows in forwards[1:]) < 60
    reads = [index for index, (is_draft, rows) in enumerate(forwards) if is_draft and rows == LEAST_READ]
    meanwhile = [rows for is_draft, rows in forwards[reads[0] : reads[-1]] if not is_draft]
    assert len(meanwhile) >= len(reads) - 1 > 1100 // LEAST_READ
    assert set(meanwhile) == {1}
    assert texts == texts_alone([Asked([1, 2], 1400), reader], target, small)
    forwards.clear()
    texts_together([reader], target, small)
    assert max(rows for is_draft, rows in forwards if is_draft) == PREFILL_CHUNK


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["int8", "int4", "float64"])
@pytest.mark.parametrize("seed", range(2))
def test_requests_that_come_and_go_at_random(kind: str, seed: int):
    target, small = KINDS[kind](seed=1), KINDS[kind](seed=2, num_hidden_layers=1)
    requests = some_requests(seed, 30, ("off", "look-up", "early exit", "model", "mixed"), longest=20)
    assert texts_together(requests, target, small) == texts_alone(requests, target, small)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_thousand_requests_that_come_and_go_at_random(kind: str):
    target, small = KINDS[kind](seed=1), KINDS[kind](seed=2, num_hidden_layers=1)
    requests = [
        asked._replace(begins=index // 2)
        for index, asked in enumerate(some_requests(3, 1000, ("off", "look-up", "early exit", "model", "mixed")))
    ]
    assert texts_together(requests, target, small) == texts_alone(requests, target, small)


@pytest.mark.parametrize("kind", KINDS)
def test_any_rows_of_any_sequences_have_the_logits_they_have_alone(kind: str):
    """Some from exit states, some without logits, at any position: bit for bit on the CPU engine."""
    target, dice = KINDS[kind](seed=1, context=400), random.Random(5)
    for _ in range(6):
        views, passes = [target.beside() for _ in range(5)], []
        for view in views:
            before, rows = dice.randint(1, 150), dice.randint(1, 90)
            view.forward(torch.tensor([dice.randrange(VOCAB) for _ in range(before)]))
            ids = torch.tensor([dice.randrange(VOCAB) for _ in range(rows)])
            done, unread = dice.choice([(0, 0), (rows - 1, 0), (rows // 2, 0), (0, rows - 1), (0, rows)])
            exit_states = ExitStates(2, view.early(ids[:done], 2, before)[0]) if done else None
            passes.append(Pass(view, ids, before, LAYERS, exit_states, unread))
        same = torch.equal if isinstance(target, PackedDecoder) else torch.allclose
        found = target.together(passes)
        for one, (_, logits) in zip(passes, found, strict=True):
            assert same(logits, target.together([one])[0][1])
        states = target.together([Pass(one.decoder, one.ids, one.position, 2, early=True) for one in passes])
        for one, (state, logits) in zip(passes, states, strict=True):
            alone = one.decoder.early(one.ids, 2, one.position)
            assert same(state, alone[0])
            assert same(logits, alone[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [3, 40])
def test_numbers_that_are_none_stay_in_their_own_sequence(kind: str, read: int):
    """In the same forward: one whose keys and values are not numbers, between others that write and read."""
    target, dice = KINDS[kind](seed=1, context=200), random.Random(9)
    views = [target.beside() for _ in range(3)]
    for view in views:
        view.forward(torch.tensor([dice.randrange(VOCAB) for _ in range(20)]))
    rows = [torch.tensor([dice.randrange(VOCAB) for _ in range(count)]) for count in (1, read, 4)]
    passes = [Pass(view, ids, 20, LAYERS) for view, ids in zip(views, rows, strict=True)]
    alone = [target.together([one])[0][1] for one in passes]
    views[1].cache.store.fill_(torch.nan)  # type: ignore[attr-defined]
    found = [logits for _, logits in target.together(passes)]
    assert found[1].isnan().all()
    same = torch.equal if isinstance(target, PackedDecoder) else torch.allclose
    assert same(found[0], alone[0])
    assert same(found[2], alone[2])


class Broken:
    """A decoder's own fault: it fails at one of its forwards, or its logits there are no numbers."""

    def __init__(self, decoder: Batched, at: int, invalid: bool) -> None:
        self.forward, self.left, self.invalid = decoder.forward, at, invalid

    def __call__(self, ids: Tensor, *given: Any, **named: Any) -> Tensor:
        self.left -= 1
        if self.left == 0 and not self.invalid:
            ids = torch.full_like(ids, VOCAB)  # no such id
        logits = self.forward(ids, *given, **named)
        return logits * torch.nan if self.left == 0 else logits


@pytest.mark.parametrize("invalid", [False, True], ids=["no such id", "no numbers"])
@pytest.mark.parametrize("kind", ["int8", "float64"])
def test_one_that_fails_harms_no_other(kind: str, invalid: bool):
    target, small = KINDS[kind](seed=1), KINDS[kind](seed=2)
    requests = [Asked([1, 2, 3], 20), Asked([4, 5], 20), Asked([6], 20, "look-up")]
    expected = texts_alone(requests, target, small)
    batch, texts, faults = Batch(), [list[int]() for _ in requests], list[Exception]()
    batch.join(target)

    def work(index: int, view: Batched) -> None:
        try:
            texts[index].extend(written(requests[index], view, small))
        except (EngineError, IndexError) as fault:
            faults.append(fault)

    for index in range(len(requests)):
        view = target.beside()
        batch.join(view)
        if index == 1:
            view.forward = Broken(view, 5, invalid)  # type: ignore[method-assign]
        batch.start(lambda index=index, view=view: work(index, view))  # type: ignore[misc]
    while batch.step():
        pass
    assert len(faults) == 1
    assert [texts[0], texts[2]] == [expected[0], expected[2]]


def test_tasks_that_wait_are_ended_where_they_wait_and_decoders_compute_alone_again():
    target = packed_decoder()
    batch, ended = Batch(), list[str]()
    view = target.beside()
    batch.join(target)
    batch.join(view)

    def work() -> None:
        try:
            view.forward(torch.tensor([1]))
            view.forward(torch.tensor([2]))
        finally:
            ended.append("cleaned up")

    batch.start(work)
    batch.start(lambda: ended.append("never begun"))
    batch._run_tasks()
    assert ended == ["never begun"]
    batch.close()
    assert ended == ["never begun", "cleaned up"]
    assert len(batch) == 0
    assert view.forward(torch.tensor([1])).shape == (1, VOCAB)


def test_what_others_put_into_the_next_forward_is_known():
    """Rows that wait, and one for each that has not said yet."""
    target = packed_decoder()
    batch, seen = Batch(), list[int]()
    views = [target.beside() for _ in range(3)]
    for view in (target, *views):
        batch.join(view)

    def work(view: Batched, rows: int) -> None:
        seen.append(batch.others)
        view.forward(torch.arange(rows))

    for view, rows in zip(views, (4, 2, 1), strict=True):
        batch.start(lambda view=view, rows=rows: work(view, rows))  # type: ignore[misc]
    while batch.step():
        pass
    assert seen == [2, 4 + 1, 4 + 2]
    assert batch.last is not None
    assert batch.last.rows == 4 + 2 + 1
    assert not batch.last.is_mixed


def test_a_decoder_beside_another_has_its_own_cache_and_the_same_weights():
    for target in (packed_decoder(), tiny_decoder()):
        other = target.beside()
        assert isinstance(other, PackedDecoder | Decoder)
        assert other.weights is target.weights
        target.forward(torch.tensor([1, 2]))
        assert (target.length, other.length) == (2, 0)
