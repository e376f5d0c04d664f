"""L1: what is sampled follows the target's law: the joint law of the first three tokens over a Markov table, V = 3.

The expected law comes from a shaping written here, in plain Python, not from the engine's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from localspec.engine import acceptance
from localspec.engine.decode import decode
from localspec.engine.drafters import mixed
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.lookup import LookupDrafter, LookupText
from localspec.engine.drafters.mixed import Mixed
from localspec.engine.lengths import Shorten, never
from localspec.engine.policy.named import Constant
from localspec.engine.protocols import PLAIN, Choice, Offer, Policy, Round, Sampler
from localspec.engine.samplers import Rejection, Seeded
from localspec.engine.sampling import Sampling, likeliest_mass, shape, sortable
from localspec.engine.session import Session
from tests.support.fakes import ScriptedModel, scripted_draft_model
from tests.support.models import tiny_decoder

pytestmark = pytest.mark.heavy

V = 3
WANTED = 3
FULL = 200_000
ENOUGH = 700  # of the engine's own loop, which takes a hundred times as long for one
FALSE_ALARM = 1e-6  # chi-square tail, for each check
BIAS_TO_SEE = 0.05  # total variation of the mildest bug that must be flagged
TARGET = torch.tensor([[1.2, 0.1, -0.7], [-0.4, 0.9, 0.3], [0.5, -1.1, 0.8]], dtype=torch.float64)
DRAFT = torch.tensor([[-0.2, 0.8, 0.1], [0.7, -0.3, 0.4], [0.2, 0.6, -0.9]], dtype=torch.float64)
SHAPES = (
    Sampling(temperature=1.0),
    Sampling(temperature=0.7, top_k=2),
    Sampling(temperature=1.3, top_p=0.8),
)
COMBINATIONS = list(product((1, 2, 3, 4), SHAPES, (False, True)))
EVERY_PAIR = (0, 0, 1, 0, 2, 1, 1, 2, 2, 0)


def shaped(logits: Iterable[float], sampling: Sampling) -> list[float]:
    """Temperature, then top-k, then top-p, as their papers say."""
    scores = [score / sampling.temperature for score in logits]
    order = sorted(range(len(scores)), key=lambda token: -scores[token])
    kept = set(order[: sampling.top_k or len(order)])
    weights = [math.exp(score) if token in kept else 0.0 for token, score in enumerate(scores)]
    mass = sum(weights)
    nucleus, before = set(), 0.0
    for token in order:
        if before < (sampling.top_p or 1.0):
            nucleus.add(token)
        before += weights[token] / mass
    weights = [weight if token in nucleus else 0.0 for token, weight in enumerate(weights)]
    return [weight / sum(weights) for weight in weights]


def joint(sampling: Sampling, logits: Callable[[list[int]], Iterable[float]]) -> Tensor:
    """The law [27] of three tokens, each given all before it."""
    law = torch.zeros(V, V, V, dtype=torch.float64)
    for a, b, c in product(range(V), repeat=3):
        first, second, third = (shaped(logits(before), sampling) for before in ([], [a], [a, b]))
        law[a, b, c] = first[a] * second[b] * third[c]
    return law.flatten()


def markov(sampling: Sampling) -> Tensor:
    """The joint law of TARGET's chain, after token 0."""
    return joint(sampling, lambda before: TARGET[before[-1] if before else 0].tolist())


def check_law(samples: Tensor, expected: Tensor) -> None:
    """samples [n, 3]. Impossible cells are empty, chi-square over the others, total variation scaled with √n."""
    n = len(samples)
    cells = samples @ torch.tensor([V * V, V, 1])
    counts = torch.bincount(cells, minlength=V**3).double()
    possible = expected > 0
    assert counts[~possible].sum() == 0, "a token that has no chance was sampled"
    wanted = n * expected[possible]
    statistic = float(((counts[possible] - wanted).square() / wanted).sum())
    tail = chi2.sf(statistic, int(possible.sum()) - 1)
    assert tail > FALSE_ALARM, f"chi-square {statistic:.1f}"
    distance = float((counts / n - expected).abs().sum() / 2)
    bound = 0.01 * math.sqrt(FULL / n)
    assert distance < bound, f"total variation {distance:.4f}, bound {bound:.4f}"


