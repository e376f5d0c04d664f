"""A drafter with another tokenizer changes no token of the answer, and is accepted as if it had the target's."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import permutations

import pytest
import torch

from localspec.core.errors import Cancelled
from localspec.engine.decode import decode
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.translated import TranslatedDrafter
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import Choice, Round
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.fakes import ScriptedModel, generate, plain, prefilled
from tests.support.fakes import text as tokens_of
from tests.support.models import tiny_decoder
from tests.support.two_tongues import ASCII, TEXT, TOKENIZERS, Pair, Reciter, reciting, tongue

pytestmark = pytest.mark.heavy

PAIRS = [*permutations([name for name in TOKENIZERS if not name.startswith("unigram")], 2)]
WITH_UNIGRAM = [("byte-level", "unigram"), ("unigram", "byte-level"), ("byte fallback", "unigram with NFKC")]
GREEDY = Sampling()
SEEDED = Sampling(temperature=0.9, seed=5)
LENGTH = 400


def spoken(pair: Pair, k: int, sampling: Sampling = GREEDY) -> list[Round]:
    pair.begin()
    session, stop = Session(pair.target, Guarded(pair.drafter)), frozenset([pair.end])
    found = generate(session, pair.prompt, max_tokens=LENGTH, policy=k, sampling=sampling, stop_ids=stop)
    assert isinstance(session.drafter, Guarded)
    assert session.drafter.fault is None
    return found


def acceptance(rounds: list[Round]) -> float:
    tested = sum(done.drafted - done.ignored for done in rounds)
    return sum(done.accepted for done in rounds) / tested


def undrafted(pair: Pair, sampling: Sampling = GREEDY) -> list[int]:
    fresh = Reciter(pair.target.tongue, pair.target.recited.decode(), end=pair.end, vocab=pair.end + 1)
    said = {"max_tokens": LENGTH, "sampling": sampling, "stop_ids": frozenset([pair.end])}
    return tokens_of(plain(fresh, pair.prompt, **said))


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("target", "drafter"), PAIRS)
def test_what_a_drafter_writes_in_its_own_tokens_is_accepted_in_the_targets(target: str, drafter: str) -> None:
    """The drafter knows the text: what is lost is lost in translation, characters of several tokens included."""
    pair = reciting(target, drafter, TEXT)
    rounds = spoken(pair, 4)
    assert tokens_of(rounds) == undrafted(pair)
    assert pair.target.tongue.pieces.text(tokens_of(rounds)[:-1]) == TEXT.encode()
    assert acceptance(rounds) >= 0.9
    assert len(tokens_of(rounds)) / len(rounds) >= 2.5


@pytest.mark.parametrize(("target", "drafter"), WITH_UNIGRAM)
def test_a_vocabulary_without_bytes_is_translated_too(target: str, drafter: str) -> None:
    pair = reciting(target, drafter, ASCII)
    rounds = spoken(pair, 4)
    assert tokens_of(rounds) == undrafted(pair)
    assert acceptance(rounds) >= 0.9


@pytest.mark.sampled(3)
@pytest.mark.parametrize("k", [1, 2, 7, 16])
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("pair", [("byte fallback", "byte-level"), ("digits in threes", "unigram with NFKC")])
def test_no_token_changes_at_any_draft_length(pair: tuple[str, str], sampling: Sampling, k: int) -> None:
    made = reciting(*pair, TEXT)
    assert tokens_of(spoken(made, k, sampling)) == undrafted(made, sampling)


def test_the_drafters_end_of_turn_is_the_targets() -> None:
    pair = reciting("byte-level", "byte fallback", " The quick brown fox.")
    rounds = spoken(pair, 16)
    assert tokens_of(rounds)[-1] == pair.end
    assert rounds[-1].draft[rounds[-1].accepted - 1] == pair.end
    assert len(rounds) == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "drafted", ["", "😀", "\ud7ff" * 3, " The quick brown fux jumps", "  \n\n", "</s><|im_end|>" * 9]
)
def test_a_drafter_that_writes_something_else_changes_nothing(drafted: str) -> None:
    for names in (("byte-level", "byte fallback"), ("byte fallback", "digits in threes")):
        pair = reciting(*names, TEXT, drafted=drafted)
        assert tokens_of(spoken(pair, 5)) == undrafted(pair)


@pytest.mark.parametrize("seed", range(6))
def test_random_models_draft_for_each_other_without_a_trace(seed: int) -> None:
    """Noise in both: half characters, bytes that are no text, and control tokens, all of them drafted and rejected."""
    pair = reciting(*PAIRS[7 * seed % len(PAIRS)], "")
    vocab, own = pair.target.arch.vocab_size, pair.drafter.decoder.arch.vocab_size
    drafter = TranslatedDrafter(ScriptedModel(own, seed=seed, context=600), pair.translation)  # type: ignore[arg-type]
    pair.begin()
    wild = Session(ScriptedModel(vocab, seed=seed + 50, context=600), drafter)
    rounds = generate(wild, pair.prompt, max_tokens=200, policy=4)
    expected = plain(ScriptedModel(vocab, seed=seed + 50, context=600), pair.prompt, max_tokens=200)
    assert tokens_of(rounds) == tokens_of(expected)


@pytest.mark.slow
def test_real_decoders_in_float64_write_the_same_with_it() -> None:
    pair = reciting("unigram", "unigram with NFKC", "")  # whose every token is text
    vocab, own = pair.target.arch.vocab_size, pair.drafter.decoder.arch.vocab_size
    drafter = TranslatedDrafter(tiny_decoder(seed=4, vocab_size=own), pair.translation)
    for sampling in (GREEDY, SEEDED):
        pair.begin()
        session = Session(tiny_decoder(seed=3, vocab_size=vocab), drafter)
        rounds = generate(session, pair.prompt, max_tokens=120, policy=4, sampling=sampling)
        expected = plain(tiny_decoder(seed=3, vocab_size=vocab), pair.prompt, max_tokens=120, sampling=sampling)
        assert tokens_of(rounds) == tokens_of(expected)
        assert sum(done.drafted for done in rounds) > 0
        session.rewind(0)


def test_sampled_answers_get_certain_drafts() -> None:
    """Exact under rejection, which the law of certain drafts is proven for: the drafter's own probabilities are of
    other tokens."""
    pair = reciting("byte-level", "byte fallback", TEXT)
    session = prefilled(pair.target, pair.drafter, pair.prompt, Sampling(temperature=0.8))
    draft = pair.drafter.draft(session, Choice(4))
    assert len(draft) == 4
    assert draft.probs is None
    torch.manual_seed(0)
    rounds = spoken(pair, 4, Sampling(temperature=0.5))
    assert acceptance(rounds) > 0.5


@pytest.mark.parametrize("names", [("byte-level", "byte fallback"), ("byte fallback", "few merges")])
def test_rewinds_cancels_and_switches_leave_the_text_as_it_is(names: tuple[str, str]) -> None:
    """A random walk: after each step what is committed is a prefix of the plain answer, and it can go on."""
    pair, dice = reciting(*names, TEXT), random.Random(7)
    expected = [*pair.prompt, *undrafted(pair)]
    session = prefilled(pair.target, pair.drafter, pair.prompt)
    for _ in range(150):
        match dice.randrange(6):
            case 0:
                session.rewind(dice.randint(1, len(session.tokens)))
            case 1:
                left = dice.randint(1, 6)

                def soon() -> bool:
                    nonlocal left
                    left -= 1
                    return left < 0

                session.cancelled = soon
                with suppress(Cancelled):
                    list(decode(session, Constant(4), max_tokens=12))
                session.cancelled = lambda: False
            case 2:  # the same prompt again, as a retry reads it
                pair.begin()
                list(session.prefill(pair.prompt))
            case _:
                if len(session.tokens) < len(expected):
                    list(decode(session, Constant(dice.randrange(8)), max_tokens=dice.randint(1, 9)))
                session.rewind(min(len(session.tokens), len(expected)))
        assert session.tokens == expected[: len(session.tokens)]
        held = len(pair.drafter.read)
        assert pair.drafter.decoder.length >= held
        assert pair.drafter.decoder.ids[:held] == pair.drafter.read  # type: ignore[attr-defined]


def test_nothing_is_drafted_where_text_does_not_survive_and_again_where_it_does() -> None:
    """Unigram without bytes has no token for a smile; behind 32 tokens without one it is whole again."""
    smiles = "".join(f" the quick brown fox {'😀' * 3}" for _ in range(8))
    pair = reciting("byte-level", "unigram", smiles + " The quick brown fox jumps over the lazy dog." * 9)
    session = prefilled(pair.target, pair.drafter, pair.prompt)
    rounds = decode(session, Constant(4), max_tokens=len(pair.target.tongue.encode(pair.target.recited.decode())))
    states = [(pair.translation.broken, done.drafted) for done in rounds]
    assert any(broken for broken, _ in states)
    assert not states[-1][0]
    assert sum(drafted for broken, drafted in states if broken) == 0
    assert sum(drafted for _, drafted in states[-20:]) > 20


def test_a_conversation_beyond_its_context_is_not_drafted() -> None:
    pair = reciting("byte-level", "few merges", TEXT, context=64)
    target = Reciter(pair.target.tongue, TEXT, end=pair.end, vocab=pair.end + 1)
    rounds = generate(Session(target, pair.drafter), pair.prompt, max_tokens=LENGTH, policy=4)
    assert tokens_of(rounds)[: len(undrafted(pair))] == undrafted(pair)
    assert rounds[0].drafted > 0
    assert rounds[-1].drafted == 0


def test_its_cache_is_read_once_however_often_it_drafts() -> None:
    """Rows that the drafter computes: what it writes, and what the target wrote otherwise; not the conversation."""
    pair = reciting("byte-level", "byte fallback", TEXT)
    reciter = pair.drafter.decoder
    counted = 0
    forward = reciter.forward

    def counting(ids: torch.Tensor, *given: object, **said: object) -> torch.Tensor:
        nonlocal counted
        counted += len(ids)
        return forward(ids, *given, **said)  # type: ignore[arg-type]

    reciter.forward = counting  # type: ignore[method-assign]
    rounds = spoken(pair, 4)
    own = len(tongue(TOKENIZERS["byte fallback"]()).encode(TEXT))
    assert counted <= 2 * own + 3 * len(rounds)
