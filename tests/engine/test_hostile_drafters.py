"""X: whatever a drafter proposes, or however it fails, the text is plain's, in every decoder and format; and a fuzz of
all that may happen to a session while drafters are changed under it.

Counters: of every drafter, drafted = accepted + rejected + ignored.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import pytest
import torch

from localspec.bench.proof import LENGTHS, EveryKind
from localspec.core.errors import Cancelled
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.decode import decode
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.lookup import LookupDrafter, LookupText
from localspec.engine.drafters.mixed import Mixed
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.drafters.temporary import TemporaryDrafter
from localspec.engine.policy.auto import Auto
from localspec.engine.policy.named import Constant
from localspec.engine.policy.probes import Probed
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.protocols import Choice, Draft, Drafter, Offer, Policy, Round
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.engine import test_generic as generic
from tests.support.fakes import (
    Alarm,
    NGramDrafter,
    RandomDrafter,
    ScriptedDrafter,
    ScriptedModel,
    Stateless,
    generate,
    plain,
    scripted_draft_model,
    text,
)
from tests.support.models import TINY, tiny_decoder
from tests.support.packed_models import KINDS, packed_decoder

pytestmark = pytest.mark.heavy

SAMPLED = Sampling(temperature=1.3, seed=5)
PROMPT = [3, 14, 15, 9, 2, 6, 5, 14, 15, 9]
LENGTH = 24
BAD_IDS = (-1, 1 << 40)
GRAFTING = (1, 2, 1)  # draft lengths: short enough that two drafters agree


class Hostile(Stateless):
    """Proposes what `propose` makes of the session and k."""

    kind = "hostile"

    def __init__(self, propose: Callable[[Session, int], Sequence[int]]) -> None:
        self.propose = propose

    def draft(self, session: Session, choice: Choice) -> Draft:
        tokens = list(self.propose(session, choice.k))
        return Draft(torch.tensor(tokens, dtype=torch.long), drafters=(self.kind,) * len(tokens))


class Uncertain(Hostile):
    """Says that its tokens were sampled from probabilities of `value`."""

    def __init__(self, value: float) -> None:
        super().__init__(lambda _, k: [1] * k)
        self.value = value

    def draft(self, session: Session, choice: Choice) -> Draft:
        draft = super().draft(session, choice)
        probs = torch.full((len(draft), session.target.arch.vocab_size), self.value, dtype=torch.float64)
        return Draft(draft.tokens, probs, drafters=draft.drafters)


class Raising(Hostile):
    """Raises in one of its methods, at the third call."""

    def __init__(self, method: str) -> None:
        super().__init__(lambda _, k: [1] * k)
        self.method, self.calls = method, 0

    def count(self, method: str) -> None:
        self.calls += method == self.method
        if self.calls == 3:
            raise RuntimeError("the drafter fell over")

    def offers(self, session: Session, most: int) -> Sequence[Offer]:
        self.count("offers")
        return super().offers(session, most)

    def draft(self, session: Session, choice: Choice) -> Draft:
        self.count("draft")
        return super().draft(session, choice)

    def crop(self, length: int) -> None:  # noqa: ARG002
        self.count("crop")


class Lying(Hostile):
    """Offers tokens that cost nothing and are no ids."""

    def offers(self, session: Session, most: int) -> Sequence[Offer]:  # noqa: ARG002
        tokens = (1, session.target.arch.vocab_size)
        return (Offer(self.kind, 2, tokens),)


def ends_inside(session: Session, k: int) -> list[int]:
    """An end of the answer in the middle, and more behind it."""
    return [next(iter(session.stop_ids), 0) if place == k // 2 else place for place in range(k)]


HARMLESS: dict[str, Callable[[], Drafter]] = {
    "random": lambda: Hostile(lambda session, k: random.Random(len(session.tokens)).choices(range(30), k=k)),
    "constant": lambda: Hostile(lambda _, k: [7] * k),
    "nothing": lambda: Hostile(lambda _, k: []),  # noqa: ARG005
    "an end in the middle": lambda: Hostile(ends_inside),
}
HARMFUL: dict[str, Callable[[], Drafter]] = {
    **{f"id {id}": lambda id=id: Hostile(lambda _, k: [*[1] * (k - 1), id]) for id in BAD_IDS},  # type: ignore[misc]
    "the first id behind the last": lambda: Hostile(lambda session, k: [session.target.arch.vocab_size] * k),
    "an offer of what is no id": lambda: Lying(lambda _, k: [1] * k),
    "too many": lambda: Hostile(lambda _, k: [1] * (k + 300)),
    **{f"raises in {name}": lambda name=name: Raising(name) for name in ("offers", "draft", "crop")},  # type: ignore[misc]
}
DECODERS: dict[str, Callable[[], Any]] = {
    "float64": lambda: tiny_decoder(seed=3),
    "fp32": lambda: tiny_decoder(seed=3, dtype=torch.float32),
    "int8": lambda: packed_decoder(seed=3, kind="int8"),
    "int4": lambda: packed_decoder(seed=3, kind="int4"),
    "generic": lambda: generic.target("gemma3_text"),
}


FEW = ("random", "an end in the middle", "id -1", "raises in draft")  # with the decoder that takes longest


def guarded(hostile: Drafter, *, lookup: bool) -> Guarded:
    """As `attach` has it, alone or behind a look-up."""
    if not lookup:
        return Guarded(hostile)
    found = LookupDrafter()
    return Guarded(Mixed(found, hostile), spare=found)


def counts(rounds: Sequence[Round]) -> dict[str, Counter[str]]:
    """What became of the tokens of every drafter."""
    found: dict[str, Counter[str]] = {}
    for done in rounds:
        assert len(done.drafters) == done.drafted == len(done.draft)
        assert done.tokens[: done.accepted] == done.draft[: done.accepted]
        for position, kind in enumerate(done.drafters):
            tested = position < done.drafted - done.ignored
            fate = "accepted" if position < done.accepted else "rejected" if tested else "ignored"
            found.setdefault(kind, Counter()).update(["drafted", fate])
    return found


def check_counts(rounds: Sequence[Round]) -> None:
    for each in counts(rounds).values():
        assert each["drafted"] == each["accepted"] + each["rejected"] + each["ignored"]
    assert sum(done.accepted for done in rounds) == sum(each["accepted"] for each in counts(rounds).values())


def answer(
    target: Any,
    drafter: Drafter,
    sampling: Sampling,
    stop_ids: frozenset[int] = frozenset(),
    lengths: Sequence[int] = LENGTHS,
) -> list[Round]:
    target.crop(0)
    session, policy = Session(target, drafter), EveryKind(lengths)
    return generate(session, PROMPT, max_tokens=LENGTH, sampling=sampling, policy=policy, stop_ids=stop_ids)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("lookup", [False, True], ids=["alone", "behind a look-up"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in DECODERS for name in (FEW if kind == "generic" else (*HARMLESS, *HARMFUL))],
)
def test_a_hostile_drafter_changes_no_text(kind: str, name: str, lookup: bool):
    """Greedy and seeded, with an end that the plain answer reaches; what it does beyond proposing wrong is a fault, and
    the look-up drafts on."""
    target = DECODERS[kind]()
    for sampling in (Sampling(), SAMPLED):
        target.crop(0)
        whole = text(plain(target, PROMPT, max_tokens=LENGTH, sampling=sampling))
        stop_ids = frozenset({whole[LENGTH * 2 // 3]})
        expected = whole[: whole.index(*stop_ids) + 1]
        drafter = guarded((HARMLESS | HARMFUL)[name](), lookup=lookup)
        rounds = answer(target, drafter, sampling, stop_ids)
        assert text(rounds) == expected
        assert rounds[-1].ended == "stop"
        check_counts(rounds)
        if name in HARMLESS:
            assert drafter.fault is None
        if drafter.fault is not None:
            assert isinstance(drafter.drafter, LookupDrafter) == lookup


@pytest.mark.parametrize("name", HARMFUL)
def test_what_would_end_the_answer_is_a_fault_and_the_drafter_is_let_go(name: str):
    target, drafter = ScriptedModel(23, seed=4), Guarded(HARMFUL[name]())
    rounds = generate(Session(target, drafter), [1, 2, 3], max_tokens=30, policy=3)
    assert text(rounds) == text(plain(ScriptedModel(23, seed=4), [1, 2, 3], max_tokens=30))
    assert drafter.fault is not None
    assert not rounds[-1].draft


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), -1.0, 0.0])
@pytest.mark.parametrize("lookup", [False, True], ids=["alone", "behind a look-up"])
def test_probabilities_that_are_none_are_a_fault_and_never_reach_the_sampler(value: float, lookup: bool):
    """Of a sampled draft: with a NaN every token of it would be kept."""
    drafter = guarded(Uncertain(value), lookup=lookup)
    session = Session(ScriptedModel(23, seed=4), drafter)
    rounds = generate(session, [1, 2, 3], max_tokens=30, sampling=Sampling(temperature=1.0), policy=EveryKind())
    assert "without a probability" in str(drafter.fault)
    assert all(kind == "lookup" for done in rounds for kind in done.drafters)


def almost(text: Sequence[int]) -> LookupDrafter:
    """A look-up in this text with every fifth token another."""
    drafter = LookupDrafter()
    wrong = [(token + (at % 5 == 4)) % TINY["vocab_size"] for at, token in enumerate(text)]
    drafter.refer([LookupText("branch", "", [*PROMPT, *wrong])])
    return drafter


def check_mixed(target: Any, lookup: LookupDrafter, other: Drafter, sampling: Sampling, expected: list[int]) -> None:
    """Both draft, also grafted on one another, and the text is plain's."""
    for lengths in (LENGTHS, GRAFTING):
        drafter = Guarded(Mixed(lookup, other), spare=lookup)
        rounds = answer(target, drafter, sampling, lengths=lengths)
        assert text(rounds) == expected
        assert drafter.fault is None
        assert set(counts(rounds)) == {"lookup", other.kind}  # type: ignore[attr-defined]
        check_counts(rounds)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["float64", "fp32", "int8", "int4"])
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "seeded"])
def test_a_look_up_before_an_early_exit_writes_plain_text_and_both_draft(kind: str, sampling: Sampling):
    target = DECODERS[kind]()
    expected = text(plain(target, PROMPT, max_tokens=LENGTH, sampling=sampling))
    for exit_layer in (1, TINY["num_hidden_layers"] - 1):
        check_mixed(target, almost(expected), EarlyExitDrafter(target, exit_layer), sampling, expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED], ids=["greedy", "seeded"])