def speculate(
    sampling: Sampling, k: int, n: int, *, greedy_draft: bool, seed: int = 0, told: Tensor | None = None
) -> Tensor:
    """The first three tokens [n, 3] of n speculative decodings at once, in float32 as the engine does it.

    `told`: the q that acceptance is told instead of the one that was sampled from; the bug this file must see.
    """
    generator = torch.Generator().manual_seed(seed)
    p, q = shape(TARGET.float(), sampling), shape(DRAFT.float(), sampling)
    told = q if told is None else told
    out = torch.zeros(n, WANTED + 1, dtype=torch.long)  # the last column takes what is not wanted
    last, filled, steps = torch.zeros(n, dtype=torch.long), torch.zeros(n, 1, dtype=torch.long), torch.arange(k + 1)
    while filled.min() < WANTED:
        drafted = [last]
        for _ in range(k):
            law = q[drafted[-1]]
            drafted.append(law.argmax(-1) if greedy_draft else acceptance.draw(law, generator))
        states = torch.stack(drafted, dim=-1)
        drafts, before = states[:, 1:], states[:, :-1]
        if greedy_draft:
            accepted, last = acceptance.accept_one_hot(p[states], drafts, generator)
        else:
            accepted, last = acceptance.accept_block(p[states], told[before], drafts, generator)
        emitted = torch.cat((drafts, drafts[:, :1]), dim=-1).scatter(-1, accepted[:, None], last[:, None])
        place = torch.where(steps <= accepted[:, None], filled + steps, WANTED).clamp_max(WANTED)
        out.scatter_(-1, place, emitted)
        filled += accepted[:, None] + 1
    return out[:, :WANTED]


def through_the_loop(
    session: Session, sampler: Callable[[int], Sampler], k: int, n: int, policy: Policy | None = None
) -> Tensor:
    """The first three tokens [n, 3] of n generations after token 0 on one session, rewound each time."""
    samples = []
    for number in range(n):
        session.begin(sampler(number))
        for _ in session.prefill([0]):
            pass
        tokens: list[int] = []
        for done in decode(session, policy or Constant(k), max_tokens=WANTED + k):
            tokens += done.tokens
            if len(tokens) >= WANTED:
                break
        samples.append(tokens[:WANTED])
    return torch.tensor(samples)


def scripted_session() -> Session:
    target = ScriptedModel(V, table=TARGET)
    return Session(target, scripted_draft_model(target, table=DRAFT))


def check_tensor_program(k: int, sampling: Sampling, n: int, *, greedy_draft: bool) -> None:
    check_law(speculate(sampling, k, n, greedy_draft=greedy_draft), markov(sampling))


def check_loop(k: int, sampling: Sampling, n: int, *, greedy_draft: bool) -> None:
    generator = torch.Generator().manual_seed(17)
    sampler = Rejection(sampling, generator, greedy_draft=greedy_draft)
    check_law(through_the_loop(scripted_session(), lambda _: sampler, k, n), markov(sampling))


def check_seeds(k: int, sampling: Sampling, n: int) -> None:
    check_law(through_the_loop(scripted_session(), lambda n: Seeded(sampling, n), k, n), markov(sampling))


class Grafting:
    """Has k tokens drafted by the drafter that samples, and grafts on them what a look-up offers; counts the grafts."""

    def __init__(self, k: int) -> None:
        self.k, self.grafts = k, 0

    def choose(self, most: int, offers: Callable[[], Sequence[Offer]]) -> Choice:
        found = offers() if most > 0 else ()
        if not found:
            return PLAIN
        graft = next((one.first(most) for one in found if one.tokens), None)
        return Choice(min(self.k, most), found[-1], graft)

    def observe(self, done: Round) -> None:
        self.grafts += done.copied is not None


