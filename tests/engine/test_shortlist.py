"""A head of fewer words: no text depends on it, whatever the list, and the list follows what is used."""

from __future__ import annotations

import gc
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from localspec.engine import shortlist as shortlist_module
from localspec.engine.arch import read_arch
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.lengths import LONGEST, SLOTS, Lengths, never, usual
from localspec.engine.linear import Dense
from localspec.engine.protocols import Choice, Drafter, Round
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from localspec.engine.shortlist import FEW_MISSING, MOST_MISSING, WINDOW, Shortlist, drafter_bytes
from localspec.loading.sources import StateDictSource
from localspec.loading.torch import assemble
from tests.engine.test_law_of_samples import ENOUGH, check_early_exit
from tests.support.fakes import GREEDY, ScriptedModel, generate, plain, prefilled, text
from tests.support.models import TINY, random_tensors, tiny_decoder

pytestmark = pytest.mark.heavy

VOCAB = TINY["vocab_size"]
SHORT = Lengths(8, 8)
PROMPT = [3, 14, 15, 9, 2, 6, 5]
PENALISED = Sampling(temperature=0.0, repetition_penalty=1.3)
SEEDED = Sampling(temperature=0.9, top_k=20, seed=42)


def short(words: int) -> Lengths:  # noqa: ARG001 - of any length
    return SHORT


def of_words(words: int) -> Decoder:
    """The target's weights with fewer words, or with more."""
    config = {**TINY, "vocab_size": words}
    weights = random_tensors(TINY, seed=1)
    table = weights["model.embed_tokens.weight"]
    weights["model.embed_tokens.weight"] = torch.cat((table, -table))[:words]
    return assemble(read_arch(config), StateDictSource(weights), dtype=torch.float64, context=256)


DRAFTERS: dict[str, Callable[[Decoder], Any]] = {
    "early exit": lambda target: EarlyExitDrafter(target, 3, shorten=short),
    "draft model": lambda _: ModelDrafter(tiny_decoder(seed=1), VOCAB, shorten=short),
    "smaller draft model": lambda _: ModelDrafter(of_words(32), VOCAB, shorten=short),
    "larger draft model": lambda _: ModelDrafter(of_words(48), VOCAB, shorten=short),
}


@pytest.fixture(autouse=True)
def always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so few words many are missing in any text; the list is used all the same, but where a test is about that."""
    monkeypatch.setattr(shortlist_module, "MOST_MISSING", 10**6)


def drafted(rounds: Sequence[Round]) -> int:
    return sum(done.drafted for done in rounds)


def accepted(rounds: Sequence[Round]) -> int:
    return sum(done.accepted for done in rounds)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("sampling", [GREEDY, PENALISED, SEEDED], ids=["greedy", "penalised", "seeded"])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("kind", DRAFTERS)
def test_the_text_is_plains_in_float64(kind: str, k: int, sampling: Sampling) -> None:
    target = tiny_decoder(seed=1)
    expected = text(plain(tiny_decoder(seed=1), PROMPT, max_tokens=60, sampling=sampling))
    rounds = generate(Session(target, DRAFTERS[kind](target)), PROMPT, max_tokens=60, policy=k, sampling=sampling)
    assert text(rounds) == expected
    assert drafted(rounds) > 20
    assert accepted(rounds) > 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lengths", [Lengths(1, 1), Lengths(2, 1)])
def test_samples_have_the_targets_law_whatever_is_missing(lengths: Lengths) -> None:
    """Three words, of which two or three are on the list. Fixed seed; false alarm 1e-6 by chi-square."""
    check_early_exit(ENOUGH, lambda _: lengths)


@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_sampled_draft_has_probability_none_outside_the_list(kind: str) -> None:
    """By enumeration: q in the target's width, accepted with min(1, p / q), else from max(0, p - q): together p."""
    target = tiny_decoder(seed=1)
    drafter = DRAFTERS[kind](target)
    session = prefilled(target, drafter, PROMPT, Sampling(temperature=1.0))
    draft = drafter.draft(session, Choice(3))
    on = torch.zeros(VOCAB, dtype=torch.bool)
    on[drafter.shortlist.ids] = True
    assert draft.probs is not None
    assert draft.probs.shape == (3, VOCAB)
    assert bool((draft.probs[:, ~on] == 0).all())
    assert bool((draft.probs[:, on] > 0).all())
    q = draft.probs[0].double()
    p = torch.softmax(torch.arange(VOCAB, dtype=torch.float64) / 9, 0)
    left = (p - q).clamp_min(0)
    law = torch.minimum(p, q) + (1 - torch.minimum(p, q).sum()) * left / left.sum()
    torch.testing.assert_close(law, p, rtol=0, atol=1e-12)