def test_a_look_up_before_a_draft_model_writes_plain_text_and_both_draft(kind: str, sampling: Sampling):
    """The draft model is the target's twin, of a family that transformers runs nearly so."""
    target = DECODERS[kind]()
    target.crop(0)
    expected = text(plain(target, PROMPT, max_tokens=LENGTH, sampling=sampling))
    own = generic.draft("gemma3_text") if kind == "generic" else DECODERS[kind]()
    own.crop(0)
    check_mixed(target, almost(expected), ModelDrafter(own, target.arch.vocab_size), sampling, expected)


def test_a_grafted_draft_says_where_it_was_copied_from():
    """Of the round the look-up's offer is known that was grafted on another's draft, and of no round without one."""
    target = tiny_decoder(seed=3)
    expected = text(plain(target, PROMPT, max_tokens=LENGTH))
    own = ModelDrafter(tiny_decoder(seed=3), TINY["vocab_size"])
    rounds = answer(target, Mixed(almost(expected), own), Sampling(), lengths=GRAFTING)
    kinds = [set(done.drafters) for done in rounds]
    assert {"lookup", "model"} in kinds
    for done, drafted_by in zip(rounds, kinds, strict=True):
        assert (done.copied is not None) == ("lookup" in drafted_by)
        if done.copied is not None:
            assert done.copied.origin is not None
            assert done.draft[-1] == done.copied.tokens[done.drafted - 1]