def check_grafts(k: int, sampling: Sampling, n: int) -> None:
    """Sampled drafts with certain tokens behind them, of a text in which every pair of tokens stands."""
    target, lookup, policy = ScriptedModel(V, table=TARGET), LookupDrafter(), Grafting(k)
    lookup.refer([LookupText("file", "", EVERY_PAIR)])
    session = Session(target, Mixed(lookup, scripted_draft_model(target, table=DRAFT)))
    sampler = Rejection(sampling, torch.Generator().manual_seed(31))
    check_law(through_the_loop(session, lambda _: sampler, k, n, policy), markov(sampling))
    assert policy.grafts > n / 10


def check_early_exit(n: int, shorten: Shorten = never) -> None:
    """Rejection sampling over a real decoder whose first layer drafts: exit states and shared cache under the law."""
    sampling = Sampling(temperature=1.6)
    decoder = tiny_decoder(vocab_size=V, hidden_size=8, intermediate_size=8, num_hidden_layers=2, context=16)

    def logits(before: list[int]) -> list[float]:
        decoder.crop(0)
        row: list[float] = decoder.forward(torch.tensor([0, *before]), last_only=True)[0].tolist()
        return row

    expected = joint(sampling, logits)
    decoder.crop(0)
    sampler = Rejection(sampling, torch.Generator().manual_seed(23))
    session = Session(decoder, EarlyExitDrafter(decoder, 1, shorten=shorten))
    check_law(through_the_loop(session, lambda _: sampler, 2, n), expected)


def name(combination: tuple[int, Sampling, bool]) -> str:
    k, sampling, greedy_draft = combination
    return f"k{k}-T{sampling.temperature}-{'greedy' if greedy_draft else 'sampled'}"


@pytest.mark.parametrize("spread", [0.0, 0.5, 4.0, 20.0])
@pytest.mark.parametrize("mass", [1e-9, 0.5, 0.95, 0.9999999])
def test_the_likeliest_tokens_of_a_mass_are_those_of_sorting_all_ties_included(spread: float, mass: float):
    logits = (spread * torch.randn(5, 4000, generator=torch.Generator().manual_seed(7))).round(decimals=1)
    probs = logits.softmax(-1)
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    outside = ordered.cumsum(-1) - ordered >= mass
    assert torch.equal(likeliest_mass(probs, mass), probs.masked_fill(outside.scatter(-1, order, outside), 0))
    assert torch.equal(likeliest_mass(probs[0], mass), likeliest_mass(probs, mass)[0])


def test_of_a_peaked_row_few_tokens_are_sorted():
    probs = (8 * torch.randn(1, 50_000, generator=torch.Generator().manual_seed(7))).softmax(-1)
    columns = sortable(probs, 0.95)
    assert isinstance(columns, Tensor)
    assert columns.numel() < 500


@pytest.mark.parametrize("combination", COMBINATIONS, ids=name)
def test_20_000_samples_have_the_targets_joint_law(combination: tuple[int, Sampling, bool]) -> None:
    """Fixed seed. A right sampler under a fresh seed fails a combination with probability 1e-6 by chi-square, and
    under 1e-5 by total variation (mean 0.014, bound 0.032): 24 combinations, under 3e-4 in all."""
    k, sampling, greedy_draft = combination
    check_tensor_program(k, sampling, FULL // 10, greedy_draft=greedy_draft)


@pytest.mark.slow
@pytest.mark.parametrize("combination", COMBINATIONS, ids=name)
def test_200_000_samples_have_the_targets_joint_law(combination: tuple[int, Sampling, bool]) -> None:
    """Fixed seed. As above: 1e-6 by chi-square and under 1e-5 by total variation (mean 0.0045, bound 0.01)."""
    k, sampling, greedy_draft = combination
    check_tensor_program(k, sampling, FULL, greedy_draft=greedy_draft)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("k", "sampling", "greedy_draft"),
    [(1, SHAPES[0], False), (2, SHAPES[1], False), (3, SHAPES[2], False), (4, SHAPES[0], True)],
    ids=["k1", "k2-top-k", "k3-top-p", "k4-greedy"],
)
def test_the_loop_itself_samples_the_targets_joint_law(k: int, sampling: Sampling, greedy_draft: bool) -> None:
    """As many generations through Session, DraftModel and decode as kill every mutant of this level. Fixed seed; false
    alarm 1e-6 by chi-square, under 1e-5 by total variation (bound 0.17), each."""
    check_loop(k, sampling, ENOUGH, greedy_draft=greedy_draft)


