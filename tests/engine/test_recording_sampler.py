"""Both probabilities of what was proposed are those of a softmax by hand, and no token is another for being asked."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp

import pytest
import torch
from torch import Tensor

from localspec.engine.decode import decode
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import DraftProbabilities, Round
from localspec.engine.recording_sampler import RecordingSampler
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.engine.test_rounds import KINDS, PROMPT
from tests.support.fakes import CrashingDrafter, text
from tests.support.models import tiny_decoder

pytestmark = pytest.mark.heavy

WAYS = {
    "greedy": Sampling(repetition_penalty=1.2),
    "random": Sampling(temperature=0.8, top_p=0.9),
    "seeded": Sampling(temperature=1.3, top_k=20, seed=5),
}


def rounds(
    kind: str, way: str, *, recorded: bool, crash: int = 0
) -> Iterator[tuple[list[int], Round, DraftProbabilities]]:
    """Each with what stood before it."""
    torch.manual_seed(3)
    target = tiny_decoder(seed=1)
    drafter = KINDS[kind](target)
    session = Session(target, Guarded(CrashingDrafter(drafter, crash, after_work=True)) if crash else drafter)
    sampler = make_sampler(WAYS[way])
    recording = RecordingSampler(sampler)
    session.begin(recording if recorded else sampler)
    for _ in session.prefill(PROMPT):
        pass
    before = list(PROMPT)
    for done in decode(session, Constant(3), max_tokens=40):
        yield list(before), done, recording.probabilities
        before += done.tokens


def by_hand(logits: Tensor, token: int) -> float:
    scores = [exp(score) for score in logits.tolist()]
    return scores[token] / sum(scores)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_who_asks_for_probabilities_gets_the_same_tokens(kind: str, way: str):
    plain, asked = (text([done for _, done, _ in rounds(kind, way, recorded=on)]) for on in (False, True))
    assert asked == plain
    assert len(plain) == 40


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_probabilities_are_those_of_a_softmax_by_hand(kind: str, way: str):
    target, rejected = tiny_decoder(seed=1), 0
    for before, done, odds in rounds(kind, way, recorded=True):
        assert len(odds.target) == len(odds.drafter) == done.drafted
        rejected += done.drafted > done.accepted
        for place, token in enumerate(done.draft):
            read = torch.tensor([*before, *done.draft[:place]])
            target.crop(0)
            assert odds.target[place] == pytest.approx(by_hand(target.forward(read)[-1], token), abs=1e-12)
            if kind == "n-grams":
                assert odds.drafter[place] is None
                continue
            if kind == "early exit":
                target.crop(0)
                drafts = target.early(read, 2, 0)[1]
            else:
                drafts = tiny_decoder(seed=1, num_hidden_layers=1).forward(read)
            assert odds.drafter[place] == pytest.approx(by_hand(drafts[-1], token), abs=1e-12)
    assert rejected


def test_a_drafter_that_fails_behind_its_draft_leaves_no_probabilities_behind():
    found = [*rounds("draft model", "greedy", recorded=True, crash=2)]
    assert found[0][2].drafter
    for _, done, odds in found[1:]:
        assert (done.drafted, odds) == (0, DraftProbabilities())