# --- a fuzz

WAYS = {"turn", "rewind", "branch", "new"}  # to a prompt
EVERYTHING = WAYS | {"cut", "switch", "steer", "stop", "length", "context", "cancelled"}


class Ground(NamedTuple):
    """Two decoders of one model, and what may draft for the first beside what drafts for any."""

    target: Any
    fresh: Any
    drafters: Sequence[Callable[[random.Random], Drafter]]


def scripted(dice: random.Random) -> Ground:
    """Models whose logits depend on the whole prefix."""
    vocab, context = dice.choice((5, 11, 23)), dice.choice((14, 40, 90))
    target, fresh = (ScriptedModel(vocab, seed=context, context=context) for _ in range(2))
    blurs: list[dict[str, Any]] = [{}, {"blur": 0.7}, {"context": max(context - 5, 2)}]
    return Ground(
        target,
        fresh,
        [
            lambda dice: ScriptedDrafter([dice.randrange(vocab) for _ in range(context + 9)]),
            *(lambda _, said=said: scripted_draft_model(target, seed=context, **said) for said in blurs),
        ],
    )


def layered(make: Callable[..., Any]) -> Callable[[random.Random], Ground]:
    """Random decoders, drafted for by their own layers, a twin and a smaller model."""
    layers, vocab = TINY["num_hidden_layers"], TINY["vocab_size"]

    def ground(dice: random.Random) -> Ground:
        context = dice.choice((24, 60))
        target, fresh = (make(seed=3, context=context) for _ in range(2))
        return Ground(
            target,
            fresh,
            [
                lambda dice: EarlyExitDrafter(target, dice.randrange(1, layers)),
                lambda _: EarlyExitDrafter(target, layers - 1),
                lambda _: ModelDrafter(make(seed=3, context=context), vocab),
                lambda _: ModelDrafter(make(seed=9, num_hidden_layers=1, context=context - 5), vocab),
            ],
        )

    return ground


