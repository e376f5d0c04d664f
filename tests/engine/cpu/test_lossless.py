"""L3 and L4 with the CPU engine: whatever drafts, wherever somebody presses stop, the text is plain's.

The torch decoder's own tests of the float64 engine, given this engine instead; here equality needs no float64, since
rows are equal bit for bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from localspec.core.errors import Cancelled
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.cpu.isa import Isa
from localspec.engine.decode import decode
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.protocols import Drafter, Round
from localspec.engine.samplers import make_sampler
from localspec.engine.session import Session
from tests.engine import test_exact_in_float64 as exact
from tests.engine import test_rollback as rollback
from tests.support.fakes import Alarm, NGramDrafter, RandomDrafter, generate, plain, text
from tests.support.models import TINY
from tests.support.packed_models import ISAS, KINDS, packed_decoder, threaded

pytestmark = pytest.mark.heavy

LAYERS, VOCAB = TINY["num_hidden_layers"], TINY["vocab_size"]
DRAFTERS = (*exact.DRAFTERS, "random")
WINDOWED: dict[str, Any] = {"model_type": "mistral", "sliding_window": 7}
PART = 50
on_this_engine = pytest.mark.usefixtures("here")


def use(kind: PackedFormat, on: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of float64 make their models on this engine."""

    def tiny_decoder(**said: Any) -> PackedDecoder:
        return packed_decoder(kind=kind, on=on, **said)

    monkeypatch.setattr(exact, "tiny_decoder", tiny_decoder)
    monkeypatch.setattr(exact, "SEED", 3)  # whose texts do not turn round and round
    monkeypatch.setitem(exact.DRAFTERS, "random", lambda _: RandomDrafter(VOCAB))


@pytest.fixture(params=KINDS)
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use(request.param, ISAS[0], monkeypatch)


@pytest.mark.sampled(3)
@on_this_engine
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_5_prompts_are_answered_as_one_token_at_a_time(drafter: str) -> None:
    """Once each, under one k after the other; make slow has every prompt under every k."""
    asked = exact.prompts(5)
    exact.check_cases(drafter, zip((1, 3, 8, 16, 3), asked, exact.plain_texts(asked, 40), strict=True))


@on_this_engine
@pytest.mark.slow
@pytest.mark.parametrize(("drafter", "first"), exact.parts(DRAFTERS, PART))
def test_200_prompts_are_answered_as_one_token_at_a_time(drafter: str, first: int) -> None:
    asked = exact.prompts(exact.PROMPTS)[first : first + PART]
    exact.check_exact(drafter, asked, exact.plain_texts(asked, 128), (*range(1, 9), 12, 16))


