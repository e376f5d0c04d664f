"""Models that transformers runs: speculative text is plain text, and transformers' own, whatever the cache's layout."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from localspec.checkpoint import open_snapshot
from localspec.drain import drain
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.model import DraftModel
from localspec.engine.generic_arch import RECURRENT, REWINDING, GenericArch, read_any
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from localspec.errors import Cancelled
from localspec.fit import Plan
from localspec.loader_generic import load_generic
from tests.engine.fakes import Alarm, generate, text
from tests.generic_models_made_here import ALL, NAMED, OTHERS, STATEFUL, VARIANTS, VOCAB, blurred, make_model, save_generic

pytestmark = pytest.mark.heavy

CONTEXT = 64
PROMPT = [5, 9, 14, 3, 30, 22, 41, 8, 17, 5, 33]
LENGTH = 24
SAMPLED = Sampling(temperature=0.9, top_k=20, top_p=0.95, repetition_penalty=1.1, seed=42)
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in {**VARIANTS, **OTHERS}]


def decoder_of(model: Any, *, quant: str = "fp64", context: int = CONTEXT) -> Any:
    """Through the disk, as it is loaded for anybody."""
    with TemporaryDirectory() as folder:
        snapshot = open_snapshot(save_generic(model, Path(folder) / "model"))
        arch = read_any(snapshot.config)
        assert isinstance(arch, GenericArch)
        return drain(load_generic(snapshot, arch, Plan(quant, context, "cpu"), stage="weights"))


@cache
def target(family: str) -> Any:
    return decoder_of(make_model(family))


@cache
def draft(family: str) -> Any:
    return decoder_of(blurred(make_model(family), 0.15))


@cache
def theirs(family: str) -> list[int]:
    """transformers' own greedy text."""
    model = make_model(family)
    ids = torch.tensor([PROMPT])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=LENGTH,
        min_new_tokens=LENGTH,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return [int(token) for token in out[0, len(PROMPT) :]]


def plain(family: str, prompt: list[int] = PROMPT, **said: Any) -> list[int]:
    target(family).crop(0)
    return text(generate(Session(target(family), NoDrafter()), prompt, max_tokens=LENGTH, **said))


def session_of(family: str) -> Session:
    target(family).crop(0)
    draft(family).crop(0)
    return Session(target(family), DraftModel(draft(family), VOCAB))


def test_every_family_is_tried_here():
    assert {name.split()[0] for name in ALL} == REWINDING | RECURRENT
    assert {name.split()[0] for name in STATEFUL} == RECURRENT


@pytest.mark.parametrize("family", [*NAMED, *SLOW])
def test_speculative_text_is_plain_text_and_transformers_own(family: str):
    """One session under all draft lengths, so a rewind stands between any two; drafts are rejected and accepted."""
    expected = plain(family)
    assert expected == theirs(family)
    session, accepted, rejected = session_of(family), 0, 0
    for k in (1, 3, 8):
        rounds = generate(session, PROMPT, max_tokens=LENGTH, policy=k)
        assert text(rounds) == expected
        assert session.target.length == len(session.tokens) - 1
        accepted += sum(done.accepted for done in rounds)
        rejected += sum(done.drafted - done.accepted for done in rounds)
    assert accepted > 0
    assert rejected > 0
    assert len(set(expected)) >= 3


@pytest.mark.parametrize("family", ["gemma3_text", *SLOW])
def test_a_seed_gives_one_text_with_and_without_drafts(family: str):
    expected = plain(family, sampling=SAMPLED)
    for k in (2, 5):
        assert text(generate(session_of(family), PROMPT, max_tokens=LENGTH, sampling=SAMPLED, policy=k)) == expected


@pytest.mark.parametrize("family", ["bloom", "gemma3_text", *STATEFUL, *SLOW])
def test_after_a_cancel_and_a_rewind_the_text_is_the_same(family: str):
    """Stopped at every place a cancel is looked at, then the same prompt, a longer and a shorter one."""
    longer = [*PROMPT, 7, 7, 12]
    expected = {tuple(prompt): plain(family, prompt) for prompt in (PROMPT, longer, PROMPT[:6])}
    fresh = family in STATEFUL
    session = Session(target(family), NoDrafter()) if fresh else session_of(family)
    for at in (2, 5, 9):
        with pytest.raises(Cancelled):
            generate(session, PROMPT, max_tokens=LENGTH, policy=3, cancelled=Alarm(at))
        for prompt, words in expected.items():
            assert text(generate(session, prompt, max_tokens=LENGTH, policy=0 if fresh else 3)) == words


@pytest.mark.parametrize("family", STATEFUL)
def test_what_folds_its_past_into_a_state_says_what_transformers_says(family: str):
    assert plain(family) == theirs(family)


def test_a_state_is_kept_from_turn_to_turn():
    """A turn that only adds is not read anew."""
    session = Session(target("mamba"), NoDrafter())
    said = text(generate(session, PROMPT, max_tokens=4))
    session.begin(session.sampler)
    first = next(iter(session.prefill([*PROMPT, *said, 3, 4])))
    assert first.cached == len(PROMPT) + 3