@cache
def second(family: str) -> Any:
    return generic.decoder_of(generic.make_model(family))


def of_transformers(family: str) -> Callable[[random.Random], Ground]:
    def ground(_: random.Random) -> Ground:
        target, fresh, own = generic.target(family), second(family), generic.draft(family)
        target.crop(0)

        def draft_model(_: random.Random) -> Drafter:
            own.crop(0)
            return ModelDrafter(own, target.arch.vocab_size)

        return Ground(target, fresh, [draft_model])

    return ground


GROUNDS: dict[str, Callable[[random.Random], Ground]] = {
    "float64": layered(tiny_decoder),
    **{kind: layered(partial(packed_decoder, kind=kind)) for kind in KINDS},
    "generic": of_transformers("gemma3_text"),
}


def any_drafter(dice: random.Random, ground: Ground, texts: Sequence[Sequence[int]]) -> Drafter:
    lookup = LookupDrafter()
    lookup.refer([LookupText(dice.choice(("branch", "file", "chat")), str(at), ids) for at, ids in enumerate(texts)])
    vocab, seed = ground.target.arch.vocab_size, dice.randrange(99)
    makers = [lambda _: NGramDrafter(), lambda _: RandomDrafter(vocab, seed), *2 * ground.drafters]
    hostile = [lambda _, make=make: make() for make in (HARMLESS | HARMFUL).values() if dice.random() < 0.2]
    other = dice.choice([*makers, *hostile])(dice)
    made = dice.choice((Guarded(lookup), Guarded(other), Guarded(Mixed(lookup, other), spare=lookup)))
    return TemporaryDrafter(made, Guarded(LookupDrafter())) if dice.random() < 0.1 else made


def any_policy(dice: random.Random) -> Policy:
    lengths = [dice.randint(1, 9) for _ in range(5)]
    return dice.choice(
        (
            lambda: Constant(dice.randint(0, 9)),
            Auto,
            lambda: Probed(Auto()),
            lambda: EveryKind(lengths),
            lambda: SteerablePolicy("auto", "auto"),
        )
    )()


def any_prompt(
    dice: random.Random, held: list[int], texts: Sequence[Sequence[int]], vocab: int, most: int
) -> tuple[str, list[int]]:
    """Another turn, a rewind, a branch of an earlier text, or something new; sometimes up to the end of the context."""
    kept = {"turn": held, "rewind": held[: dice.randint(0, len(held))], "new": []}
    kept |= {"branch": [*dice.choice(texts)]} if texts else {}
    way = dice.choice(tuple(kept))
    new = [dice.randrange(vocab) for _ in range(dice.choice((1, 3, 7, most)))]
    return way, [*kept[way][: max(most - 8, 0)], *new][:most]


