"""The log-probabilities of committed tokens are those of a softmax by hand, and no token is another for being asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from localspec.engine.decode import decode
from localspec.engine.logprob_sampler import LogprobSampler
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import Draft, Round
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.engine.test_recording_sampler import WAYS
from tests.engine.test_rounds import KINDS, PROMPT
from tests.support.fakes import text
from tests.support.models import tiny_decoder

pytestmark = pytest.mark.heavy

COUNT = 3


def rounds(kind: str, way: str, *, recorded: bool) -> Iterator[tuple[list[int], Round]]:
    """Each with what stood before it."""
    torch.manual_seed(3)
    target = tiny_decoder(seed=1)
    session = Session(target, KINDS[kind](target))
    sampler = make_sampler(WAYS[way])
    recording = LogprobSampler(sampler, COUNT, target.arch.vocab_size)
    session.begin(recording if recorded else sampler)
    for _ in session.prefill(PROMPT):
        pass
    before = list(PROMPT)
    for done in decode(session, Constant(3), max_tokens=40):
        yield list(before), recording.recorded(done) if recorded else done
        before += done.tokens


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_who_asks_for_them_gets_the_same_tokens(kind: str, way: str):
    plain, asked = (text([done for _, done in rounds(kind, way, recorded=on)]) for on in (False, True))
    assert asked == plain
    assert len(plain) == 40


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_those_of_a_softmax_by_hand(kind: str, way: str):
    target, drafted = tiny_decoder(seed=1), 0
    for before, done in rounds(kind, way, recorded=True):
        assert len(done.logprobs) == len(done.tokens)
        drafted += done.accepted
        for place, token in enumerate(done.tokens):
            target.crop(0)
            row = target.forward(torch.tensor([*before, *done.tokens[:place]]))[-1].exp()
            by_hand = (row / row.sum()).log()
            own, *others = done.logprobs[place]
            assert own == (token, pytest.approx(by_hand[token].item(), abs=1e-12))
            likeliest = by_hand.argsort(descending=True)[:COUNT].tolist()
            assert others == [(id, pytest.approx(by_hand[id].item(), abs=1e-12)) for id in likeliest]
    assert drafted or (kind, way) == ("n-grams", "seeded")


def test_padding_is_never_among_the_likeliest():
    sampler = make_sampler(Sampling(usable=4))
    recording = LogprobSampler(sampler, 3, usable=4)
    session = Session(tiny_decoder(seed=1), KINDS["n-grams"](tiny_decoder(seed=1)))
    logits = torch.tensor([[0.0, 3.0, 2.0, 1.0, 9.0, 9.0]], dtype=torch.float64)
    _, token = recording.accept(logits, Draft(torch.tensor([], dtype=torch.long)), session)
    (found,) = recording.recorded(Round((token,), (), 0, 0.0, 0.0)).logprobs
    by_hand = logits[0, :4].log_softmax(-1).tolist()
    assert found == ((1, by_hand[1]), *((id, pytest.approx(by_hand[id])) for id in (1, 2, 3)))
