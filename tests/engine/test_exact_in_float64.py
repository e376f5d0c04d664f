"""L4: in float64, a tiny random decoder says the same under every drafter and k as one token at a time.

In float64 a wide forward differs from narrow ones by 1e-15 and no two scores are that close, so equality is exact.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import cycle

import pytest
import torch

from localspec.bench.proof import EveryKind
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.lookup import LookupDrafter, LookupText
from localspec.engine.drafters.mixed import Mixed
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.policy.auto import Auto
from localspec.engine.policy.named import Constant, Heuristic
from localspec.engine.policy.probes import Probed
from localspec.engine.protocols import Drafter, Policy
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.fakes import GREEDY, NGramDrafter, generate, plain, text
from tests.support.models import TINY, tiny_decoder

pytestmark = pytest.mark.heavy

LAYERS, VOCAB = TINY["num_hidden_layers"], TINY["vocab_size"]
SEED = 1


def looking_up() -> LookupDrafter:
    """In the conversation, and in a text of any tokens."""
    dice, drafter = random.Random(4), LookupDrafter()
    drafter.refer([LookupText("file", "", [dice.randrange(VOCAB) for _ in range(400)])])
    return drafter


PROMPTS, PART = 200, 25  # of the full grid; a part is one test, so every core gets its share
MIXED: dict[str, Callable[[Decoder], Drafter]] = {
    **{
        f"look-up + exit {layer}": lambda target, layer=layer: Mixed(looking_up(), EarlyExitDrafter(target, layer))
        for layer in (1, LAYERS - 1)
    },
    "look-up + another": lambda target: Mixed(looking_up(), DRAFTERS["another"](target)),
}
# "another" also knows fewer ids than the target.
DRAFTERS: dict[str, Callable[[Decoder], Drafter]] = {
    "itself": lambda target: ModelDrafter(tiny_decoder(seed=SEED), VOCAB),  # noqa: ARG005
    "another": lambda target: ModelDrafter(tiny_decoder(seed=9, vocab_size=32, num_hidden_layers=1), VOCAB),  # noqa: ARG005
    **{f"exit {layer}": lambda target, layer=layer: EarlyExitDrafter(target, layer) for layer in range(1, LAYERS)},
    "n-grams": lambda target: NGramDrafter(),  # noqa: ARG005
    "look-up": lambda target: looking_up(),  # noqa: ARG005
    **MIXED,
}
POLICIES: dict[str, Callable[[], Policy]] = {
    "constant": lambda: Constant(3),
    "heuristic": Heuristic,
    "auto": Auto,
    "probed": lambda: Probed(Auto()),
}
SAMPLED = Sampling(temperature=0.9, top_k=20, top_p=0.95, repetition_penalty=1.1, seed=42)


def prompts(count: int) -> list[list[int]]:
    dice = random.Random(count)
    return [[dice.randrange(VOCAB) for _ in range(dice.randint(1, 12))] for _ in range(count)]


def plain_texts(asked: Sequence[list[int]], length: int, sampling: Sampling = GREEDY) -> list[list[int]]:
    session = Session(tiny_decoder(seed=SEED), NoDrafter())
    return [text(generate(session, prompt, max_tokens=length, sampling=sampling)) for prompt in asked]


def check_exact(drafter: str, asked: Sequence[list[int]], expected: Sequence[list[int]], ks: Iterable[int]) -> None:
    """Every prompt under every k."""
    check_cases(drafter, ((k, *case) for k in ks for case in zip(asked, expected, strict=True)))


def check_cases(drafter: str, cases: Iterable[tuple[int, list[int], list[int]]]) -> None:
    """k, a prompt and its plain text. One session answers all, so a rewind stands between any two. Of a mixed drafter
    both parts draft by turns, and what is looked up is grafted on the other's draft."""
    target = tiny_decoder(seed=SEED)
    session = Session(target, DRAFTERS[drafter](target))
    for k, prompt, words in cases:
        rounds = generate(session, prompt, max_tokens=len(words), policy=EveryKind((k,)) if drafter in MIXED else k)
        assert text(rounds) == words
        assert target.length == len(session.tokens) - 1
        if drafter == "itself":
            assert sum(done.accepted for done in rounds) == sum(done.drafted for done in rounds)
            assert len(rounds) == math.ceil(len(words) / (k + 1))


