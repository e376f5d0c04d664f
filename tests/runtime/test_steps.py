"""Rounds of ids become Steps of text: nothing lost, nothing past a stop string; and turns keep their spelling."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from tokenizers import Tokenizer

from localspec.core.events import Origin, Proposal, Step
from localspec.engine.protocols import Choice, DraftProbabilities, Offer, Round
from localspec.runtime.prompt_reuse import keep_spelling, stretches
from localspec.runtime.steps import StepWriter, overlap
from tests.support.tokenizers import KINDS, gpt2_like

TEXT = "The quick brown fox — 😀 漢字 naïve\n\n    return first + second  # ok"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return gpt2_like()


def plain(*tokens: int, ended: str | None = None) -> Round:
    return Round(tuple(tokens), (), 0, 0.0, 0.0, ended=ended)  # type: ignore[arg-type]


def drafted(tokens: Sequence[int], draft: Sequence[int], accepted: int, **more: object) -> Round:
    return Round(tuple(tokens), tuple(draft), accepted, 0.001, 0.002, **more)  # type: ignore[arg-type]


def in_rounds(ids: Sequence[int], coins: random.Random) -> Iterator[Round]:
    """The ids as a generation would commit them: random drafts, some wrong, the last round ended."""
    at = 0
    while at < len(ids):
        k = coins.randint(0, 6)
        kept = min(coins.randint(0, k), len(ids) - at - 1)
        tokens = ids[at : at + kept + 1]
        draft = [*tokens[:kept], *(coins.randrange(256) for _ in range(k - kept))]
        at += kept + 1
        yield drafted(tokens, draft, kept, ended="length" if at == len(ids) else None)


def texts(steps: Sequence[Step]) -> str:
    return "".join(step.text for step in steps)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_texts_joined_are_the_decoded_text(kind: str):
    tokenizer: Tokenizer = KINDS[kind][0]()
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    for seed in range(50):
        writer = StepWriter(tokenizer)
        steps = [writer.step(done) for done in in_rounds(ids, random.Random(seed))]
        assert texts(steps) == tokenizer.decode(ids)
        assert [token.id for step in steps for token in step.tokens] == ids


@pytest.mark.parametrize("stop", ["fox", "x", "brown fox", "\n\n", "return", "😀", "é", " ", "# ok", "k", "second  #"])
def test_text_ends_before_the_first_stop_string_however_the_tokens_fall(tokenizer: Tokenizer, stop: str):
    """Within a token, across tokens, across rounds; every way of cutting the answer into rounds."""
    ids = tokenizer.encode(TEXT).ids
    whole = tokenizer.decode(ids)
    for seed in range(60):
        writer, steps = StepWriter(tokenizer, [stop, "never seen"]), []
        for done in in_rounds(ids, random.Random(seed)):
            steps.append(writer.step(done))
            if writer.stopped:
                break
        assert writer.stopped == (stop if stop in whole else "")
        assert texts(steps) == whole.split(stop, 1)[0]


@pytest.mark.parametrize("stops", [("fox", "quick"), ("quick", "fox"), ("quick brown", "uick"), ("row", "brown")])
def test_the_earliest_of_several_stop_strings_counts(tokenizer: Tokenizer, stops: tuple[str, ...]):
    """Of those that end in the same token; all in one round or one by one."""
    text = "The quick brown fox"
    ids = tokenizer.encode(text).ids
    for rounds in ([plain(*ids)], [plain(id) for id in ids]):
        writer, steps = StepWriter(tokenizer, stops), []
        for done in rounds:
            steps.append(writer.step(done))
            if writer.stopped:
                break
        whole_at = min(at for at in range(len(ids)) if any(stop in tokenizer.decode(ids[: at + 1]) for stop in stops))
        seen = tokenizer.decode(ids[: whole_at + 1])
        assert texts(steps) == seen[: min(seen.find(stop) for stop in stops if stop in seen)]


def test_tokens_after_a_stop_string_are_not_of_the_answer(tokenizer: Tokenizer):
    """What was cut was never tested: it is ignored, neither accepted nor rejected."""
    ids = tokenizer.encode("a. b. c.").ids
    stop_at = next(at for at in range(len(ids)) if "." in tokenizer.decode(ids[: at + 1]))
    writer = StepWriter(tokenizer, ["."])
    step = writer.step(drafted(ids, ids[:-1], len(ids) - 1))
    assert writer.stopped
    assert [token.id for token in step.tokens] == ids[: stop_at + 1]
    assert step.accepted == stop_at + 1
    assert step.ignored == step.drafted - step.accepted
    assert step.rejected == ()
    assert step.text == "a"


def test_a_stop_string_in_the_targets_own_token_still_counts_the_rejection(tokenizer: Tokenizer):
    writer = StepWriter(tokenizer, ["!"])
    a, b, bang = (tokenizer.encode(text).ids[0] for text in "ab!")
    step = writer.step(drafted([a, bang], [a, b], 1))
    assert (step.text, writer.stopped) == ("a", "!")
    assert (step.accepted, len(step.rejected), step.ignored) == (1, 1, 0)
    assert [token.source for token in step.tokens] == ["draft", "fix"]


def test_what_could_begin_a_stop_string_is_held_and_released_at_the_end(tokenizer: Tokenizer):
    ids = tokenizer.encode("say STO").ids
    for ended in ("stop", "length", "context"):
        writer = StepWriter(tokenizer, ["STOP"])
        steps = [writer.step(plain(id)) for id in ids[:-1]]
        assert "S" not in texts(steps)
        last = writer.step(plain(ids[-1], ended=ended))
        assert texts([*steps, last]) == "say STO"
        assert not writer.stopped


def test_held_text_is_released_once_it_cannot_be_a_stop_string(tokenizer: Tokenizer):
    writer = StepWriter(tokenizer, ["STOP"])
    assert texts([writer.step(plain(id)) for id in tokenizer.encode("STO").ids]) == ""
    assert texts([writer.step(plain(id)) for id in tokenizer.encode("RM").ids]) == "STORM"


def test_half_a_character_is_not_shown_when_the_answer_ends_in_it(tokenizer: Tokenizer):
    """It may go on, and then completes it."""
    ids = tokenizer.encode("az😀").ids[:-1]
    for ended in ("length", "context", "stop"):
        writer = StepWriter(tokenizer, ["zz"])
        steps = [writer.step(plain(id)) for id in ids[:-1]]
        steps.append(writer.step(plain(ids[-1], ended=ended)))
        assert texts(steps) == "az"


@pytest.mark.parametrize("stop", [(), ("zz", "jumps over x", "naïve!")])
@pytest.mark.parametrize("ended", [None, "length"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_goes_on_behind_any_cut_as_if_there_had_been_none(kind: str, ended: str | None, stop: tuple[str, ...]):
    """Cut after every token, those inside a character too; stopped, or ended by the limit."""
    tokenizer: Tokenizer = KINDS[kind][0]()
    ids = tokenizer.encode(TEXT, add_special_tokens=False).ids
    for cut in range(1, len(ids)):
        first, second = StepWriter(tokenizer, stop), StepWriter(tokenizer, stop)
        shown = texts([first.step(plain(id)) for id in ids[: cut - 1]] + [first.step(plain(ids[cut - 1], ended=ended))])
        assert second.resume(ids[:cut], shown)
        rest = texts([second.step(plain(id)) for id in ids[cut:-1]] + [second.step(plain(ids[-1], ended="length"))])
        assert shown + rest == tokenizer.decode(ids)


def test_tokens_that_say_something_else_are_not_gone_on_from(tokenizer: Tokenizer):
    ids = tokenizer.encode("The quick brown").ids
    for said in ("The quick", "The quick brown fox", "", "the quick brown"):
        assert not StepWriter(tokenizer).resume(ids, said)


def test_an_empty_stop_string_stops_nothing(tokenizer: Tokenizer):
    writer = StepWriter(tokenizer, ["", ""])
    assert texts([writer.step(plain(id)) for id in tokenizer.encode("abc").ids]) == "abc"
    assert not writer.stopped


def test_every_token_says_who_wrote_it(tokenizer: Tokenizer):
    a, b, c, d = (tokenizer.encode(text).ids[0] for text in "abcd")
    writer = StepWriter(tokenizer)

    def described(done: Round) -> list[tuple[str, int | None, str | None]]:
        return [(token.source, token.pos, token.alt and token.alt.text) for token in writer.step(done).tokens]

    assert described(plain(a)) == [("plain", None, None)]
    assert described(drafted([a, b, c], [a, b], 2)) == [("draft", 0, None), ("draft", 1, None), ("bonus", None, None)]
    assert described(drafted([a, d], [a, b, c], 1)) == [("draft", 0, None), ("fix", None, "b")]
    assert described(drafted([d], [a, b], 0)) == [("fix", None, "a")]
    assert described(drafted([a, b], [a, b, c], 2, ignored=1, ended="stop")) == [
        ("draft", 0, None),
        ("draft", 1, None),
    ]


def test_rejected_proposals_are_told_in_order(tokenizer: Tokenizer):
    a, b, c, d = (tokenizer.encode(text).ids[0] for text in "abcd")
    step = StepWriter(tokenizer).step(drafted([a, d], [a, b, c], 1))
    assert step.rejected == (Proposal(b, "b"), Proposal(c, "c"))
    assert step.tokens[1].alt == step.rejected[0]
    assert (step.kind, step.drafted, step.accepted, step.ignored) == ("draft", 3, 1, 0)
    assert (step.draft_ms, step.verify_ms) == (1.0, 2.0)


def test_rejected_proposals_carry_the_probabilities_of_their_own_places(tokenizer: Tokenizer):
    a, b, c, d = (tokenizer.encode(text).ids[0] for text in "abcd")
    odds = DraftProbabilities(drafter=(0.9, 0.6, None), target=(0.8, 0.2, 0.1))
    step = StepWriter(tokenizer).step(drafted([a, d], [a, b, c], 1, probabilities=odds))
    assert step.rejected == (Proposal(b, "b", 0.6, 0.2), Proposal(c, "c", None, 0.1))
    assert step.tokens[1].alt == step.rejected[0]


@pytest.mark.parametrize("stops", [(), (".",), ("fox", "  "), ("\n",)])
def test_drafted_is_accepted_rejected_and_ignored_in_every_step(tokenizer: Tokenizer, stops: tuple[str, ...]):
    ids = tokenizer.encode(TEXT * 3).ids
    for seed in range(100):
        writer = StepWriter(tokenizer, stops)
        for done in in_rounds(ids, random.Random(seed)):
            step = writer.step(done)
            assert step.drafted == step.accepted + len(step.rejected) + step.ignored
            assert step.accepted == sum(token.source == "draft" for token in step.tokens)
            own = [token.source for token in step.tokens if token.source != "draft"]
            assert len(own) <= 1
            assert own or writer.stopped
            if writer.stopped:
                break


def test_overlap_is_how_much_could_begin_the_stop_string():
    assert overlap("xab", "abc") == 2
    assert overlap("abab", "abac") == 2
    assert overlap("abc", "abc") == 0  # whole ones are found, not held
    assert overlap("", "abc") == 0
    assert overlap("aaa", "aab") == 2


CONTROL = {90, 91, 92}
TEXT_OF = {1: "a", 2: "b", 12: "ab", 21: "ba", 3: "c", 123: "abc", 90: "<s>", 91: "<u>", 92: "</s>", 5: "x"}


def decode(ids: list[int]) -> str:
    return "".join(TEXT_OF[id] for id in ids)


@pytest.mark.parametrize(
    ("known", "ids", "kept"),
    [
        pytest.param([], [90, 1], [90, 1], id="nothing known"),
        pytest.param([90, 1, 2], [90, 1, 2, 92, 3], [90, 1, 2, 92, 3], id="the same and more"),
        pytest.param([90, 1, 2], [90, 1, 2], [90, 1, 2], id="the same"),
        pytest.param([90, 91, 1, 2], [90, 91, 1, 2, 92], [90, 91, 1, 2, 92], id="a turn is closed"),
        pytest.param([90, 5, 91, 1, 2, 92], [90, 5, 91, 12, 92, 3], [90, 5, 91, 12, 92, 3], id="another first token"),
        pytest.param([90, 1, 2, 3], [90, 1, 2, 3, 92, 1], [90, 1, 2, 3, 92, 1], id="grows after a control token"),
        pytest.param([90, 1, 2, 92, 3], [90, 1, 3, 92, 3], [90, 1, 3, 92, 3], id="changed words"),
        pytest.param([90, 1, 2, 92, 1, 2], [90, 5, 92, 12], [90, 5, 92, 12], id="nothing after changed words"),
        pytest.param([90, 1, 2, 92], [91, 1, 2, 92], [91, 1, 2, 92], id="another control token"),
        pytest.param([90, 1, 2, 92, 3], [90], [90], id="shorter"),
    ],
)
def test_known_spelling_is_kept_up_to_the_first_change(known: list[int], ids: list[int], kept: list[int]):
    assert keep_spelling(known, ids, CONTROL, decode) == kept


def test_a_models_own_spelling_of_its_answer_is_kept():
    """It wrote a, bc as a|b|c; encoding its text gives a|bc."""
    text_of = {1: "a", 2: "b", 3: "c", 23: "bc", 90: "<s>", 92: "</s>", 5: "x"}

    def words(ids: list[int]) -> str:
        return "".join(text_of[id] for id in ids)

    known = [90, 5, 92, 1, 2, 3]
    assert keep_spelling(known, [90, 5, 92, 1, 23, 92, 5], CONTROL, words) == [*known, 92, 5]
    assert keep_spelling(known, [90, 5, 92, 1, 23, 23, 92], CONTROL, words) == [90, 5, 92, 1, 23, 23, 92]


def test_kept_ids_always_have_the_text_that_was_asked_for(tokenizer: Tokenizer):
    """2,000 random conversations, spelled at random and edited at random."""
    coins, controls = random.Random(0), {tokenizer.token_to_id(name) for name in ("<|im_start|>", "<|im_end|>")}
    start, end = sorted(controls)

    def spell(text: str) -> list[int]:
        """Any spelling: cut at random places and each part encoded."""
        cuts = sorted({0, len(text), *(coins.randrange(len(text) + 1) for _ in range(3))})
        return [id for a, b in pairwise(cuts) for id in tokenizer.encode(text[a:b]).ids]

    def whole(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    kept_some = 0
    for _ in range(2000):
        turns = [coins.choice(["the fox", "hello there", "quick brown", "def add(first)"]) for _ in range(4)]
        known = [id for turn in turns for id in (start, *spell(turn), end)]
        edited = [turn if coins.random() < 0.8 else turn + "!" for turn in turns] + ["more"]
        ids = [id for turn in edited for id in (start, *tokenizer.encode(turn).ids, end)]
        kept = keep_spelling(known, ids, controls, tokenizer.decode)
        assert whole(kept) == whole(ids)
        assert len(stretches(kept, controls)) == len(stretches(ids, controls))
        shared = next((at for at, (a, b) in enumerate(zip(turns, edited, strict=False)) if a != b), 4)
        after = stretches(ids, controls)[3 * shared + 3 :]
        assert stretches(kept, controls)[3 * shared + 3 :] == after  # never across changed text
        kept_some += kept != ids
    assert kept_some > 300


def test_stretches_are_cut_before_and_after_control_tokens():
    assert stretches([90, 1, 2, 91, 92, 3], CONTROL) == [[90], [1, 2], [91], [92], [3]]
    assert stretches([], CONTROL) == []


def test_who_drafted_each_token_and_where_it_was_copied_from_stand_in_the_step(tokenizer: Tokenizer):
    a, b, c = (tokenizer.encode(text).ids[0] for text in "abc")
    kinds, origin = ("early-exit", "lookup", "lookup"), Origin("file", "notes.md", 7)
    choice = Choice(3, Offer("lookup", 3, (a, b, c), origin=origin))
    done = drafted([a, b, a], [a, b, c], 2, drafters=kinds, choice=choice)
    step = StepWriter(tokenizer).step(done, 40)
    assert (step.drafters, step.origin, step.position) == (kinds, origin, 40)
    assert [token.drafter for token in step.tokens] == ["early-exit", "lookup", ""]
    grafting = Choice(1, Offer("early-exit", 9), graft=choice.offer)
    grafted = StepWriter(tokenizer).step(drafted([a, b, a], [a, b, c], 2, drafters=kinds, choice=grafting))
    assert grafted.origin == origin, "of what was grafted, too"
    alone = StepWriter(tokenizer).step(drafted([a, b], [a], 1, drafters=kinds[:1], choice=grafting))
    assert alone.origin is None, "nothing was grafted after all"
    bare = StepWriter(tokenizer).step(Round((a,), (), 0, 0.0, 0.0, choice=choice))
    assert (bare.drafters, bare.origin) == ((), None), "nothing was copied after all"
