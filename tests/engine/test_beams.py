"""Beam search: transformers' own beams in float64, the same search row by row in int8 and int4, and what it leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch

from localspec.core.errors import Cancelled, EngineError
from localspec.engine.beams import BeamSearch, beam_search, log_probabilities
from localspec.engine.cache import Cache
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.protocols import Round
from localspec.engine.samplers import Greedy
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.fakes import GREEDY, Alarm, generate, plain, text
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
    session: Any,
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
    return list(beam_search(session, session.target, sampling, beams=beams, max_tokens=length))


def prompts(count: int, seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(VOCAB) for _ in range(dice.randint(1, 9))] for _ in range(count)]


@pytest.mark.sampled(4)
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


def row_by_row(decoder: Any, prompt: Sequence[int], beams: int, length: int, ends: frozenset[int]) -> list[int]:
    """The same search, every text read anew, a row at a time."""
    found = BeamSearch(beams, ends, length)
    while not found.is_over:
        logits, texts = [], [(*prompt, *beam.tokens) for beam in found.running]
        for ids in texts:
            decoder.crop(0)
            logits.append([decoder.forward(torch.tensor([id])) for id in ids][-1])
        found.step(log_probabilities(torch.cat(logits), GREEDY, texts))
    return list(found.decided)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_one_forward_say_what_rows_alone_say_in_int8_and_int4(kind: PackedFormat):
    """Also where a beam's keys and values were copied from another's, across blocks of sixteen."""
    session, alone = (Session(packed_decoder(seed=4, kind=kind), NoDrafter()) for _ in range(2))
    for prompt in (prompts(1, 6)[0], [*range(1, 33)]):
        for beams in (2, 5):
            expected = row_by_row(alone.target, prompt, beams, 20, ENDS["one"])
            assert text(search(session, prompt, beams, 20, ENDS["one"])) == expected


def test_what_is_decided_is_said_at_once_and_never_taken_back():
    rounds = search(Session(tiny_decoder(seed=1), NoDrafter()), [1, 2, 3], 3, 60, ENDS["three"])
    assert 2 < sum(bool(done.tokens) for done in rounds) < len(rounds)
    assert not any(done.drafted for done in rounds)
    assert [done.ended is None for done in rounds] == [*[True] * (len(rounds) - 1), False]


def test_beams_copy_only_what_differs(monkeypatch: pytest.MonkeyPatch):
    """The prompt's positions are copied once into each cache."""
    copied: list[range] = []
    take = Cache.take

    def watched(self: Cache, other: Cache, start: int, end: int) -> None:
        copied.append(range(start, end))
        take(self, other, start, end)

    monkeypatch.setattr(Cache, "take", watched)
    prompt = [*range(30)]
    search(Session(tiny_decoder(seed=1), NoDrafter()), prompt, 3, 30)
    whole = [positions for positions in copied if positions.start == 0]
    assert whole == [range(29)] * 3
    assert all(positions.start >= 29 for positions in copied if positions not in whole)
    assert len(copied) > 6, "beams did go on from each other's texts"


def test_the_next_prompt_finds_the_answer_in_the_cache():
    session = Session(tiny_decoder(seed=1), NoDrafter())
    answer = text(search(session, [5, 6, 7], 3, 20))
    assert session.tokens == [5, 6, 7, *answer]
    assert 3 + 10 < session.target.length < len(session.tokens)
    more = [5, 6, 7, *answer, 8, 9]
    assert text(generate(session, more, max_tokens=20)) == text(plain(tiny_decoder(seed=1), more, max_tokens=20))


@pytest.mark.parametrize("at", [1, 2, 9])
def test_a_search_that_is_stopped_leaves_what_was_decided(at: int):
    whole = text(search(Session(tiny_decoder(seed=1), NoDrafter()), [5, 6, 7], 3, 30))
    session = Session(tiny_decoder(seed=1), NoDrafter())
    with pytest.raises(Cancelled):
        search(session, [5, 6, 7], 3, 30, cancelled=Alarm(at))
    said = session.tokens[3:]
    assert said == whole[: len(said)]
    assert len(said) < at
    more = [*session.tokens, 8]
    assert text(generate(session, more, max_tokens=20)) == text(plain(tiny_decoder(seed=1), more, max_tokens=20))


def test_numbers_that_are_none_end_the_search_and_nothing_else():
    target = tiny_decoder(seed=1)
    session, norm = Session(target, NoDrafter()), target.weights.norm
    kept = norm.clone()
    norm.fill_(float("nan"))
    with pytest.raises(EngineError, match="invalid numbers"):
        search(session, [5, 6, 7], 3, 30)
    norm.copy_(kept)
    assert text(search(session, [5, 6, 7], 3, 9)) == their_text(1, [5, 6, 7], 3, 9, frozenset())


def test_more_beams_than_words_are_as_many_as_there_are():
    found = text(search(Session(tiny_decoder(seed=1), NoDrafter()), [5], VOCAB + 5, 4))
    assert len(found) == 4
