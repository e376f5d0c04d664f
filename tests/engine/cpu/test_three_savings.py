"""Early exit's three savings on the CPU engine: what each pass is asked to compute, and that it computes no more."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

from localspec.core.requests import MAX_DRAFT
from localspec.engine.cpu import layout as at
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.pool import Pool, read
from localspec.engine.decode import speculative_round
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import Choice, ExitStates
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.fakes import GREEDY, prefilled
from tests.support.models import TINY
from tests.support.packed_models import packed_decoder, random_ids

pytestmark = pytest.mark.heavy

LAYERS = TINY["num_hidden_layers"]
PROMPT = [3, 14, 15, 9, 2, 6, 5]


class Job(NamedTuple):
    """One compiled pass: `rows` from `position` on through the layers ..last - 1, the first `done` of them from layer
    `leave` on; logits of all but the first `unread`."""

    rows: int
    done: int
    leave: int
    last: int
    position: int
    unread: int


FIELDS = (at.ROWS, at.DONE, at.EXIT, at.LAST)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """What the compiled code is told, at its door."""
    told: list[Job] = []
    run = Pool.run

    def telling(self: Pool) -> None:
        fields = [int(self._table[field // 8]) for field in FIELDS]
        position = read(int(self._table[at.SPANS // 8]) + at.POSITION)
        told.append(Job(*fields, position, fields[0] - int(self._table[at.NUM_READ // 8])))
        run(self)

    monkeypatch.setattr(Pool, "run", telling)
    return told


def early_exit_session(exit_layer: int, sampling: Sampling = GREEDY) -> Session:
    target = packed_decoder(seed=1)
    return prefilled(target, EarlyExitDrafter(target, exit_layer), PROMPT, sampling)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("exit_layer", range(1, LAYERS))
def test_a_round_runs_early_layers_on_k_plus_one_single_rows_and_late_layers_once(
    exit_layer: int, k: int, sampling: Sampling, jobs: list[Job]
) -> None:
    """k drafts of one row each; then one pass for k + 1, of which k have been through the early layers."""
    session = early_exit_session(exit_layer, sampling)
    for _ in range(3):
        jobs.clear()
        start = session.target.length
        speculative_round(session, Constant(k), MAX_DRAFT)
        singles = [Job(1, 0, 0, exit_layer, start + place, 0) for place in range(k)]
        assert jobs == [*singles, Job(k + 1, k, exit_layer, LAYERS, start, 0)]


def test_a_round_without_drafts_is_one_row_through_all_layers(jobs: list[Job]) -> None:
    session = early_exit_session(2)
    jobs.clear()
    speculative_round(session, Constant(0), MAX_DRAFT)
    assert jobs == [Job(1, 0, 0, LAYERS, len(PROMPT) - 1, 0)]


def test_early_exit_reads_no_prompt_of_its_own(jobs: list[Job]) -> None:
    session = early_exit_session(2)
    (prompt,) = jobs
    assert prompt[:5] == (len(PROMPT) - 1, 0, 0, LAYERS, 0)
    session.drafter.prefill(session)
    assert jobs == [prompt]


@pytest.mark.parametrize("exit_layer", range(1, LAYERS))
@pytest.mark.parametrize(("handed", "rows"), [(1, 2), (3, 4), (3, 3), (2, 5)])
def test_early_layers_compute_nothing_for_rows_that_are_handed_in(exit_layer: int, handed: int, rows: int) -> None:
    """What they had written there is wiped out, and is not written again; the rows behind, and later layers, are."""
    decoder, ids = packed_decoder(seed=1), random_ids(20)
    decoder.forward(ids[:10])
    states, _ = decoder.early(ids[10 : 10 + handed], exit_layer, 10)
    values = decoder.cache.store[:, 1, :, 10 : 10 + rows]  # of [layers, 2, kv_heads, context, head]
    values.fill_(-7.0)
    decoder.forward(ids[10 : 10 + rows], ExitStates(exit_layer, states))
    written = (values != -7.0).any(-1).any(1)  # [layers, rows]
    expected = torch.ones_like(written)
    expected[:exit_layer, :handed] = False
    assert torch.equal(written, expected)


def test_later_layers_go_on_from_the_states_that_are_handed_in() -> None:
    decoder, ids = packed_decoder(seed=1), random_ids(20)
    right = decoder.forward(ids)
    decoder.crop(19)
    states, _ = decoder.early(ids[19:], 2, 19)
    assert torch.equal(decoder.forward(ids[19:], ExitStates(2, states)), right[19:])
    decoder.crop(19)
    assert not torch.equal(decoder.forward(ids[19:], ExitStates(2, states.flip(1))), right[19:])


def test_early_exit_writes_into_the_targets_own_cache_and_only_in_the_drafts_places() -> None:
    session = early_exit_session(2)
    target = session.target
    assert isinstance(target, PackedDecoder)
    store, before, length = target.cache.store, target.cache.store.clone(), target.length
    session.drafter.draft(session, Choice(3))
    assert target.cache.store is store
    assert target.length == length
    written = (store != before)[:, 1].any(-1).any(1)  # values; keys lie in blocks of sixteen positions
    expected = torch.zeros_like(written)
    expected[:2, length : length + 3] = True
    assert torch.equal(written, expected)
    assert torch.equal(store[2:], before[2:])


def test_what_early_exit_saves_is_seen_in_weight_bytes_read() -> None:
    """A round of k drafts reads early layers k + 1 times, late layers once and the head k + 1 times."""
    session = early_exit_session(1)
    target = session.target
    assert isinstance(target, PackedDecoder)
    layer, head, before = target.layer_bytes[0], target.weights.head.num_bytes, target.bytes_read
    speculative_round(session, Constant(5), MAX_DRAFT)
    assert target.bytes_read - before == 6 * layer + (LAYERS - 1) * layer + 6 * head


def test_recomputing_early_layers_would_be_seen(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """A verify that takes no states: the same text, and none of the savings."""
    forward = PackedDecoder.forward
    monkeypatch.setattr(PackedDecoder, "forward", lambda self, ids, *_, **said: forward(self, ids, **said))
    session = early_exit_session(2)
    jobs.clear()
    speculative_round(session, Constant(3), MAX_DRAFT)
    assert jobs[-1] == Job(4, 0, 0, LAYERS, len(PROMPT) - 1, 0)
