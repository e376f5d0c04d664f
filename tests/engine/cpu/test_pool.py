"""Threads that run a pass together: woken when they sleep, ended when told, never waiting for each other for ever."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from localspec.core.errors import EngineError
from localspec.engine.cpu import layout as at
from localspec.engine.cpu import pool
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.pool import RUN, read
from localspec.engine.cpu.sequences import SequenceRows
from localspec.engine.protocols import ExitStates
from tests.support.packed_models import packed_decoder, pieces, random_ids, threaded

pytestmark = pytest.mark.heavy

IDS = random_ids(40)
PATIENCE_SECONDS = 120  # a deadlock would last for ever
SLEEP_SECONDS = 0.05  # workers park after about a millisecond


@pytest.fixture(scope="module")
def expected() -> Tensor:
    return packed_decoder().forward(IDS)


def again(decoder: PackedDecoder, width: int = 40) -> Tensor:
    decoder.crop(0)
    return torch.cat([decoder.forward(part) for part in pieces(IDS, width)])


def in_time(*jobs: Callable[[], None]) -> None:
    """Each on a thread of its own; all must end, and none may fail."""
    failed: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as fault:  # handed to the test's own thread
            failed.append(fault)

    threads = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    end = time.monotonic() + PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    assert not any(thread.is_alive() for thread in threads), "still waiting"
    if failed:
        raise failed[0]


def parked(decoder: PackedDecoder) -> list[bool]:
    pool = decoder.model.pool
    assert pool is not None
    return [read(pool.sync + at.STATE + 64 * thread) == at.PARKED for thread in range(1, pool.threads)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_many_jobs_in_a_row(threads: int, expected: Tensor) -> None:
    with threaded(threads) as decoder:

        def jobs() -> None:
            for _ in range(15):
                assert torch.equal(again(decoder, 4), expected)

        in_time(jobs)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("threads", [3, 2])
def test_a_pass_that_runs_no_layer_behind_its_exit_is_over_when_the_next_one_begins(threads: int) -> None:
    """As layers from disk have it: a worker late from the first pass must not see the second one's job."""

    def two(decoder: PackedDecoder) -> Tensor:
        states, _ = decoder.early(IDS, 1, 0)
        rows = SequenceRows(decoder.cache, IDS, 0, ExitStates(1, states))
        ((states, _),) = decoder.model.compute([rows.unfinished()], 1)
        ((_, logits),) = decoder.model.compute(
            [replace(rows, exit_states=ExitStates(1, states))], decoder.arch.num_layers
        )
        return logits

    with threaded(1) as decoder:
        expected = two(decoder)
    with threaded(threads) as decoder:

        def jobs() -> None:
            for _ in range(200):
                assert torch.equal(two(decoder), expected)

        in_time(jobs)


@pytest.mark.parametrize("threads", [2, 3])
def test_workers_that_fell_asleep_are_woken(threads: int, expected: Tensor) -> None:
    with threaded(threads) as decoder:
        asleep = 0

        def jobs() -> None:
            nonlocal asleep
            for _ in range(8):
                time.sleep(SLEEP_SECONDS)
                asleep += sum(parked(decoder))
                assert torch.equal(again(decoder), expected)

        in_time(jobs)
        assert asleep > 0, "no worker ever slept, so none was woken"


