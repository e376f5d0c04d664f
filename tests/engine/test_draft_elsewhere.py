"""A draft model on another device than its target: the same drafts and the same text, and only tokens cross."""

from __future__ import annotations

import pytest
import torch

from localspec.engine.arch import read_arch
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.protocols import Choice
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from localspec.loading.sources import StateDictSource
from localspec.loading.torch import assemble
from tests.support.fakes import generate, plain, prefilled, text
from tests.support.models import TINY, random_tensors, tiny_decoder
from tests.support.second_device import FAR, SecondDevice

pytestmark = pytest.mark.heavy

PROMPT = [1, 2, 3, 4, 5]
VOCAB = 40
WAYS = [
    Sampling(),
    Sampling(repetition_penalty=1.3),
    Sampling(temperature=1.0, seed=3),
    Sampling(temperature=1.0, top_k=9, repetition_penalty=1.1, seed=5),
]


def draft_on(device: str, *, seed: int, **config: int) -> Decoder:
    said = {**TINY, **config}
    tensors = StateDictSource(random_tensors(said, seed=seed))
    return assemble(read_arch(said), tensors, dtype=torch.float64, context=256, device=device)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("sampling", "vocab"), [*((way, VOCAB) for way in WAYS), (WAYS[0], 36), (WAYS[0], 44)])
def test_the_text_is_the_same_wherever_the_draft_model_is(sampling: Sampling, vocab: int):
    """In float64, round by round; also where the two have other ids. Without a seed each device draws in its way."""
    told = {}
    with SecondDevice():
        for device in ("cpu", "cuda"):
            torch.manual_seed(7)
            session = Session(tiny_decoder(seed=1), ModelDrafter(draft_on(device, seed=1, vocab_size=vocab), VOCAB))
            turns = (PROMPT, [*PROMPT, 6, 7], PROMPT[:3])  # the draft falls behind, and is rewound
            rounds = [generate(session, turn, max_tokens=8, policy=3, sampling=sampling) for turn in turns]
            told[device] = [[(one.tokens, one.draft, one.accepted) for one in turn] for turn in rounds]
    assert told["cuda"] == told["cpu"]
    assert any(accepted for turn in told["cuda"] for _, _, accepted in turn)


def test_the_text_is_the_targets_own():
    with SecondDevice():
        session = Session(tiny_decoder(seed=1), ModelDrafter(draft_on("cuda", seed=1), VOCAB))
        rounds = generate(session, PROMPT, max_tokens=12, policy=5)
    assert text(rounds) == text(plain(tiny_decoder(seed=1), PROMPT, max_tokens=12))
    assert all(one.accepted == one.drafted for one in rounds)  # a twin is never wrong


@pytest.mark.parametrize(("sampling", "numbers"), [(Sampling(), 0), (Sampling(temperature=1.0), VOCAB)])
def test_only_tokens_cross_and_what_they_were_sampled_from(sampling: Sampling, numbers: int):
    """The pending id there; k ids back, each with its probabilities if it was sampled."""
    k = 6
    with SecondDevice() as devices:
        session = prefilled(tiny_decoder(seed=1), ModelDrafter(draft_on("cuda", seed=2), VOCAB), PROMPT, sampling)
        devices.brought_bytes = 0
        draft = session.drafter.draft(session, Choice(k))
        assert devices.brought_bytes == 8 + 8 * k + 8 * k * numbers
        assert draft.tokens.device.type == "cpu"
        assert draft.probs is None or draft.probs.device.type == "cpu"


def test_nobody_waits_for_each_token_of_a_gpu():
    """A draft goes on behind a stop id there, as for a target on a GPU."""
    with SecondDevice():
        drafter = ModelDrafter(draft_on("cuda", seed=2), VOCAB)
        session = Session(tiny_decoder(seed=1), drafter)
        session.begin(make_sampler(Sampling()), stop_ids=frozenset(range(VOCAB)))
        for _ in session.prefill(PROMPT):
            pass
        assert len(session.drafter.draft(session, Choice(5))) == 5
        drafter.decoder, beside = draft_on("cpu", seed=2), session
        assert len(session.drafter.draft(beside, Choice(5))) == 1


def test_the_second_device_is_one():
    """The fake refuses what a real one refuses."""
    with SecondDevice():
        here, there = torch.ones(3), torch.ones(3, device="cuda")
        assert (there + 1).device == FAR
        for wrong in (lambda: here + there, lambda: torch.cat((here, there)), lambda: there[here.long()]):
            with pytest.raises(RuntimeError, match="two devices"):
                wrong()
        assert torch.equal(there.to("cpu"), here)