# The list


def list_of(lengths: Lengths = SHORT, vocab: int = VOCAB) -> tuple[Shortlist, Session]:
    target = tiny_decoder(seed=1, vocab_size=vocab)
    found = target.shortlist(vocab, lambda _: lengths)
    assert found is not None
    return found, Session(target, NoDrafter())


def test_the_head_has_the_rows_of_its_ids() -> None:
    target = tiny_decoder(seed=1)
    drafter = EarlyExitDrafter(target, 2, shorten=short)
    session = prefilled(target, drafter, [30, 31, 39, 3], GREEDY)
    assert drafter.shortlist is not None
    assert drafter.shortlist.follow(session)
    ids = drafter.shortlist.ids
    assert {30, 31, 39, *range(8)} <= set(ids.tolist())
    assert len(set(ids.tolist())) == SHORT.total
    _, whole = target.early(torch.tensor([5]), 2, 3)
    _, some = target.early(torch.tensor([5]), 2, 3, short=True)
    torch.testing.assert_close(some, whole[:, ids], rtol=1e-12, atol=1e-12)


def test_what_was_not_met_for_longest_gives_way() -> None:
    words, session = list_of(Lengths(4, 4))
    session.tokens = [20, 21, 22, 23, 20, 24]
    words.follow(session)
    assert sorted(words.ids.tolist()) == [0, 1, 2, 3, 20, 22, 23, 24]
    assert 21 not in words
    assert 22 in words


def test_ids_that_end_an_answer_are_always_there() -> None:
    words, session = list_of(Lengths(4, 4))
    session.stop_ids = frozenset({2, 38, 39, VOCAB + 5})  # the last of no row
    for first in range(10, 30, 5):
        session.tokens += range(first, first + 5)
        words.follow(session)
        assert {38, 39} <= set(words.ids.tolist())
        assert 38 in words
        assert VOCAB + 5 not in words.ids.tolist()


def test_a_draft_ends_with_the_answer() -> None:
    """The id that ends it is far behind the first ones, and was never met."""
    target = tiny_decoder(seed=1)
    expected = text(plain(tiny_decoder(seed=1), PROMPT, max_tokens=60))
    stop = next(token for token in expected if token >= SHORT.total)
    drafter = ModelDrafter(tiny_decoder(seed=1), VOCAB, shorten=short)
    rounds = generate(Session(target, drafter), PROMPT, max_tokens=60, policy=4, stop_ids=frozenset({stop}))
    assert text(rounds) == expected[: expected.index(stop) + 1]
    assert any(stop in done.draft for done in rounds)


def test_tokens_taken_back_are_read_again() -> None:
    words, session = list_of()
    session.tokens = [20, 21, 22]
    words.follow(session)
    words.crop(1)
    session.tokens = [20, 33]
    words.follow(session)
    assert 33 in words


def test_control_tokens_are_there_before_they_are_met() -> None:
    """They are the last ids of a vocabulary."""
    words, session = list_of()
    session.tokens = [20]
    assert words.follow(session)
    assert {VOCAB - 1, VOCAB - 2} <= set(words.ids.tolist())


# Coverage


def missing(words: Shortlist, session: Session, count: int, of: int, next_id: list[int]) -> bool:
    """Commits `of` tokens, the first `count` of them never met before."""
    for _ in range(count):
        next_id[0] += 1
        session.tokens.append(next_id[0])
    session.tokens += [0] * (of - count)
    return words.follow(session)


