"""L3: whatever drafters propose, wherever somebody presses stop, however turns share prefixes: the text is plain's.

Over a model whose every logit depends on the whole prefix, so one wrong position in a cache changes the text.
"""

from __future__ import annotations

import random
from unittest import mock

import pytest
import torch

from localspec.core.errors import Cancelled
from localspec.engine import session as session_module
from localspec.engine.decode import decode
from localspec.engine.drafters import model as model_module
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.lookup import LookupDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.policy.auto import Auto
from localspec.engine.policy.named import Constant, Heuristic
from localspec.engine.policy.probes import Probed
from localspec.engine.protocols import Drafter, Policy, Round
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
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

pytestmark = pytest.mark.heavy


def any_drafter(dice: random.Random, target: ScriptedModel, seed: int) -> Drafter:
    vocab = target.arch.vocab_size
    shorter = max(target.context - dice.randint(0, 12), 2)
    return [
        NoDrafter,
        NGramDrafter,
        LookupDrafter,
        lambda: RandomDrafter(vocab, seed),
        lambda: ScriptedDrafter([dice.randrange(vocab) for _ in range(target.context + 9)]),
        lambda: scripted_draft_model(target, seed=seed),  # always right under greedy
        lambda: scripted_draft_model(target, seed=seed, blur=dice.choice((0.3, 1.0, 3.0))),
        lambda: scripted_draft_model(target, seed=seed, blur=0.5, context=shorter),
        lambda: ModelDrafter(ScriptedModel(max(vocab - 3, 2), seed=seed, context=target.context), vocab),
        lambda: Guarded(CrashingDrafter(scripted_draft_model(target, seed=seed), dice.randint(1, 6), after_work=True)),
    ][dice.randrange(10)]()


def any_sampling(dice: random.Random) -> Sampling:
    penalty = dice.choice((1.0, 1.0, 1.3, 5.0))
    if dice.random() < 0.6:
        return Sampling(repetition_penalty=penalty)
    return Sampling(
        temperature=dice.choice((0.5, 1.0, 2.0)),
        top_k=dice.choice((0, 3)),
        top_p=dice.choice((1.0, 0.8)),
        repetition_penalty=penalty,
        seed=dice.randrange(1000),
    )


def any_policy(dice: random.Random) -> Policy:
    return dice.choice((lambda: Constant(dice.randint(0, 9)), Heuristic, Auto, lambda: Probed(Auto())))()


def any_prompt(dice: random.Random, held: list[int], vocab: int, context: int) -> list[int]:
    """Another turn, an edit somewhere in the middle, an answer written again, or something new."""
    keep = {"turn": len(held), "edit": dice.randint(0, len(held)), "again": max(len(held) - 3, 0), "new": 0}
    shared = held[: keep[dice.choice(tuple(keep))]]
    new = [dice.randrange(vocab) for _ in range(dice.randint(0 if shared else 1, 7))]
    return (shared + new)[: context - 1]


def in_step(session: Session) -> None:
    """The target holds every committed token but the last; nobody holds anything else."""
    target, tokens = session.target, session.tokens
    assert isinstance(target, ScriptedModel)
    assert target.length == max(len(tokens) - 1, 0)
    assert target.ids[: target.length] == tokens[: target.length]
    if isinstance(session.drafter, ModelDrafter):
        own = session.drafter.decoder
        assert own.length <= min(len(own.ids), target.length)  # type: ignore[attr-defined]
        known = [min(token, own.arch.vocab_size - 1) for token in tokens]
        assert own.ids[: own.length] == known[: own.length]  # type: ignore[attr-defined]


def check_counts(done: Round) -> None:
    assert 0 <= done.accepted <= done.drafted - done.ignored
    assert done.tokens[: done.accepted] == done.draft[: done.accepted]
    assert len(done.tokens) in (done.accepted, done.accepted + 1)
    if len(done.tokens) == done.accepted:
        assert done.ended == "stop"


def play(case: int) -> None:
    """A session of up to four turns, each compared with a fresh plain session given the same prompt."""
    dice = random.Random(case)
    vocab, context = dice.choice((5, 11, 23)), dice.choice((12, 40, 90))
    target = ScriptedModel(vocab, seed=case, context=context)
    session = Session(target, any_drafter(dice, target, case))
    for _ in range(dice.randint(1, 4)):
        prompt = any_prompt(dice, session.tokens, vocab, context)
        sampling, max_tokens = any_sampling(dice), dice.randint(1, 30)
        stop_ids = frozenset(dice.sample(range(vocab), dice.choice((0, 0, 1, 2))))
        alarm = Alarm(dice.choice((None, None, dice.randint(1, 25))))
        fresh = ScriptedModel(vocab, seed=case, context=context)
        expected = plain(fresh, prompt, max_tokens=max_tokens, sampling=sampling, stop_ids=stop_ids)
        got: list[Round] = []
        read = False
        session.begin(make_sampler(sampling), stop_ids=stop_ids, cancelled=alarm)
        try:
            for reading in session.prefill(prompt):
                in_step(session)
                assert reading.done == target.length + (reading.done == reading.total), (
                    "the last one is read by a round"
                )
                assert session.tokens == prompt[: reading.done + 1]
            read = True
            for done in decode(session, any_policy(dice), max_tokens=max_tokens):
                in_step(session)
                check_counts(done)
                got.append(done)
        except Cancelled:
            in_step(session)
            assert alarm.at is not None
            assert text(got) == text(expected)[: len(text(got))]
        else:
            assert text(got) == text(expected)
            assert got[-1].ended == expected[-1].ended
        assert session.tokens == (prompt + text(got) if read else prompt[: target.length + 1])