def test_who_waits_at_a_barrier_for_long_sleeps_meanwhile(expected: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that spins on, or yields, is held up by whatever else runs, and holds up all others at every barrier. Here
    the worker comes only when the leader naps."""
    naps: list[int] = []
    begin = threading.Thread.start
    late: list[threading.Thread] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def nap(time: int, _: object) -> int:
        naps.append(ctypes.c_int64.from_address(time + 8).value)
        while late:
            begin(late.pop())
        return 0

    monkeypatch.setattr(pool, "system_nap", lambda: (nap, pool.np.array([0, 1], pool.np.int64)))
    decoder = packed_decoder()
    with monkeypatch.context() as held:
        held.setattr(threading.Thread, "start", lambda thread: late.append(thread))  # noqa: PLW0108 - a method
        decoder.set_threads(2)
    in_time(lambda: check(torch.equal(again(decoder), expected)))
    assert naps
    assert set(naps) == {1}  # nanosecond
    decoder.close()


def check(holds: bool) -> None:
    assert holds


def test_workers_on_the_edge_of_sleep_are_woken(expected: Tensor) -> None:
    """Pauses about as long as a worker's patience: it parks while the leader summons it, or just does not."""
    with threaded(2) as decoder:

        def jobs() -> None:
            for turn in range(200):
                time.sleep(turn % 20 * 0.0002)
                assert torch.equal(again(decoder), expected)

        in_time(jobs)


def workers() -> int:
    return threading.active_count()


@pytest.mark.parametrize("asleep", [False, True])
def test_close_ends_the_threads(asleep: bool) -> None:
    before = workers()
    decoder = packed_decoder(threads=3)
    assert workers() == before + 2
    again(decoder)
    if asleep:
        time.sleep(SLEEP_SECONDS)
    in_time(decoder.close)
    assert workers() == before
    in_time(decoder.close)  # twice does no harm


def test_a_pool_that_never_ran_can_be_closed() -> None:
    before = workers()
    decoder = packed_decoder(threads=2)
    in_time(decoder.close)
    assert workers() == before


def test_the_number_of_threads_can_be_changed_between_passes(expected: Tensor) -> None:
    before = workers()
    decoder = packed_decoder()
    for threads in (3, 1, 2, 2, 3, 1):
        in_time(partial(decoder.set_threads, threads))
        assert workers() == before + threads - 1
        assert torch.equal(again(decoder, 7), expected)


def test_more_threads_than_tasks_do_no_harm() -> None:
    """A model of one block, one key head and one row: most threads find nothing to do in any phase."""
    said: dict[str, Any] = {"hidden_size": 24, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 5}
    ids = random_ids(12, vocab=5)
    expected = packed_decoder(**said).forward(ids)
    with threaded(3, **said) as decoder:

        def jobs() -> None:
            singles = torch.cat([decoder.forward(ids[i : i + 1]) for i in range(12)])
            assert torch.equal(singles, expected)

        in_time(jobs)


def test_two_models_at_once_on_too_few_cores(expected: Tensor) -> None:
    """Six threads, whatever the machine has: all wait for each other in turns, and every answer is right."""
    with threaded(3) as first, threaded(3) as second:

        def jobs(decoder: PackedDecoder) -> None:
            for _ in range(6):
                assert torch.equal(again(decoder, 8), expected)

        in_time(lambda: jobs(first), lambda: jobs(second))


def test_a_decoder_that_is_closed_runs_again_when_asked(expected: Tensor) -> None:
    before = workers()
    decoder = packed_decoder(threads=2)
    decoder.close()
    assert torch.equal(again(decoder), expected)
    assert workers() == before + 1, "as many threads as it had"
    decoder.close()
    assert workers() == before


def test_a_forgotten_decoder_is_collected_and_its_threads_end() -> None:
    before = workers()
    decoder = packed_decoder(threads=3)
    again(decoder)
    gone = weakref.ref(decoder)
    del decoder
    gc.collect()
    assert gone() is None
    assert workers() == before


@pytest.mark.parametrize("asleep", [False, True])
def test_an_interrupt_between_summons_and_run_is_told_and_never_waited_for(
    asleep: bool, expected: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl+C may come at that moment: its workers wait for a leader, so another job must not begin."""
    decoder = packed_decoder(threads=2)
    pool = decoder.model.pool
    assert pool is not None
    program = pool.program
    if asleep:
        time.sleep(SLEEP_SECONDS)

    def interrupted(what: int, *rest: int) -> int:  # a worker that sleeps, or begins late, comes through here too
        if what == RUN:
            raise KeyboardInterrupt
        return program(what, *rest)

    monkeypatch.setattr(pool, "program", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:  # its frames hold what the job points to
        again(decoder)
    with pytest.raises(EngineError, match="interrupted") as kept_too:
        again(decoder)
    in_time(pool.close)
    monkeypatch.undo()
    program(RUN, pool.sync, pool.job)  # for the sake of this test's workers, the leader comes after all
    del kept, kept_too
    assert torch.equal(again(decoder), expected)