def test_the_whole_head_is_used_while_many_words_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlist_module, "MOST_MISSING", MOST_MISSING)
    words, session = list_of(Lengths(4, 32), vocab=400)
    at = [100]
    assert missing(words, session, MOST_MISSING, WINDOW, at)
    assert not missing(words, session, MOST_MISSING + 1, WINDOW, at)
    assert not missing(words, session, FEW_MISSING + 1, WINDOW, at)  # neither many nor few: as before
    assert missing(words, session, FEW_MISSING, WINDOW, at)
    assert missing(words, session, FEW_MISSING + 1, WINDOW, at)
    assert set(words.ids.tolist()) >= {at[0], at[0] - 1}


def test_rows_are_copied_only_while_the_short_head_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlist_module, "MOST_MISSING", MOST_MISSING)
    words, session = list_of(Lengths(4, 32), vocab=400)
    before = words.ids.tolist()
    at = [100]
    assert not missing(words, session, WINDOW, WINDOW, at)
    assert words.ids.tolist() == before
    assert missing(words, session, 0, WINDOW, at)
    assert set(range(at[0] - 31, at[0] + 1)) <= set(words.ids.tolist())


def test_drafts_go_on_with_the_whole_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of words that are all missing is drafted as without a list."""
    monkeypatch.setattr(shortlist_module, "MOST_MISSING", -1)
    monkeypatch.setattr(shortlist_module, "FEW_MISSING", -1)
    counts = []
    for shorten in (short, never):
        target = tiny_decoder(seed=1)
        drafter = EarlyExitDrafter(target, 3, shorten=shorten)
        counts.append(accepted(generate(Session(target, drafter), PROMPT, max_tokens=60, policy=3)))
    assert counts[0] == counts[1]


def test_a_wrong_map_costs_acceptance_and_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def acceptance() -> int:
        target = tiny_decoder(seed=1)
        rounds = generate(
            Session(target, ModelDrafter(tiny_decoder(seed=1), VOCAB, shorten=lambda _: Lengths(20, 16))),
            PROMPT,
            max_tokens=80,
            policy=3,
        )
        assert text(rounds) == text(plain(tiny_decoder(seed=1), PROMPT, max_tokens=80))
        return accepted(rounds)

    right = acceptance()
    source = textwrap.dedent(inspect.getsource(shortlist_module.propose))
    wrong = source.replace("words.ids[likeliest(logits)]", "likeliest(logits) + 1 & 31")
    assert wrong != source
    scope: dict[str, Any] = {**vars(shortlist_module)}
    exec(compile(f"from __future__ import annotations\n{wrong}", "mutant", "exec"), scope)
    monkeypatch.setattr("localspec.engine.drafters.model.propose", scope["propose"])
    assert acceptance() < right / 2


# Lengths and memory


@pytest.mark.parametrize(
    ("vocab", "first"),
    [(128256, LONGEST), (151936, LONGEST), (49152, 24576), (32000, 16000), (31999, None), (40, None)],
)
def test_long_vocabularies_are_shortened(vocab: int, first: int | None) -> None:
    assert usual(vocab) == (None if first is None else Lengths(first, SLOTS))
    assert never(vocab) is None


def test_copies_are_counted_while_a_drafter_has_them() -> None:
    target, own = tiny_decoder(seed=1), tiny_decoder(seed=2)
    assert drafter_bytes(target) == 0
    drafter: Drafter = EarlyExitDrafter(target, 2, shorten=short)
    other = EarlyExitDrafter(target, 1, shorten=short)
    assert other.shortlist is drafter.shortlist  # type: ignore[attr-defined]
    copies = SHORT.slots * TINY["hidden_size"] * 8
    assert drafter_bytes(target) == copies
    assert drafter_bytes(target, own) == copies + own.weights.num_bytes
    del drafter, other
    gc.collect()
    assert drafter_bytes(target) == 0


def test_a_scripted_model_has_no_list() -> None:
    """What cannot be shortened drafts with its whole head."""
    assert ModelDrafter(ScriptedModel(VOCAB), VOCAB, shorten=short).shortlist is None  # type: ignore[arg-type]


def test_a_head_with_a_bias_is_used_whole() -> None:
    target = tiny_decoder(seed=1)
    assert isinstance(target.weights.head, Dense)
    head = replace(target.weights.head, bias=torch.zeros(VOCAB, dtype=torch.float64))
    biased = Decoder(target.arch, replace(target.weights, head=head), target.cache)
    assert biased.shortlist(VOCAB, short) is None