def check_rollback(cases: range) -> None:
    with mock.patch.object(session_module, "PREFILL_CHUNK", 3), mock.patch.object(model_module, "PREFILL_CHUNK", 3):
        for case in cases:
            play(case)


@pytest.mark.slow
def test_200_random_sessions_say_what_plain_decoding_says() -> None:
    check_rollback(range(200))


@pytest.mark.slow
def test_2000_random_sessions_say_what_plain_decoding_says() -> None:
    check_rollback(range(2000))


def test_plain_decoding_is_this_loop_of_seven_lines() -> None:
    """The reference of every other test here, without session, sampler or decode."""
    for seed in range(30):
        penalty = (1.0, 1.3, 5.0)[seed % 3]
        tokens = [seed % 7, 3]
        for _ in range(25):
            model = ScriptedModel(11, seed=seed)
            scores = model.forward(torch.tensor(tokens))[-1].tolist()
            seen = set(tokens)
            scores = [s if t not in seen else s / penalty if s > 0 else s * penalty for t, s in enumerate(scores)]
            tokens.append(scores.index(max(scores)))
        sampling = Sampling(repetition_penalty=penalty)
        assert text(plain(ScriptedModel(11, seed=seed), tokens[:2], max_tokens=25, sampling=sampling)) == tokens[2:]


def test_a_draft_model_reads_every_token_of_a_conversation_once() -> None:
    """Ten turns: all its rows are the conversation's tokens, and one for each drafted token that was not kept."""
    target = ScriptedModel(23, seed=4, context=400)
    drafter = scripted_draft_model(target, seed=4, blur=0.5)
    session, dice, refused = Session(target, drafter), random.Random(4), 0
    prompt: list[int] = []
    for _ in range(10):
        prompt = session.tokens + [dice.randrange(23) for _ in range(6)]
        rounds = generate(session, prompt, max_tokens=20, policy=4)
        refused += sum(done.drafted - done.accepted for done in rounds)
    rows = drafter.decoder.rows  # type: ignore[attr-defined]
    assert len(prompt) <= rows <= len(session.tokens) + refused


def test_a_turn_costs_the_draft_model_its_new_tokens_and_what_it_had_not_seen_yet() -> None:
    target = ScriptedModel(23, seed=5, context=400)
    drafter = scripted_draft_model(target, seed=5)
    session = Session(target, drafter)
    generate(session, list(range(20)), max_tokens=12, policy=3)
    held, before = drafter.decoder.length, drafter.decoder.rows  # type: ignore[attr-defined]
    prompt = [*session.tokens, 1, 2, 3]
    session.begin(make_sampler(Sampling()))
    for _ in session.prefill(prompt):
        pass
    assert drafter.decoder.rows - before == len(prompt) - 1 - held  # type: ignore[attr-defined]
    assert held >= len(prompt) - 3 - 2  # its own last draft and the pending token are all it had not seen


def test_a_rewound_draft_model_reads_only_what_changed() -> None:
    target = ScriptedModel(23, seed=6, context=400)
    drafter = scripted_draft_model(target, seed=6)
    session = Session(target, drafter)
    prompt = list(range(20))
    generate(session, prompt, max_tokens=12, policy=3)
    rows = drafter.decoder.rows, target.rows  # type: ignore[attr-defined]
    session.begin(make_sampler(Sampling()))
    for _ in session.prefill([*prompt[:10], 22, *prompt[11:]]):
        pass
    assert (drafter.decoder.rows - rows[0], target.rows - rows[1]) == (9, 9)  # type: ignore[attr-defined]


def test_a_prompt_longer_than_the_draft_models_context_is_answered_plain() -> None:
    target = ScriptedModel(23, seed=7, context=64)
    drafter = scripted_draft_model(target, seed=7, context=16)
    prompt = [token % 23 for token in range(30)]
    got = generate(Session(target, drafter), prompt, max_tokens=10, policy=4)
    assert text(got) == text(plain(ScriptedModel(23, seed=7), prompt, max_tokens=10))


def test_prefill_never_holds_up_a_cancel_for_more_than_a_chunk() -> None:
    target = ScriptedModel(23, seed=8, context=4000)
    session = Session(target, scripted_draft_model(target, seed=8))
    session.begin(make_sampler(Sampling()), cancelled=Alarm(3))
    prompt = [token % 23 for token in range(3000)]
    readings = []
    with pytest.raises(Cancelled):
        readings.extend(reading.done for reading in session.prefill(prompt))
    assert readings == [0, 512, 1024]
    in_step(session)
    session.begin(make_sampler(Sampling()))
    assert next(session.prefill(prompt)).cached == 1024
