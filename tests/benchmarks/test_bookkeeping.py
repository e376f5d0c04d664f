"""benchmarks/bookkeeping.py: what lies between two forwards is counted, and sampling, text and the forward are not."""

from __future__ import annotations

import time

import pytest

from benchmarks import bookkeeping
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Round
from localspec.engine.samplers import Greedy

pytestmark = pytest.mark.heavy

SLOW_MS = 5


def slower(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    real = getattr(owner, name)

    def slow(*words: object, **said: object) -> object:
        time.sleep(SLOW_MS / 1000)
        return real(*words, **said)

    monkeypatch.setattr(owner, name, slow)


def least(times: bookkeeping.Times) -> float:
    return min(times.gaps[False] + times.gaps[True])


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookkeeping, "UNCOUNTED", 4)


def measured() -> bookkeeping.Times:
    return bookkeeping.measure(Guarded(LookupDrafter()), "auto", 100_000, 12)


def test_what_the_policy_takes_is_counted(monkeypatch: pytest.MonkeyPatch):
    slower(monkeypatch, SteerablePolicy, "observe")
    assert least(measured()) >= 1000 * SLOW_MS


@pytest.mark.parametrize(("owner", "name"), [(Greedy, "accept"), (bookkeeping.Writer, "step")])
def test_what_sampling_and_text_take_is_not(owner: type, name: str, monkeypatch: pytest.MonkeyPatch):
    slower(monkeypatch, owner, name)
    times = measured()
    assert min(times.sampling if owner is Greedy else times.text) >= 1000 * SLOW_MS
    assert least(times) < 1000 * SLOW_MS


def test_rounds_with_a_draft_are_left_out():
    drafted: list[Round] = []

    class Heard(SteerablePolicy):
        def observe(self, done: Round) -> None:
            drafted.append(done)
            super().observe(done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bookkeeping, "SteerablePolicy", Heard)
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