@pytest.mark.slow
def test_texts_under_different_seeds_have_the_targets_joint_law() -> None:
    """Seeds 0..699, shared noise. Fixed; false alarm 1e-6 by chi-square if seeds were drawn, as above."""
    check_seeds(3, SHAPES[1], ENOUGH)


@pytest.mark.slow
def test_early_exit_samples_the_targets_joint_law() -> None:
    """Generations of a real decoder. Fixed seed; false alarm 1e-6 by chi-square."""
    check_early_exit(ENOUGH)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sampling", SHAPES[:2], ids=["all", "top-k"])
def test_looked_up_drafts_leave_samples_the_targets_joint_law(sampling: Sampling) -> None:
    """Copies of a text in which every pair of tokens stands. Fixed seed; false alarm 1e-6 by chi-square, each."""
    drafter, sampler = LookupDrafter(), Rejection(sampling, torch.Generator().manual_seed(29))
    drafter.refer([LookupText("file", "", EVERY_PAIR)])
    session = Session(ScriptedModel(V, table=TARGET), drafter)
    check_law(through_the_loop(session, lambda _: sampler, 3, ENOUGH), markov(sampling))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("k", "sampling"), [(1, SHAPES[0]), (2, SHAPES[1])], ids=["k1", "k2-top-k"])
def test_grafted_drafts_leave_samples_the_targets_joint_law(k: int, sampling: Sampling) -> None:
    """Fixed seed; false alarm 1e-6 by chi-square, each."""
    check_grafts(k, sampling, ENOUGH)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "sampling"), [*product((1, 2), SHAPES)])
def test_grafted_drafts_leave_20_000_samples_the_targets_joint_law(k: int, sampling: Sampling) -> None:
    """Fixed seed; false alarm 1e-6 by chi-square, each."""
    check_grafts(k, sampling, FULL // 10)


def test_grafted_tokens_that_are_not_told_to_be_certain_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        mixed, "one_hot_rows", lambda tokens, like: torch.full_like(like[:1], 1 / V).repeat(len(tokens), 1)
    )
    with pytest.raises(AssertionError, match="chi-square"):
        check_grafts(1, SHAPES[0], ENOUGH)


@pytest.mark.slow
def test_texts_under_20_000_seeds_have_the_targets_joint_law() -> None:
    """As above (bound 0.032)."""
    check_seeds(3, SHAPES[1], FULL // 10)


@pytest.mark.slow
@pytest.mark.parametrize("combination", COMBINATIONS, ids=name)
def test_the_loop_itself_samples_the_targets_joint_law_20_000_times(combination: tuple[int, Sampling, bool]) -> None:
    """Fixed seed; false alarm 1e-6 by chi-square, under 1e-5 by total variation (bound 0.032), each."""
    k, sampling, greedy_draft = combination
    check_loop(k, sampling, FULL // 10, greedy_draft=greedy_draft)


@pytest.mark.slow
def test_early_exit_samples_the_targets_joint_law_20_000_times() -> None:
    """Fixed seed; false alarm 1e-6."""
    check_early_exit(FULL // 10)


def test_a_bias_of_a_twentieth_is_flagged() -> None:
    """A sampler that tells acceptance a q it did not sample from, mild enough to be off by 0.05 in total variation.

    By how much it is off is measured on 400,000 samples first, so the test knows what it claims.
    """
    sampling, told = SHAPES[0], shape(DRAFT.float(), Sampling(temperature=1.4))
    many = speculate(sampling, 2, 2 * FULL, greedy_draft=False, seed=1, told=told)
    law = torch.bincount(many @ torch.tensor([V * V, V, 1]), minlength=V**3).double() / len(many)
    assert abs(float((law - markov(sampling)).abs().sum() / 2) - BIAS_TO_SEE) < 0.01
    for n in (FULL // 10, FULL):
        with pytest.raises(AssertionError, match="chi-square"):
            check_law(speculate(sampling, 2, n, greedy_draft=False, told=told), markov(sampling))
