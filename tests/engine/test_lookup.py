"""L3: look-up copies from the longest match, the newest first, whatever was rewound; and it never changes a text."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import pytest
import torch

from localspec.core.events import Origin
from localspec.core.requests import MAX_DRAFT
from localspec.engine.cpu.matches import LONGEST, SEEN
from localspec.engine.drafters.lookup import NUM_BUCKETS, LookupDrafter, LookupText, bucket
from localspec.engine.drafters.ngram import Match, NgramFinder, joined
from localspec.engine.protocols import Choice, Offer
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.fakes import ScriptedModel, generate, plain, prefilled, text

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def find() -> NgramFinder:
    return NgramFinder()


# --- the search, against the same in Python


def shared(ids: Sequence[int], text: Sequence[int], end: int) -> int:
    """How many tokens before `end` are the last ones of `ids`."""
    count = 0
    while count < min(len(ids), end, LONGEST) and text[end - 1 - count] == ids[len(ids) - 1 - count]:
        count += 1
    return count


def after(text: list[int], end: int, most: int, *, goes_on: bool) -> list[int]:
    """What follows `end`; a copy of the conversation goes on with what it has copied."""
    longer, found = list(text), []
    for at in range(end, end + most):
        if at >= len(longer) or longer[at] < 0:
            break
        found.append(longer[at])
        if goes_on:
            longer.append(longer[at])
    return found


def expected(ids: list[int], text: list[int], most: int, *, same: bool) -> Match | None:
    lengths = {end: shared(ids, text, end) for end in range(len(text) - 1, 0, -1) if text[end] >= 0}
    best = max(lengths.values(), default=0)
    if best == 0:
        return None
    end = next(at for at, length in lengths.items() if length == best)  # newest first
    voters = [at for at, length in lengths.items() if length >= min(best, 2)][:SEEN]
    tokens = after(text, end, most, goes_on=same)
    # A voter's own text may end in what was copied, so it goes on with the proposal.
    longer = text + tokens if same else text
    ways = [longer[at : at + len(tokens)] for at in voters]
    votes = [sum(way[: i + 1] == tokens[: i + 1] for way in ways) for i in range(len(tokens))]
    return Match(best, end, tuple(tokens), tuple(votes), len(voters))


@pytest.mark.parametrize("alphabet", [1, 2, 3, 7])
def test_the_search_finds_what_a_loop_in_python_finds(alphabet: int, find: NgramFinder) -> None:
    dice = random.Random(alphabet)
    for _ in range(1500):
        ids = array("i", [dice.randrange(alphabet) for _ in range(dice.randint(0, 90))])
        most = dice.randint(0, MAX_DRAFT)
        assert find(ids, ids, most) == expected(list(ids), list(ids), most, same=True)


@pytest.mark.parametrize("alphabet", [1, 2, 3, 7])
def test_no_match_in_other_texts_runs_from_one_into_the_next(alphabet: int, find: NgramFinder) -> None:
    dice = random.Random(10 + alphabet)
    for _ in range(1500):
        ids = [dice.randrange(alphabet) for _ in range(dice.randint(1, 40))]
        texts = [[dice.randrange(alphabet) for _ in range(dice.randint(0, 30))] for _ in range(dice.randint(0, 4))]
        whole, most = joined(texts), dice.randint(0, MAX_DRAFT)
        assert find(array("i", ids), whole, most) == expected(ids, list(whole), most, same=False)


def test_a_repeating_text_goes_on_repeating(find: NgramFinder) -> None:
    ids = array("i", [9, 1, 2, 3, 1, 2, 3, 1])
    found = find(ids, ids, 7)
    assert found is not None
    assert (found.length, found.tokens) == (4, (2, 3, 1, 2, 3, 1, 2))


# --- the drafter


def session_of(drafter: LookupDrafter, tokens: Sequence[int], stop_ids: frozenset[int] = frozenset()) -> Session:
    session = prefilled(ScriptedModel(50, context=len(tokens) + 40), drafter, list(tokens))
    session.stop_ids = stop_ids
    return session


def offered(drafter: LookupDrafter, tokens: Sequence[int], most: int = 4) -> Offer | None:
    return next(iter(drafter.offers(session_of(drafter, tokens), most)), None)


def test_an_offer_says_where_its_tokens_were_copied_from() -> None:
    drafter = LookupDrafter()
    drafter.refer([LookupText("file", "a.txt", [30, 31]), LookupText("file", "b.txt", [1, 2, 3, 4, 5])])
    found = offered(drafter, [7, 1, 2])
    assert found is not None
    assert (found.drafter, found.tokens, found.most) == ("lookup", (3, 4, 5), 3)
    assert found.origin == Origin("file", "b.txt", 2)
    own = offered(LookupDrafter(), [1, 2, 9, 1, 2])
    assert own is not None
    assert own.origin == Origin("conversation", position=2)


def test_the_longest_match_wins_and_of_equal_ones_the_conversation_then_branches_files_and_chats() -> None:
    texts = [LookupText(kind, kind, [1, 2, follows]) for kind, follows in (("chat", 13), ("file", 12), ("branch", 11))]
    drafter = LookupDrafter()
    for left, first in ((3, 11), (2, 12), (1, 13)):
        drafter.refer(texts[:left])
        assert offered(drafter, [8, 1, 2], 1) is not None
        assert offered(drafter, [8, 1, 2], 1).tokens == (first,)  # type: ignore[union-attr]
        assert offered(drafter, [1, 2, 10, 8, 1, 2], 1).tokens == (10,)  # type: ignore[union-attr]
    drafter.refer([*texts, LookupText("chat", "longer", [8, 1, 2, 14])])
    assert offered(drafter, [1, 2, 10, 8, 1, 2], 1).tokens == (14,)  # type: ignore[union-attr]
    drafter.refer(())
    assert offered(drafter, [8, 1, 2], 1) is None


def test_the_newest_of_two_texts_of_a_kind_wins() -> None:
    drafter = LookupDrafter()
    drafter.refer([LookupText("branch", "old", [1, 2, 3]), LookupText("branch", "new", [1, 2, 4])])
    assert offered(drafter, [9, 1, 2]).tokens == (4,)  # type: ignore[union-attr]


def test_an_offer_ends_with_what_ends_an_answer() -> None:
    drafter = LookupDrafter()
    (found,) = drafter.offers(session_of(drafter, [1, 2, 3, 4, 1, 2], frozenset({3})), 4)
    assert found.tokens == (3,)


def test_no_offer_is_longer_than_a_draft_may_be() -> None:
    drafter = LookupDrafter()
    session = session_of(drafter, [1] * 30)
    assert [len(offer.tokens) for offer in drafter.offers(session, 1000)] == [MAX_DRAFT]
    assert [len(offer.tokens) for offer in drafter.offers(session, 3)] == [3]


def test_a_draft_is_the_beginning_of_the_offer_or_of_what_would_be_offered() -> None:
    drafter = LookupDrafter()
    session = session_of(drafter, [1, 2, 3, 4, 1, 2])
    (offer,) = drafter.offers(session, 4)
    for choice in (Choice(2, offer), Choice(2)):
        draft = drafter.draft(session, choice)
        assert draft.tokens.tolist() == [3, 4]
        assert draft.probs is None
        assert draft.drafters == ("lookup", "lookup")
    other = LookupDrafter()
    assert len(other.draft(session_of(other, [1, 2, 3]), Choice(4))) == 0


def test_there_are_few_buckets_and_each_is_reached() -> None:
    matches = [
        Match(length, 1, (5,), (vote,), voters) for length in range(1, 33) for vote, voters in ((1, 1), (2, 2), (0, 3))
    ]
    assert {bucket(match) for match in matches} == set(range(NUM_BUCKETS))


# --- in step with the session


def test_10000_steps_of_rewinding_branching_and_going_on_leave_the_drafter_in_step() -> None:
    """At every step the offer is the one of a fresh drafter with the same tokens."""
    dice, drafter = random.Random(5), LookupDrafter()
    session = Session(ScriptedModel(4, context=200), drafter)
    fresh = LookupDrafter()
    for _ in range(10_000):
        match dice.randrange(4):
            case 0:
                session.rewind(dice.randint(0, len(session.tokens)))
            case 1:
                session.roll_back()
            case _:
                session.commit([dice.randrange(4) for _ in range(dice.randint(1, 3))][: 200 - len(session.tokens)])
        if session.tokens and dice.random() < 0.7:
            fresh.crop(0)
            assert drafter.offers(session, 5) == fresh.offers(session, 5)
            assert list(drafter.ids) == session.tokens


@pytest.mark.parametrize("seed", [None, 3])
def test_whatever_texts_there_are_the_answer_is_plain_decodings(seed: int | None) -> None:
    """Hostile ones too: every id over and over, and the answer itself with every third token another."""
    sampling = Sampling() if seed is None else Sampling(temperature=1.0, seed=seed)
    prompt = [1, 2, 3, 1, 2]
    words = text(plain(ScriptedModel(11, seed=1, context=90), prompt, max_tokens=60, sampling=sampling))
    wrong = [(token + (at % 3 == 0)) % 11 for at, token in enumerate(words)]
    for ids in ([*prompt, *words], [*prompt, *wrong], list(range(11)) * 9, [4] * 50, []):
        for k in (1, 3, MAX_DRAFT):
            drafter = LookupDrafter()
            drafter.refer([LookupText("branch", "", ids)])
            session = Session(ScriptedModel(11, seed=1, context=90), drafter)
            assert text(generate(session, prompt, max_tokens=60, sampling=sampling, policy=k)) == words


def test_an_unchanged_answer_is_drafted_from_its_first_token_on() -> None:
    prompt = [1, 2, 3, 4]
    words = text(plain(ScriptedModel(23, seed=2, context=200), prompt, max_tokens=100))
    drafter = LookupDrafter()
    drafter.refer([LookupText("branch", "", [*prompt, *words])])
    rounds = generate(Session(ScriptedModel(23, seed=2, context=200), drafter), prompt, max_tokens=100, policy=16)
    assert text(rounds) == words
    assert sum(done.accepted for done in rounds) >= 100 - len(rounds)
    assert len(rounds) == 6  # of 17 tokens each


def test_what_it_proposes_lies_on_the_sessions_device() -> None:
    drafter = LookupDrafter()
    session = Session(ScriptedModel(5), drafter, device="meta")
    session.tokens = [1, 2, 1]
    draft = drafter.draft(session, Choice(2))
    assert draft.tokens.device.type == "meta"
    assert draft.tokens.dtype == torch.long


def test_a_session_without_tokens_gets_no_offer() -> None:
    drafter = LookupDrafter()
    assert drafter.offers(Session(ScriptedModel(5), drafter), 4) == ()
