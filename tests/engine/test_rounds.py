"""D: cancel, a full context, numbers that are none, drafters that crash, ends in odd places, repeats."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from localspec.core.errors import Cancelled, ContextOverflow, EngineError
from localspec.engine import session as session_module
from localspec.engine.decode import decode
from localspec.engine.decoder import Decoder
from localspec.engine.drafters import model as model_module
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.limits import PREFILL_CHUNK
from localspec.engine.policy.auto import Auto
from localspec.engine.policy.named import Constant
from localspec.engine.policy.probes import Probed
from localspec.engine.protocols import Choice, Drafter, ExitStates, Policy
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session, common_prefix_length
from tests.support.fakes import (
    Alarm,
    CrashingDrafter,
    NGramDrafter,
    RandomDrafter,
    ScriptedDrafter,
    ScriptedModel,
    generate,
    plain,
    scripted_draft_model,
    text,
)
from tests.support.models import TINY, tiny_decoder

pytestmark = pytest.mark.heavy

VOCAB = TINY["vocab_size"]
PROMPT = [3, 14, 15, 9, 2, 6, 5]
KINDS: dict[str, Callable[[Decoder], Drafter]] = {
    "draft model": lambda target: ModelDrafter(tiny_decoder(seed=1, num_hidden_layers=1), target.arch.vocab_size),
    "early exit": lambda target: EarlyExitDrafter(target, 2),
    "n-grams": lambda target: NGramDrafter(),  # noqa: ARG005
}
INVALID = [math.nan, math.inf, -math.inf]


def fresh_text(prompt: list[int], *, max_tokens: int) -> list[int]:
    return text(plain(tiny_decoder(seed=1), prompt, max_tokens=max_tokens))


# D1: cancel


def check_cancel(kind: str, cases: int) -> None:
    """Stopped at any look at the flag: the cache is that of a session that only ever read the committed tokens."""
    target = tiny_decoder(seed=1)
    session, dice = Session(target, KINDS[kind](target)), random.Random(kind)
    for _ in range(cases):
        prompt = [dice.randrange(VOCAB) for _ in range(dice.randint(2, 9))]
        alarm = Alarm(dice.randint(1, 40))
        with pytest.raises(Cancelled):
            generate(session, prompt, max_tokens=90, policy=dice.randint(1, 6), cancelled=alarm)
        assert alarm.looks == alarm.at, "somebody went on after the flag was seen"
        check_cache(session)
        turn = [*session.tokens, *prompt]
        assert text(generate(session, turn, max_tokens=8, policy=3)) == fresh_text(turn, max_tokens=8)


def check_cache(session: Session) -> None:
    """The target holds all committed tokens but the last, with the keys and values a fresh reading gives."""
    target, tokens = session.target, session.tokens
    assert isinstance(target, Decoder)
    assert target.length == len(tokens) - 1
    if not target.length:
        return
    fresh = tiny_decoder(seed=1, context=target.context, max_position_embeddings=target.context)
    fresh.forward(torch.tensor(tokens[:-1]))
    held, read = target.cache.store[:, : target.length], fresh.cache.store[:, : target.length]
    torch.testing.assert_close(held, read, rtol=1e-10, atol=1e-10)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_cancel_leaves_the_cache_equal_to_the_committed_tokens_10_times(kind: str) -> None:
    check_cancel(kind, 10)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_cancel_leaves_the_cache_equal_to_the_committed_tokens_200_times(kind: str) -> None:
    check_cancel(kind, 200)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("cases", "chunk"), [(10, 16), pytest.param(200, PREFILL_CHUNK, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_cancel_while_a_prompt_is_read_keeps_the_chunks_that_were(
    kind: str, cases: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two chunks; what was read is kept, and the next turn is a fresh session's."""
    for module in (session_module, model_module):
        monkeypatch.setattr(module, "PREFILL_CHUNK", chunk)
    context = 4 * chunk + 64
    target = tiny_decoder(seed=1, context=context, max_position_embeddings=context)
    session, dice = Session(target, KINDS[kind](target)), random.Random(kind)
    for _ in range(cases):
        prompt = [dice.randrange(VOCAB) for _ in range(dice.randint(chunk + 2, 4 * chunk))]
        alarm = Alarm(dice.randint(1, math.ceil((len(prompt) - 1) / chunk)))
        held = min(common_prefix_length(session.tokens, prompt), target.length)
        with pytest.raises(Cancelled):
            generate(session, prompt, max_tokens=9, policy=3, cancelled=alarm)
        assert alarm.looks == alarm.at, "somebody went on after the flag was seen"
        read = held + (alarm.looks - 1) * chunk
        assert session.tokens == prompt[: read + 1]
        check_cache(session)
        said = text(generate(session, prompt, max_tokens=4, policy=3))
        fresh = tiny_decoder(seed=1, context=context, max_position_embeddings=context)
        assert said == text(plain(fresh, prompt, max_tokens=4))
    print(f"\n{kind}: {cases} cancels while prompts of {chunk + 2} to {4 * chunk} tokens are read")


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancel_is_looked_for_before_every_forward(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No forward, wide or narrow, target's or drafter's, without a look at the flag since the one before."""
    target = tiny_decoder(seed=1)
    session, alarm, seen = Session(target, KINDS[kind](target)), Alarm(None), [0]

    def looked() -> None:
        assert alarm.looks > seen[0]
        seen[0] = alarm.looks

    forward, early = Decoder.forward, Decoder.early

    def watched_forward(
        self: Decoder, ids: Tensor, states: ExitStates | None = None, *, last_only: bool = False
    ) -> Tensor:
        looked()
        return forward(self, ids, states, last_only=last_only)

    def watched_early(
        self: Decoder, ids: Tensor, exit_layer: int, position: int, *, short: bool
    ) -> tuple[Tensor, Tensor]:
        looked()
        return early(self, ids, exit_layer, position, short=short)

    monkeypatch.setattr(Decoder, "forward", watched_forward)
    monkeypatch.setattr(Decoder, "early", watched_early)
    generate(session, PROMPT, max_tokens=20, policy=3, cancelled=alarm)


# D2: the context


@pytest.mark.sampled(5)
@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("length", range(1, 24))
def test_no_forward_ever_passes_the_context_and_the_answer_fills_it(length: int, k: int) -> None:
    """The scripted model refuses a forward past its context; every prompt that fits ends in `context`."""
    prompt = [token % 11 for token in range(length)]
    for make in (RandomDrafter, lambda vocab: scripted_draft_model(ScriptedModel(vocab, context=24), seed=2)):
        session = Session(ScriptedModel(11, seed=2, context=24), make(11))
        rounds = generate(session, prompt, max_tokens=100, policy=k)
        assert len(session.tokens) == 24
        assert rounds[-1].ended == "context"
        assert text(rounds) == text(plain(ScriptedModel(11, seed=2, context=24), prompt, max_tokens=100))


@pytest.mark.parametrize("exit_layer", [1, 3])
def test_an_early_exit_draft_is_clipped_to_the_context(exit_layer: int) -> None:
    expected = fresh_text(PROMPT, max_tokens=25)
    target = tiny_decoder(seed=1, context=32)
    rounds = generate(Session(target, EarlyExitDrafter(target, exit_layer)), PROMPT, max_tokens=100, policy=6)
    assert text(rounds) == expected
    assert rounds[-1].ended == "context"


@pytest.mark.parametrize("length", range(24, 30))
def test_a_prompt_that_does_not_fit_is_refused_and_changes_nothing(length: int) -> None:
    session = Session(ScriptedModel(11, context=24), NoDrafter())
    generate(session, [1, 2, 3], max_tokens=5)
    held = list(session.tokens)
    with pytest.raises(ContextOverflow):
        generate(session, [1] * length, max_tokens=5)
    assert session.tokens == held
    assert session.target.length == len(held) - 1


# D3: numbers that are none


@pytest.mark.parametrize("value", INVALID)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, seed=3)])
def test_invalid_numbers_from_the_target_stop_the_answer_and_the_session_lives_on(
    value: float, sampling: Sampling
) -> None:
    """At each of the first ten verifies. What was said stays; asked again, the session says what a fresh one says."""
    greedy = text(plain(ScriptedModel(11, seed=5), [1, 2, 3], max_tokens=20))
    for at in range(2, 12):
        target = ScriptedModel(11, seed=5, invalid={at: value})
        session, said = Session(target, scripted_draft_model(target, seed=5, blur=0.5)), [1, 2, 3]
        session.begin(make_sampler(sampling))
        for _ in session.prefill(said):
            pass
        with pytest.raises(EngineError, match="invalid numbers"):  # noqa: PT012
            for done in decode(session, Constant(1), max_tokens=40):
                said += done.tokens
        assert session.tokens == said
        assert target.length == len(said) - 1
        assert target.ids[: target.length] == said[:-1]
        assert text(generate(session, [1, 2, 3], max_tokens=20, policy=3)) == greedy


def test_what_invalid_numbers_left_in_the_cache_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole wide forward of NaN, keys and values too: cropped, it leaves nothing behind."""
    target = tiny_decoder(seed=1)
    session = Session(target, EarlyExitDrafter(target, 2))
    session.begin(make_sampler(Sampling()))
    for _ in session.prefill(PROMPT):
        pass
    embed = Decoder.embed
    with monkeypatch.context() as poisoned:
        poisoned.setattr(Decoder, "embed", lambda self, ids: embed(self, ids) * math.nan)
        session.drafter = ScriptedDrafter([1] * 99)
        with pytest.raises(EngineError):
            list(decode(session, Constant(6), max_tokens=9))
        session.drafter = EarlyExitDrafter(target, 2)
        with pytest.raises(EngineError):
            list(decode(session, Constant(6), max_tokens=9))
    assert target.cache.store.isnan().any()
    assert session.tokens == PROMPT
    assert text(list(decode(session, Constant(3), max_tokens=20))) == fresh_text(PROMPT, max_tokens=20)


@pytest.mark.parametrize("value", INVALID)
def test_invalid_numbers_from_a_guarded_draft_model_cost_speed_and_nothing_else(value: float) -> None:
    expected = text(plain(ScriptedModel(11, seed=5), [1, 2, 3], max_tokens=30))
    for at in range(1, 21):
        target = ScriptedModel(11, seed=5)
        guarded = Guarded(scripted_draft_model(target, seed=5, blur=0.5, invalid={at: value}))
        rounds = generate(Session(target, guarded), [1, 2, 3], max_tokens=30, policy=3)
        assert text(rounds) == expected
        assert isinstance(guarded.fault, EngineError)
        assert rounds[-1].drafted == 0


@pytest.mark.parametrize("value", INVALID)
def test_invalid_numbers_from_a_guarded_early_exit_cost_speed_and_nothing_else(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, early = fresh_text(PROMPT, max_tokens=24), Decoder.early
    for at in (1, 2, 3, 7):
        calls = [0]

        def faulty(
            self: Decoder,
            ids: Tensor,
            exit_layer: int,
            position: int,
            calls: list[int] = calls,
            at: int = at,
            **said: bool,
        ) -> tuple[Tensor, Tensor]:
            states, logits = early(self, ids, exit_layer, position, **said)
            calls[0] += 1
            return (states, logits) if calls[0] != at else (states * value, logits * value)

        monkeypatch.setattr(Decoder, "early", faulty)
        target = tiny_decoder(seed=1)
        guarded = Guarded(EarlyExitDrafter(target, 2))
        assert text(generate(Session(target, guarded), PROMPT, max_tokens=24, policy=3)) == expected
        assert isinstance(guarded.fault, EngineError)


# D4: drafters that crash


@cache
def crash_text() -> list[int]:
    return fresh_text(PROMPT, max_tokens=160)


def check_crash(kind: str, at: int, *, after_work: bool) -> None:
    """The answer, and a turn after it, are plain's; nothing is drafted from the crash on, and it is kept to be told."""
    target = tiny_decoder(seed=1)
    guarded = Guarded(CrashingDrafter(KINDS[kind](target), at, after_work=after_work))
    session = Session(target, guarded)
    rounds = generate(session, PROMPT, max_tokens=3 * at + 4, policy=2)  # three tokens a round at most: `at` comes
    assert text(rounds) == crash_text()[: 3 * at + 4]
    assert str(guarded.fault).startswith("the drafter fell over")
    assert all(done.drafted == 0 for done in rounds[at - 1 :])
    turn = [*session.tokens, *PROMPT]
    if at in (1, 13):
        assert text(generate(session, turn, max_tokens=6, policy=2)) == fresh_text(turn, max_tokens=6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_at_any_of_the_first_13_rounds_leaves_the_answer_as_it_was(kind: str) -> None:
    for at in range(1, 14):
        check_crash(kind, at, after_work=at % 2 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("after_work", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_at_any_of_the_first_50_rounds_leaves_the_answer_as_it_was(kind: str, after_work: bool) -> None:
    for at in range(1, 51):
        check_crash(kind, at, after_work=after_work)


def test_a_crash_while_the_drafter_reads_the_prompt_leaves_the_answer_as_it_was() -> None:
    target = tiny_decoder(seed=1)
    shorter = ModelDrafter(tiny_decoder(seed=1), VOCAB)
    shorter.decoder.forward = None  # type: ignore[method-assign, assignment]
    guarded = Guarded(shorter)
    assert text(generate(Session(target, guarded), PROMPT, max_tokens=9, policy=2)) == fresh_text(PROMPT, max_tokens=9)
    assert isinstance(guarded.fault, TypeError)


def test_a_guard_never_swallows_a_cancel() -> None:
    target = tiny_decoder(seed=1)
    guarded = Guarded(EarlyExitDrafter(target, 2))
    with pytest.raises(Cancelled):
        generate(Session(target, guarded), PROMPT, max_tokens=9, policy=2, cancelled=Alarm(4))
    assert guarded.fault is None


# D6: ends in odd places


SEED = next(
    seed for seed in range(99) if len(set(text(plain(ScriptedModel(50, seed=seed), [1, 2, 3], max_tokens=12)))) == 12
)
TRUTH = text(plain(ScriptedModel(50, seed=SEED), [1, 2, 3], max_tokens=12))  # twelve different tokens
WRONG = next(token for token in range(50) if token not in TRUTH)


@pytest.mark.parametrize(
    ("wrong_at", "stop_at", "accepted", "rejected", "ignored", "said", "ended"),
    [
        (None, None, 4, 0, 0, 5, None),
        (None, 0, 1, 0, 3, 1, "stop"),
        (None, 1, 2, 0, 2, 2, "stop"),
        (None, 3, 4, 0, 0, 4, "stop"),
        (None, 4, 4, 0, 0, 5, "stop"),  # the target's own token after a whole draft
        (2, 0, 1, 0, 3, 1, "stop"),
        (2, 1, 2, 0, 2, 2, "stop"),  # what was wrong stood behind the stop
        (2, 2, 2, 2, 0, 3, "stop"),  # the target's own token in place of a wrong draft
        (0, 0, 0, 4, 0, 1, "stop"),
        (2, 3, 2, 2, 0, 3, None),  # drafted behind a wrong one: not reached
        (0, None, 0, 4, 0, 1, None),
    ],
)
def test_no_token_follows_a_stop_and_every_draft_is_accounted_for(
    wrong_at: int | None, stop_at: int | None, accepted: int, rejected: int, ignored: int, said: int, ended: str | None
) -> None:
    """A round of four drafts: the truth, or wrong at one place, with the truth's token at another place a stop id."""
    script = [1, 2, 3, *TRUTH]
    if wrong_at is not None:
        script[3 + wrong_at] = WRONG
    session = Session(ScriptedModel(50, seed=SEED), ScriptedDrafter(script))
    stop_ids = frozenset() if stop_at is None else frozenset({TRUTH[stop_at]})
    session.begin(make_sampler(Sampling()), stop_ids=stop_ids)
    for _ in session.prefill([1, 2, 3]):
        pass
    done = next(decode(session, Constant(4), max_tokens=9))
    assert done.tokens == tuple(TRUTH[:said])
    assert (done.drafted, done.accepted, done.ignored, done.ended) == (4, accepted, ignored, ended)
    assert done.drafted == accepted + rejected + ignored
    assert session.tokens == [1, 2, 3, *done.tokens]
    assert session.target.length == len(session.tokens) - 1


def test_a_stop_id_drafted_wrongly_stops_nothing() -> None:
    script = [1, 2, 3, TRUTH[0], WRONG, *TRUTH[2:]]
    session = Session(ScriptedModel(50, seed=SEED), ScriptedDrafter(script))
    rounds = generate(session, [1, 2, 3], max_tokens=12, policy=4, stop_ids=frozenset({WRONG}))
    assert text(rounds) == TRUTH
    assert rounds[-1].ended == "length"


@pytest.mark.parametrize("kind", ["draft model", "early exit"])
def test_a_drafter_drafts_nothing_behind_a_stop_id(kind: str) -> None:
    target = tiny_decoder(seed=1)
    session = Session(target, KINDS[kind](target))
    proposed = generate(session, PROMPT, max_tokens=7, policy=6)[0].draft
    stop = proposed[3]
    first = generate(session, PROMPT, max_tokens=7, policy=6, stop_ids=frozenset({stop}))[0]
    assert first.draft == proposed[: proposed.index(stop) + 1]


@pytest.mark.parametrize("k", [0, 1, 4])
def test_one_token_asked_is_one_token_said_without_a_draft(k: int) -> None:
    target = ScriptedModel(50, seed=SEED)
    (only,) = generate(Session(target, scripted_draft_model(target, seed=SEED)), [1, 2, 3], max_tokens=1, policy=k)
    assert (only.tokens, only.drafted, only.accepted, only.ended) == ((TRUTH[0],), 0, 0, "length")


def test_no_token_asked_is_no_round() -> None:
    assert generate(Session(ScriptedModel(50), NoDrafter()), [1], max_tokens=0, policy=4) == []


def test_k_of_zero_is_plain_decoding() -> None:
    target = ScriptedModel(50, seed=SEED)
    rounds = generate(Session(target, scripted_draft_model(target, seed=SEED)), [1, 2, 3], max_tokens=12, policy=0)
    assert [done.tokens for done in rounds] == [(token,) for token in TRUTH]
    assert sum(done.drafted for done in rounds) == 0


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_never_a_token_more_than_asked(max_tokens: int) -> None:
    target = ScriptedModel(50, seed=SEED)
    drafter = scripted_draft_model(target, seed=SEED)
    rounds = generate(Session(target, drafter), [1, 2, 3], max_tokens=max_tokens, policy=4)
    assert text(rounds) == TRUTH[:max_tokens]
    assert [done.ended for done in rounds] == [None] * (len(rounds) - 1) + ["length"]


def test_a_stop_as_the_last_token_asked_or_of_the_context_is_a_stop() -> None:
    for context, max_tokens in ((64, 5), (8, 20)):
        session = Session(ScriptedModel(50, seed=SEED, context=context), ScriptedDrafter([1, 2, 3, *TRUTH]))
        rounds = generate(session, [1, 2, 3], max_tokens=max_tokens, policy=2, stop_ids=frozenset({TRUTH[4]}))
        assert text(rounds) == TRUTH[:5]
        assert rounds[-1].ended == "stop"


# L7: repeats


@pytest.mark.sampled(5)
@pytest.mark.parametrize("policy", [lambda: Constant(3), lambda: Probed(Auto())], ids=["constant", "auto"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_a_seed_repeats_itself(times: int, kind: str, policy: Callable[[], Policy]) -> None:
    sampling, target = Sampling(temperature=1.1, top_p=0.9, seed=7), tiny_decoder(seed=1)
    session = Session(target, KINDS[kind](target))
    texts = {
        tuple(text(generate(session, PROMPT, max_tokens=16, sampling=sampling, policy=policy()))) for _ in range(times)
    }
    assert texts == {tuple(text(plain(tiny_decoder(seed=1), PROMPT, max_tokens=16, sampling=sampling)))}


def test_another_seed_is_another_text() -> None:
    texts = {
        tuple(text(plain(ScriptedModel(50), [1], max_tokens=16, sampling=Sampling(temperature=1.0, seed=seed))))
        for seed in range(50)
    }
    assert len(texts) == 50


@pytest.mark.parametrize("drafter", [NoDrafter(), Guarded(NoDrafter())])
def test_an_empty_draft_lies_on_the_sessions_device(drafter: Drafter) -> None:
    """On another device than the target's logits it could not be compared with them."""
    session = Session(ScriptedModel(50, seed=1), drafter, device="meta")
    assert drafter.draft(session, Choice(0)).tokens.device.type == "meta"
