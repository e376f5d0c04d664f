"""The compiled code reads and writes wherever it is told to; the decoder tells it nothing that is not there."""

from __future__ import annotations

import pytest
import torch

from localspec.core.errors import EngineError
from localspec.engine.cpu.pool import MOST_THREADS
from localspec.engine.protocols import ExitStates
from tests.engine.cpu.test_pool import in_time, workers
from tests.support.packed_models import packed_decoder, pieces, random_ids, threaded

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("token", [-1, 40, 63, 10**9, -(2**62)])
@pytest.mark.parametrize("rows", [1, 3, 200])
def test_a_token_that_the_model_does_not_have_is_refused(token: int, rows: int) -> None:
    """Also one that padding has made room for."""
    decoder, ids = packed_decoder(), random_ids(rows)
    ids[-1] = token
    with pytest.raises(EngineError, match=str(token)) as refused:
        decoder.forward(ids)
    assert "\n" not in str(refused.value)
    with pytest.raises(EngineError):
        decoder.early(ids, 2, 0)


@pytest.mark.parametrize(("held", "rows"), [(100, 1), (99, 2), (0, 101), (0, 1000)])
def test_rows_past_the_context_are_refused(held: int, rows: int) -> None:
    """Also where padding has made room for them."""
    decoder = packed_decoder(context=100)
    for part in pieces(random_ids(held), 50):
        decoder.forward(part)
    with pytest.raises(EngineError, match="do not fit into a context"):
        decoder.forward(random_ids(rows))
    with pytest.raises(EngineError, match="do not fit into a context"):
        decoder.early(random_ids(rows), 2, held)
    assert decoder.length <= 100


@pytest.mark.parametrize("leave", [-1, 5, 100])
def test_a_layer_that_the_model_does_not_have_is_refused(leave: int) -> None:
    decoder, ids = packed_decoder(), random_ids(3)
    with pytest.raises(EngineError, match="A model of 4 layers has none"):
        decoder.early(ids, leave, 0)
    states, _ = decoder.early(ids, 2, 0)
    with pytest.raises(EngineError, match="A model of 4 layers has none"):
        decoder.forward(ids, ExitStates(leave, states))


@pytest.mark.parametrize("rows", [3, 300])
def test_states_that_are_not_those_of_the_rows_are_refused(rows: int) -> None:
    decoder, ids = packed_decoder(context=400), random_ids(rows)
    states, _ = decoder.early(ids, 2, 0)
    for wrong in (states[:, :-1], states[:, :5], states.double(), states.repeat(2, 1), states[:, :, None]):
        with pytest.raises(EngineError, match="are not those of"):
            decoder.forward(ids, ExitStates(2, wrong))


def test_the_last_position_of_a_context_can_be_used() -> None:
    decoder, ids = packed_decoder(context=100), random_ids(100)
    expected = packed_decoder(context=300).forward(ids)
    assert torch.equal(torch.cat((decoder.forward(ids[:99]), decoder.forward(ids[99:]))), expected)


def test_an_early_exit_may_have_more_rows_than_a_pass() -> None:
    decoder, ids = packed_decoder(context=400), random_ids(301)
    expected = decoder.forward(ids)
    some = [decoder.early(ids[start : start + 60], 2, start) for start in range(0, 300, 60)]
    states, logits = decoder.early(ids[:300], 2, 0)
    assert torch.equal(states, torch.cat([state for state, _ in some]))
    assert torch.equal(logits, torch.cat([read for _, read in some]))
    for rows in (300, 301):
        decoder.crop(0)
        assert torch.equal(decoder.forward(ids[:rows], ExitStates(2, states)), expected[:rows])


def test_a_machine_of_many_cores_wakes_only_as_many_threads_as_it_can() -> None:
    ids = random_ids(3)
    expected, before = packed_decoder(num_hidden_layers=1).forward(ids), workers()
    with threaded(MOST_THREADS + 6, num_hidden_layers=1) as decoder:

        def jobs() -> None:
            for _ in range(2):
                decoder.crop(0)
                assert torch.equal(decoder.forward(ids), expected)

        assert workers() == before + MOST_THREADS - 1
        in_time(jobs)
