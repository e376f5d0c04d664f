"""benchmarks/bookkeeping.py: what lies between two forwards is counted, and sampling, text and the forward are not."""

from __future__ import annotations

import pytest

from benchmarks import bookkeeping
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Round
from localspec.engine.samplers import Greedy

pytestmark = pytest.mark.heavy

LONG = 10**9  # nanoseconds: longer than all else together


class Clock:
    """Goes on by a microsecond whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1000
        return self.now

    def lengthen(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        """A method takes a second more."""
        real = getattr(owner, name)

        def slow(*words: object, **said: object) -> object:
            self.now += LONG
            return real(*words, **said)

        monkeypatch.setattr(owner, name, slow)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(bookkeeping, "perf_counter_ns", clock)
    monkeypatch.setattr(bookkeeping, "UNCOUNTED", 4)
    return clock


def measured() -> bookkeeping.Times:
    return bookkeeping.measure(Guarded(LookupDrafter()), "auto", 100_000, 12)


def gaps(times: bookkeeping.Times) -> list[float]:
    return times.gaps[False] + times.gaps[True]


def test_what_the_policy_takes_is_counted(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    clock.lengthen(monkeypatch, SteerablePolicy, "observe")
    assert min(gaps(measured())) >= LONG / 1000


@pytest.mark.parametrize(("owner", "name"), [(Greedy, "accept"), (bookkeeping.StepWriter, "step")])
def test_what_sampling_and_text_take_is_not(owner: type, name: str, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    clock.lengthen(monkeypatch, owner, name)
    times = measured()
    assert min(times.sampling if owner is Greedy else times.text) >= LONG / 1000
    assert 0 < max(gaps(times)) < LONG / 1000


def test_the_forward_itself_is_not():
    assert max(gaps(bookkeeping.measure(Guarded(LookupDrafter()), "auto", 10**6, 12))) < 1000


def test_rounds_with_a_draft_are_left_out(monkeypatch: pytest.MonkeyPatch):
    drafted: list[Round] = []

    class Heard(SteerablePolicy):
        def observe(self, done: Round) -> None:
            drafted.append(done)
            super().observe(done)

    monkeypatch.setattr(bookkeeping, "SteerablePolicy", Heard)
    times = bookkeeping.measure(bookkeeping.Wrong(10_000), "on", 100_000, 12)
    plain = [one for one in drafted[bookkeeping.UNCOUNTED + 1 :] if not one.draft]
    assert 0 < len(plain) < len(drafted)
    assert sum(map(len, times.gaps.values())) == len(plain)


def test_the_table_has_a_row_for_each_way_and_for_what_is_beside_it():
    lines = bookkeeping.report(0.05, 12).splitlines()
    assert lines[0] == "A forward takes 0.05 ms."
    names = [line.split("|")[1].strip() for line in lines[4:]]
    assert names[0] == "off"
    assert "auto, look-up" in names
    assert names[-2:] == ["beside it: sampling, greedy", "beside it: text and statistics"]
