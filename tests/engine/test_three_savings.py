"""Early exit shares weights, cache and computation with its target: every row and every layer is counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from localspec.core.requests import MAX_DRAFT
from localspec.engine import cache as cache_module
from localspec.engine.decode import speculative_round
from localspec.engine.decoder import Decoder, Span
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import Choice
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.fakes import GREEDY, generate, prefilled, text
from tests.support.models import TINY, tiny_decoder

LAYERS = TINY["num_hidden_layers"]
PROMPT = [3, 14, 15, 9, 2, 6, 5]


class Run(NamedTuple):
    """One call of Decoder.run: layers first..last - 1 for `rows` rows from `position` on."""

    first: int
    last: int
    rows: int
    position: int


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Run]]:
    counted: list[Run] = []
    run = Decoder.run

    def counting(self: Decoder, hidden: Tensor, first: int, last: int, spans: Sequence[Span]) -> Tensor:
        (span,) = spans
        assert isinstance(span.positions, slice)
        counted.append(Run(first, last, hidden.shape[0], span.positions.start))
        return run(self, hidden, first, last, spans)

    monkeypatch.setattr(Decoder, "run", counting)
    return counted


def early_exit_session(exit_layer: int, sampling: Sampling = GREEDY) -> Session:
    target = tiny_decoder(seed=1)
    return prefilled(target, EarlyExitDrafter(target, exit_layer), PROMPT, sampling)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("exit_layer", range(1, LAYERS))
def test_a_round_runs_early_layers_on_k_plus_one_single_rows_and_late_layers_once(
    exit_layer: int, k: int, sampling: Sampling, runs: list[Run]
) -> None:
    """k drafts, one row each; the last draft alone through the early layers; then all k + 1 through the rest."""
    session = early_exit_session(exit_layer, sampling)
    for _ in range(3):
        runs.clear()
        at = session.target.length
        speculative_round(session, Constant(k), MAX_DRAFT)
        singles = [Run(0, exit_layer, 1, at + place) for place in range(k + 1)]
        assert runs == [*singles, Run(exit_layer, LAYERS, k + 1, at)]


@pytest.mark.parametrize("exit_layer", range(1, LAYERS))
def test_a_round_without_drafts_is_one_row_through_all_layers(exit_layer: int, runs: list[Run]) -> None:
    session = early_exit_session(exit_layer)
    runs.clear()
    at = session.target.length
    speculative_round(session, Constant(0), MAX_DRAFT)
    assert sum(run.rows * (run.last - run.first) for run in runs) == LAYERS
    assert all(run.position == at for run in runs)


def test_a_draft_that_ends_early_costs_only_the_rows_it_has(runs: list[Run]) -> None:
    session = early_exit_session(2)
    assert isinstance(session.drafter, EarlyExitDrafter)
    proposed = session.drafter.draft(session, Choice(4)).tokens.tolist()
    session.stop_ids = frozenset(proposed[1:2])
    runs.clear()
    done = speculative_round(session, Constant(4), MAX_DRAFT)
    ended = proposed.index(proposed[1]) + 1
    assert done.draft == tuple(proposed[:ended])
    assert runs == [*[Run(0, 2, 1, 6 + place) for place in range(ended + 1)], Run(2, LAYERS, ended + 1, 6)]


def test_early_exit_reads_no_prompt_of_its_own(runs: list[Run]) -> None:
    session = early_exit_session(2)
    assert runs == [Run(0, LAYERS, len(PROMPT) - 1, 0)]
    runs.clear()
    session.drafter.prefill(session)
    assert runs == []


def test_early_exit_allocates_no_cache_and_writes_into_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_decoder(seed=1)
    held = target.cache, target.cache.store.data_ptr(), target.cache.num_bytes
    monkeypatch.setattr(cache_module.Cache, "__init__", lambda *_, **__: pytest.fail("a second cache"))
    drafter = EarlyExitDrafter(target, 2)
    session = Session(target, drafter)
    generate(session, PROMPT, max_tokens=12, policy=3)
    before = target.cache.store.clone()
    drafter.draft(session, Choice(3))
    assert (target.cache, target.cache.store.data_ptr(), target.cache.num_bytes) == held
    written = (target.cache.store != before).flatten(2).any(-1)
    expected = torch.zeros_like(written)
    expected[:2, target.length : target.length + 3] = True
    assert torch.equal(written | expected, expected), "written elsewhere than in the draft's own places"
    assert written.any()


def test_drafting_moves_no_counter() -> None:
    session = early_exit_session(2)
    before = session.target.length
    session.drafter.draft(session, Choice(5))
    assert session.target.length == before


def test_early_exit_holds_no_weights_of_its_own() -> None:
    """Beside a shortlist's copies, of a target with a long vocabulary."""
    target = tiny_decoder(seed=1)
    assert vars(EarlyExitDrafter(target, 2)) == {"target": target, "exit_layer": 2, "shortlist": None}


def test_what_early_exit_saves_is_seen_in_weight_bytes_read() -> None:
    """A round of k drafts reads early layers k + 1 times, late layers once and the head k + 1 times."""
    session = early_exit_session(1)
    target = session.target
    assert isinstance(target, Decoder)
    layer, head, before = target.weights.layers[0].num_bytes, target.weights.head.num_bytes, target.bytes_read
    speculative_round(session, Constant(5), MAX_DRAFT)
    assert target.bytes_read - before == 6 * layer + (LAYERS - 1) * layer + 6 * head


def test_early_exit_says_what_the_target_says() -> None:
    expected = text(generate(Session(tiny_decoder(seed=1), NoDrafter()), PROMPT, max_tokens=24))
    target = tiny_decoder(seed=1)
    assert text(generate(Session(target, EarlyExitDrafter(target, 2)), PROMPT, max_tokens=24, policy=4)) == expected