@pytest.mark.slow
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("isa", ISAS[1:], ids=lambda isa: isa.name)
def test_20_prompts_are_answered_so_on_every_kind_of_processor(
    isa: Isa, kind: PackedFormat, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(kind, isa, monkeypatch)
    asked = exact.prompts(20)
    exact.check_exact(drafter, asked, exact.plain_texts(asked, 64), (1, 2, 5, 8))


@on_this_engine
def test_the_texts_are_worth_comparing() -> None:
    words = exact.plain_texts(exact.prompts(5), 40)
    assert len({tuple(answer) for answer in words}) == len(words)
    assert min(len(set(answer[-20:])) for answer in words) >= 3


@pytest.mark.sampled(5)
@on_this_engine
@pytest.mark.parametrize("policy", ["constant", "auto"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_seed_gives_one_text_under_every_drafter(drafter: str, policy: str) -> None:
    asked = exact.prompts(12)[:2]
    for prompt, words in zip(asked, exact.plain_texts(asked, 32, exact.SAMPLED), strict=True):
        exact.check_seeded(drafter, exact.POLICIES[policy], prompt, words)


@on_this_engine
@pytest.mark.slow
@pytest.mark.parametrize("policy", exact.POLICIES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_seed_gives_20_prompts_one_text_under_every_drafter_and_policy(drafter: str, policy: str) -> None:
    asked = exact.prompts(20)
    for prompt, words in zip(asked, exact.plain_texts(asked, 64, exact.SAMPLED), strict=True):
        exact.check_seeded(drafter, exact.POLICIES[policy], prompt, words)


# --- cancels, rewinds, turns


def any_drafter(dice: random.Random, target: PackedDecoder, said: dict[str, Any]) -> Drafter:
    makers: list[Callable[[], Drafter]] = [
        NoDrafter,
        NGramDrafter,
        LookupDrafter,
        lambda: RandomDrafter(VOCAB, dice.randrange(99)),
        lambda: EarlyExitDrafter(target, dice.randint(1, LAYERS - 1)),
        lambda: EarlyExitDrafter(target, LAYERS - 1),
        lambda: ModelDrafter(packed_decoder(**said), VOCAB),
        lambda: ModelDrafter(packed_decoder(**{**said, "seed": 9, "num_hidden_layers": 1}), VOCAB),
    ]
    return dice.choice(makers)()


def play(case: int, target: PackedDecoder, said: dict[str, Any]) -> None:
    """A session of up to four turns, each compared with a fresh plain session given the same prompt."""
    dice = random.Random(case)
    target.crop(0)
    session = Session(target, any_drafter(dice, target, said))
    for _ in range(dice.randint(1, 4)):
        prompt = rollback.any_prompt(dice, session.tokens, VOCAB, target.context)
        sampling, max_tokens = rollback.any_sampling(dice), dice.randint(1, 25)
        stop_ids = frozenset(dice.sample(range(VOCAB), dice.choice((0, 0, 1, 2))))
        alarm = Alarm(dice.choice((None, None, dice.randint(1, 25))))
        expected = plain(packed_decoder(**said), prompt, max_tokens=max_tokens, sampling=sampling, stop_ids=stop_ids)
        got: list[Round] = []
        session.begin(make_sampler(sampling), stop_ids=stop_ids, cancelled=alarm)
        try:
            for _ in session.prefill(prompt):
                pass
            for done in decode(session, rollback.any_policy(dice), max_tokens=max_tokens):
                rollback.check_counts(done)
                got.append(done)
        except Cancelled:
            assert alarm.at is not None
            assert text(got) == text(expected)[: len(text(got))]
        else:
            assert text(got) == text(expected)
            assert got[-1].ended == expected[-1].ended
        assert target.length == max(len(session.tokens) - 1, 0)


def check_sessions(cases: range, kind: PackedFormat, **config: Any) -> None:
    said = {"kind": kind, "seed": 3, "context": 90, **config}
    with threaded(2 if config else 1, **said) as target:
        for case in cases:
            play(case, target, said)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("config", [{}, WINDOWED], ids=["all positions", "window"])
@pytest.mark.parametrize("kind", KINDS)
def test_10_random_sessions_say_what_plain_decoding_says(kind: PackedFormat, config: dict[str, Any]) -> None:
    check_sessions(range(10), kind, **config)


@pytest.mark.slow
@pytest.mark.parametrize("config", [{}, WINDOWED], ids=["all positions", "window"])
@pytest.mark.parametrize("kind", KINDS)
def test_1000_random_sessions_say_what_plain_decoding_says(kind: PackedFormat, config: dict[str, Any]) -> None:
    check_sessions(range(1000), kind, **config)


@pytest.mark.parametrize("kind", KINDS)
def test_two_threads_say_it_too(kind: PackedFormat) -> None:
    expected = text(plain(packed_decoder(kind=kind, seed=3), [1, 2, 3], max_tokens=30))
    with threaded(2, kind=kind, seed=3) as target:
        session = Session(target, EarlyExitDrafter(target, 2))
        for k in (1, 4):
            assert text(generate(session, [1, 2, 3], max_tokens=30, policy=k)) == expected


# --- the tests can fail


@on_this_engine
def test_a_draft_written_one_position_on_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    early = PackedDecoder.early
    monkeypatch.setattr(
        PackedDecoder, "early", lambda self, ids, leave, at, **how: early(self, ids, leave, at + 1, **how)
    )
    asked = exact.prompts(5)
    with pytest.raises(AssertionError):
        exact.check_exact("exit 2", asked, exact.plain_texts(asked, 40), (3,))


@on_this_engine
def test_states_of_the_wrong_layer_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    run = PackedDecoder.early
    monkeypatch.setattr(
        PackedDecoder, "early", lambda self, ids, leave, at, **how: run(self, ids, leave - 1, at, **how)
    )
    asked = exact.prompts(5)
    with pytest.raises(AssertionError):
        exact.check_exact("exit 2", asked, exact.plain_texts(asked, 40), (3,))
