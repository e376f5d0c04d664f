"""Beam search: transformers' own beams in float64, the same search row by row in int8 and int4, and what it leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch

from localspec.core.errors import Cancelled, EngineError
from localspec.engine.batch import Batched, Pass, Result
from localspec.engine.beams import beam_search
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.protocols import Round
from localspec.engine.samplers import Greedy
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.fakes import GREEDY, generate, plain
from tests.support.models import TINY, random_tensors, tiny_decoder
from tests.support.packed_models import KINDS, packed_decoder

pytestmark = pytest.mark.heavy

VOCAB, SEEDS = TINY["vocab_size"], range(3)
ENDS = {"none": frozenset[int](), "one": frozenset({7}), "three": frozenset({7, 11, 30})}


@cache
def theirs(seed: int) -> Any:
    """transformers' model of the same weights, in float64."""
    from transformers import LlamaConfig, LlamaForCausalLM

    said = {name: value for name, value in TINY.items() if name != "model_type"}
    model = LlamaForCausalLM(LlamaConfig(**said, attn_implementation="eager")).double().eval()
    model.load_state_dict(random_tensors(TINY, seed=seed), strict=False)
    defaults = model.generation_config
    defaults.eos_token_id = defaults.bos_token_id = defaults.pad_token_id = None
    return model


def their_text(seed: int, prompt: list[int], beams: int, length: int, ends: frozenset[int], **said: Any) -> list[int]:
    ids = torch.tensor([prompt])
    found = theirs(seed).generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=beams,
        do_sample=False,
        max_new_tokens=length,
        eos_token_id=sorted(ends) or None,
        pad_token_id=0,
        **said,
    )
    return [int(id) for id in found[0, len(prompt) :]]


def search(
    session: Session,
    prompt: Sequence[int],
    beams: int,
    length: int,
    ends: frozenset[int] = frozenset(),
    sampling: Sampling = GREEDY,
    cancelled: Callable[[], bool] | None = None,
) -> list[Round]:
    session.begin(Greedy(sampling), stop_ids=ends, cancelled=cancelled)
    for _ in session.prefill(prompt):
        pass
    target: Any = session.target
    return list(beam_search(session, target, sampling, beams=beams, max_tokens=length))


def text(rounds: Sequence[Round]) -> list[int]:
    return [token for done in rounds for token in done.tokens]


def prompts(count: int, seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(VOCAB) for _ in range(dice.randint(1, 9))] for _ in range(count)]


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("beams", [2, 3, 5])
def test_the_text_is_transformers_own_in_float64(beams: int, ends: str):
    stops, found, ended = ENDS[ends], [], set()
    for seed in SEEDS:
        session = Session(tiny_decoder(seed=seed), NoDrafter())
        for prompt in prompts(2, seed):
            rounds = search(session, prompt, beams, 14, stops)
            assert text(rounds) == their_text(seed, prompt, beams, 14, stops)
            ended.add(rounds[-1].ended)
            found.append(text(rounds))
    assert ended <= {"stop", "length"}
    assert ("stop" in ended) == (ends != "none")


def test_the_penalty_is_transformers_own():
    session = Session(tiny_decoder(seed=1), NoDrafter())
    for prompt in prompts(3, 5):
        rounds = search(session, prompt, 3, 12, ENDS["one"], Sampling(repetition_penalty=1.3))
        assert text(rounds) == their_text(1, prompt, 3, 12, ENDS["one"], repetition_penalty=1.3)


def test_at_the_end_of_the_context_the_best_text_so_far_wins():
    prompt, length = [3, 1, 4, 1, 5], 11
    rounds = search(Session(tiny_decoder(seed=2, context=16), NoDrafter()), prompt, 3, 100)
    assert text(rounds) == their_text(2, prompt, 3, length, frozenset())
    assert [done.ended for done in rounds] == [*[None] * (len(rounds) - 1), "context"]
    at_once = search(Session(tiny_decoder(seed=2, context=16), NoDrafter()), prompt, 3, length)
    assert at_once[-1].ended == "length"
