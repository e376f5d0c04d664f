"""Speculation switched between any two rounds: the text stays that of plain decoding, and the drafter keeps in step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from localspec.core.events import DraftLength, Mode
from localspec.engine.decode import decode
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Drafter
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.fakes import GREEDY, generate, text
from tests.support.models import TINY, tiny_decoder

pytestmark = pytest.mark.heavy

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
LENGTH = 30
SAMPLED = Sampling(temperature=0.9, top_k=20, seed=42)
DRAFTERS: dict[str, Callable[[Decoder], Drafter]] = {
    "itself": lambda target: ModelDrafter(tiny_decoder(), TINY["vocab_size"]),  # noqa: ARG005
    "another": lambda target: ModelDrafter(tiny_decoder(seed=9, num_hidden_layers=1), TINY["vocab_size"]),  # noqa: ARG005
    "exit 2": lambda target: EarlyExitDrafter(target, 2),
}
OPTIONS: list[tuple[Mode, DraftLength]] = [("on", 4), ("off", 4), ("auto", "auto"), ("on", "auto"), ("on", "heuristic")]


@cache
def expected(sampling: Sampling) -> list[int]:
    """One token at a time."""
    return text(generate(Session(tiny_decoder(), NoDrafter()), PROMPT, max_tokens=LENGTH, sampling=sampling))


def in_step(session: Session) -> None:
    assert session.target.length == len(session.tokens) - 1
    drafter = session.drafter
    assert isinstance(drafter, Guarded)
    assert drafter.fault is None
    if isinstance(drafter.drafter, ModelDrafter):
        assert drafter.drafter.decoder.length <= session.target.length


@pytest.mark.sampled(3)
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_switching_at_any_round_changes_no_token(drafter: str, sampling: Sampling, every: int):
    """From all options to all others, at every round, and back four rounds later: plain rounds in between included.

    The small figure switches each pair of options at one of the eleven rounds, the next pair at the next.
    """
    target = tiny_decoder()
    session = Session(target, Guarded(DRAFTERS[drafter](target)))
    for pair, (first, then) in enumerate((a, b) for a in OPTIONS for b in OPTIONS if a != b):
        for place in range(1 + pair % every, 12, every):
            policy = SteerablePolicy(*first)
            session.begin(make_sampler(sampling))
            for _ in session.prefill(PROMPT):
                pass
            words: list[int] = []
            for number, done in enumerate(decode(session, policy, max_tokens=LENGTH), start=1):
                words += done.tokens
                in_step(session)
                if number == place:
                    policy.steer(*then)
                if number == place + 4:
                    policy.steer(*first)
            assert words == expected(sampling)


def test_a_draft_model_that_was_off_is_as_good_as_before_when_it_is_on_again():
    """The target itself drafts: every draft is accepted whole, before and after twelve plain rounds."""
    target = tiny_decoder()
    session, policy = Session(target, Guarded(DRAFTERS["itself"](target))), SteerablePolicy("on", 4)
    session.begin(make_sampler(GREEDY))
    for _ in session.prefill(PROMPT):
        pass
    shapes = []
    for number, done in enumerate(decode(session, policy, max_tokens=70), start=1):
        shapes.append((done.drafted, done.accepted))
        if number in (3, 15):
            policy.steer("off" if number == 3 else "on", 4)
    assert shapes[3:15] == [(0, 0)] * 12
    assert shapes[15] == (4, 4)
    assert all(drafted == accepted for drafted, accepted in shapes)