def fuzz(steps: int, seed: int, ground_of: Callable[[random.Random], Ground] = scripted) -> Counter[str]:
    """Steps of one session after another; each step is a prompt and an answer, which may be cancelled or cut behind its
    end, and between two rounds the drafter may change, or be switched off and on. Every token is compared with plain
    decoding's."""
    dice, seen = random.Random(seed), Counter[str]()
    for step in range(steps):
        if step % 50 == 0:
            ground = ground_of(dice)
            target, fresh = ground.target, ground.fresh
            vocab, context = target.arch.vocab_size, target.context
            texts: list[list[int]] = []
            session = Session(target, any_drafter(dice, ground, texts))
        way, prompt = any_prompt(dice, session.tokens, texts, vocab, context - 1)
        sampling = dice.choice((Sampling(), Sampling(temperature=1.2, seed=step)))
        stop_ids = frozenset(dice.sample(range(vocab), dice.choice((0, 0, 1))))
        alarm, most = Alarm(dice.choice((None, None, dice.randint(1, 12)))), dice.randint(1, 14)
        fresh.crop(0)
        expected = plain(fresh, prompt, max_tokens=most, sampling=sampling, stop_ids=stop_ids)
        rounds: list[Round] = []
        session.begin(make_sampler(sampling), stop_ids=stop_ids, cancelled=alarm)
        try:
            for _ in session.prefill(prompt):
                pass
            policy = any_policy(dice)
            for done in decode(session, policy, max_tokens=most):
                rounds.append(done)
                if isinstance(policy, SteerablePolicy) and dice.random() < 0.3:
                    policy.steer(dice.choice(("on", "auto", "off")), dice.choice((3, "auto", "heuristic")))
                    seen["steer"] += 1
                if dice.random() < 0.1:
                    session.drafter = any_drafter(dice, ground, texts)
                    seen["switch"] += 1
            assert text(rounds) == text(expected)
            assert rounds[-1].ended == expected[-1].ended
            seen[str(rounds[-1].ended)] += 1
        except Cancelled:
            assert text(rounds) == text(expected)[: len(text(rounds))]
            seen["cancelled"] += 1
        check_counts(rounds)
        if rounds and dice.random() < 0.2:  # as behind a stop text
            session.rewind(len(session.tokens) - dice.randint(1, len(text(rounds))))
            seen["cut"] += 1
        seen[way] += 1
        assert target.length == max(len(session.tokens) - 1, 0)
        if isinstance(target, ScriptedModel):
            assert target.ids[: target.length] == session.tokens[: target.length]
        texts = [*texts[-2:], list(session.tokens)]
    return seen


def test_150_steps_of_anything_write_plain_text():
    assert set(fuzz(150, seed=1)) >= EVERYTHING


@pytest.mark.slow
def test_10000_steps_of_anything_write_plain_text():
    assert set(fuzz(10_000, seed=2)) >= EVERYTHING


@pytest.mark.parametrize(
    "kind", ["int8", *(pytest.param(kind, marks=pytest.mark.slow) for kind in GROUNDS if kind != "int8")]
)
def test_50_steps_of_anything_over_a_decoder_write_plain_text(kind: str):
    fuzz(50, 3, GROUNDS[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", GROUNDS)
def test_10000_steps_of_anything_over_a_decoder_write_plain_text(kind: str):
    assert set(fuzz(10_000, 4, GROUNDS[kind])) >= EVERYTHING


def test_the_fuzz_sees_a_draft_written_one_position_on(monkeypatch: pytest.MonkeyPatch):
    early = PackedDecoder.early
    monkeypatch.setattr(
        PackedDecoder, "early", lambda self, ids, leave, at, **how: early(self, ids, leave, at + 1, **how)
    )
    with pytest.raises(AssertionError):
        fuzz(150, 3, GROUNDS["int8"])