def check_seeded(drafter: str, policy: Callable[[], Policy], prompt: list[int], expected: list[int]) -> None:
    target = tiny_decoder(seed=SEED)
    session = Session(target, DRAFTERS[drafter](target))
    rounds = generate(session, prompt, max_tokens=len(expected), sampling=SAMPLED, policy=policy())
    assert text(rounds) == expected
    if drafter == "itself":  # they share their noise, so equal laws draw equal tokens
        assert all(done.accepted == done.drafted for done in rounds)


@pytest.fixture(scope="module")
def asked() -> list[list[int]]:
    return prompts(8)


@pytest.fixture(scope="module")
def expected(asked: list[list[int]]) -> list[list[int]]:
    return plain_texts(asked, 48)


@pytest.fixture(scope="module")
def expected_sampled(asked: list[list[int]]) -> list[list[int]]:
    return plain_texts(asked[:2], 40, SAMPLED)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_8_prompts_are_answered_as_one_token_at_a_time(
    drafter: str, asked: list[list[int]], expected: list[list[int]]
) -> None:
    """Two under each k; make slow has every prompt under every k."""
    check_cases(drafter, zip(cycle((1, 2, 5, 8)), asked, expected, strict=False))


@cache
def part_of_the_grid(first: int) -> tuple[list[list[int]], list[list[int]]]:
    """25 of the 200 prompts, and their plain texts of 128 tokens: the same for every drafter and k."""
    asked = prompts(PROMPTS)[first : first + PART]
    return asked, plain_texts(asked, 128)


def parts(drafters: Iterable[str], part: int) -> list[tuple[str, int]]:
    """The grid in parts of so many prompts; of a mixed drafter one, since the fuzz goes over those for long."""
    return [(one, first) for one in drafters for first in range(0, part if one in MIXED else PROMPTS, part)]


@pytest.mark.slow
@pytest.mark.parametrize(("drafter", "first"), parts(DRAFTERS, PART))
def test_200_prompts_are_answered_as_one_token_at_a_time(drafter: str, first: int) -> None:
    check_exact(drafter, *part_of_the_grid(first), range(1, 9))


def test_the_texts_are_worth_comparing(expected: list[list[int]]) -> None:
    """Eight prompts, eight answers, and none is a token or two over and over."""
    assert len({tuple(words) for words in expected}) == len(expected)
    assert min(len(set(words[-32:])) for words in expected) >= 3


def test_plain_decoding_is_the_argmax_of_a_forward_over_the_whole_prefix(
    asked: list[list[int]], expected: list[list[int]]
) -> None:
    """A decoder that keeps nothing: every token from position 0, no cache shared between two tokens."""
    for prompt, words in zip(asked[:3], expected[:3], strict=True):
        for length in range(32):
            fresh = tiny_decoder(seed=SEED)
            row = fresh.forward(torch.tensor(prompt + words[:length]))[-1]
            assert int(row.argmax()) == words[length]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_seed_gives_one_text_under_every_drafter_and_policy(
    drafter: str, policy: str, asked: list[list[int]], expected_sampled: list[list[int]]
) -> None:
    for prompt, words in zip(asked, expected_sampled, strict=False):
        check_seeded(drafter, POLICIES[policy], prompt, words)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_a_seed_gives_one_text_under_every_k(k: int, asked: list[list[int]], expected_sampled: list[list[int]]) -> None:
    for drafter in ("another", "exit 2", "n-grams"):
        check_seeded(drafter, lambda: Constant(k), asked[0], expected_sampled[0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "mistral", "sliding_window": 7},
        {"model_type": "qwen2", "num_key_value_heads": 1},
        {"model_type": "qwen3", "head_dim": 16},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
    ],
    ids=["window", "bias", "norms", "scaled positions"],
)
def test_windows_biases_norms_and_scaled_positions_change_nothing(config: dict[str, object]) -> None:
    """The window is shorter than the text and than some drafts' reach, so masks of wide and narrow rows must agree."""
    prompt = prompts(1)[0]
    expected = text(plain(tiny_decoder(seed=2, **config), prompt, max_tokens=40))
    for k in (1, 4, 9):
        target = tiny_decoder(seed=2, **config)
        itself = ModelDrafter(tiny_decoder(seed=2, **config), VOCAB)
        for drafter in (EarlyExitDrafter(target, 2), itself):
            target.crop(0)
            assert text(generate(Session(target, drafter), prompt, max_tokens=40, policy=k)) == expected
