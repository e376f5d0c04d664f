"""Nobody looks at what a GPU computes while it drafts: every look waits until all that was asked for is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.protocols import Choice, Drafter, Target
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling, penalise
from localspec.engine.session import Session
from tests.support.fakes import generate, text
from tests.support.models import tiny_decoder

PROMPT = [1, 2, 3, 4, 5]
LOOKS = {Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.numpy}
WAYS = [Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, seed=3), Sampling(repetition_penalty=1.3)]
DRAFTERS: dict[str, Callable[[Any], Drafter]] = {
    "early exit": lambda target: EarlyExitDrafter(target, 2),
    "draft model": lambda _: ModelDrafter(tiny_decoder(seed=2), 40),
}


class Looks(TorchFunctionMode):
    """Counts how often Python asks a tensor what is in it, and makes one on the device from numbers of its own: that
    waits too, since they are not in pinned memory."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.copies = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in LOOKS
        self.copies += func in (torch.tensor, torch.as_tensor) and "device" in (kwargs or {})
        return func(*args, **(kwargs or {}))


def looks(kind: str, sampling: Sampling, k: int, *, can_look: bool) -> tuple[int, int]:
    """At a draft of k tokens; and copies for it."""
    target: Target = tiny_decoder(seed=1)
    session = Session(target, DRAFTERS[kind](target))
    session.can_look = can_look
    session.begin(make_sampler(sampling), stop_ids=frozenset({99}))
    for _ in session.prefill(PROMPT):
        pass
    with Looks() as seen:
        assert len(session.drafter.draft(session, Choice(k))) == k
    return seen.count, seen.copies


@pytest.mark.parametrize("sampling", WAYS)
@pytest.mark.parametrize("kind", list(DRAFTERS))
def test_a_long_draft_is_looked_at_as_often_as_a_short_one(
    kind: str, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("localspec.engine.samplers.likeliest", lambda scores: scores.argmax(-1))  # as it is on a GPU
    seen, copies = looks(kind, sampling, 2, can_look=False)
    assert (seen, copies) == looks(kind, sampling, 9, can_look=False)
    assert seen <= 1
    assert copies <= 1
    assert looks(kind, sampling, 9, can_look=True)[0] >= 9  # on a CPU a draft ends with the answer


@pytest.mark.slow
@pytest.mark.heavy
def test_a_draft_behind_the_end_of_the_answer_is_never_said():
    """Where the drafter did not look. Whatever is drafted or said ends an answer; nothing else can."""
    told = []
    for can_look in (True, False):
        target = tiny_decoder(seed=1)
        session = Session(target, EarlyExitDrafter(target, 2))
        session.can_look = can_look
        whole = generate(session, PROMPT, max_tokens=24, policy=6)
        met = sorted({token for done in whole for token in (*done.draft, *done.tokens)})
        stopped = [generate(session, PROMPT, max_tokens=24, policy=6, stop_ids=frozenset({stop})) for stop in met]
        told.append({stop: text(rounds) for stop, rounds in zip(met, stopped, strict=True)})
    assert told[0] == told[1]
    assert any(len(said) < 24 for said in told[0].values())


@pytest.mark.parametrize("drafted", [[], [7], [7, 3, 7]])
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_row_is_penalised_for_what_stands_before_it(rows: int, drafted: list[int]):
    """The last row follows all that was drafted, each row before it one token less."""
    if rows > len(drafted) + 1:
        pytest.skip("there are no such rows")
    scores = torch.ones(rows, 12)
    got = penalise(scores, Sampling(repetition_penalty=2.0), [1, 2], torch.tensor(drafted, dtype=torch.long))
    for row in range(rows):
        seen = {1, 2, *drafted[: len(drafted) - rows + 1 + row]}
        assert {int(place) for place in (got[row] < 1).nonzero()} == seen
