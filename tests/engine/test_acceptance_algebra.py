"""L0: acceptance and residual give the target's law exactly, by enumeration in float64.

`accept_one_hot` and `accept_block` are driven themselves: coins and a last draw are the only chance in them, so both
are taken over. The probability of accepting is found by bisection on the coin; the law of the last draw is what
`draw` was handed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import product
from unittest import mock

import pytest
import torch
from torch import Tensor

from localspec.engine import acceptance
from localspec.engine.sampling import likeliest

EXACT = 1e-12
HALVINGS = 52  # of [0, 1): a coin's resolution in float64


def coins(value: Tensor) -> AbstractContextManager[object]:
    return mock.patch.object(torch, "rand", return_value=value)


def decide(p: Tensor, q: Tensor | None, drafted: Tensor, coin: Tensor) -> tuple[Tensor, Tensor]:
    """Accepted lengths [...] under these coins [..., k], and the law [..., vocab] the next token was drawn from."""
    handed: list[Tensor] = []

    def record(probs: Tensor, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG001
        handed.append(probs)
        return probs.argmax(-1)

    with coins(coin), mock.patch.object(acceptance, "draw", record):
        accepted, _ = acceptance.accept_one_hot(p, drafted) if q is None else acceptance.accept_block(p, q, drafted)
    return accepted, handed[0]


def acceptance_probability(p: Tensor, q: Tensor | None, drafted: Tensor, place: int) -> Tensor:
    """The largest coin at `place` that still accepts it, [...], all places before being accepted if they can be."""
    low, high = torch.zeros(drafted.shape[:-1], dtype=p.dtype), torch.ones(drafted.shape[:-1], dtype=p.dtype)
    accepts_nothing = accepts(p, q, drafted, place, low).logical_not()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        kept = accepts(p, q, drafted, place, middle)
        low, high = torch.where(kept, middle, low), torch.where(kept, high, middle)
    return torch.where(accepts_nothing, 0.0, high)


def accepts(p: Tensor, q: Tensor | None, drafted: Tensor, place: int, coin: Tensor) -> Tensor:
    every = torch.zeros(drafted.shape, dtype=p.dtype)
    every[..., place] = coin
    return decide(p, q, drafted, every)[0] > place


def law_when_rejected(p: Tensor, q: Tensor | None, drafted: Tensor, place: int) -> Tensor:
    """The law of the token in place of the draft's, [..., vocab], where it can be rejected at all."""
    every = torch.zeros(drafted.shape, dtype=p.dtype)
    every[..., place] = 1 - torch.finfo(p.dtype).eps
    return decide(p, q, drafted, every)[1]


def pairs(count: int, vocab: int, seed: int) -> tuple[Tensor, Tensor]:
    """p and q [count, vocab] of seven kinds: any, equal, nearly equal, disjoint, one-hot, with holes, far apart."""
    draw = torch.Generator().manual_seed(seed)

    def law(sharpness: float = 1.0) -> Tensor:
        return torch.softmax(sharpness * torch.randn(vocab, generator=draw, dtype=torch.float64), -1)

    def among(chosen: Tensor) -> Tensor:
        kept = law() * torch.zeros(vocab, dtype=torch.float64).index_fill(0, chosen, 1.0)
        return kept / kept.sum()

    def pair(kind: int) -> tuple[Tensor, Tensor]:
        order = torch.randperm(vocab, generator=draw)
        split = int(torch.randint(1, vocab, (), generator=draw))
        p = law()
        return [
            lambda: (p, law()),
            lambda: (p, p.clone()),
            lambda: (p, (p + 1e-9 * law()) / (1 + 1e-9)),
            lambda: (among(order[:split]), among(order[split:])),
            lambda: (among(order[:1]), among(order[-1:]) if split % 2 else law()),
            lambda: (among(order[:split]), among(torch.randperm(vocab, generator=draw)[:split])),
            lambda: (law(8.0), law(8.0)),
        ][kind]()

    made = [pair(number % 7) for number in range(count)]
    return torch.stack([p for p, _ in made]), torch.stack([q for _, q in made])


def check_one_place(count: int, *, greedy_draft: bool) -> None:
    """Σ over drafts x of q(x)·[a(x)·δx + (1 - a(x))·residual] is p; with a greedy draft, for every x by itself."""
    for vocab in range(2, 9):
        p, q = pairs(count, vocab, seed=vocab)
        rows = torch.stack((p, p.flip(-1)), dim=-2)[:, None].expand(-1, vocab, -1, -1)  # [count, draft, 2, vocab]
        drafted = torch.arange(vocab).expand(count, vocab)[..., None]
        sampled = None if greedy_draft else q[:, None, None].expand(-1, vocab, 1, -1)
        a = acceptance_probability(rows, sampled, drafted, 0)[..., None]
        rest = law_when_rejected(rows, sampled, drafted, 0)
        each = a * torch.eye(vocab, dtype=p.dtype) + (1 - a) * torch.where(a < 1, rest, 0.0)
        emitted = each if greedy_draft else (q[..., None] * each).sum(-2)
        assert not emitted.isnan().any()
        assert (emitted - (p[:, None] if greedy_draft else p)).abs().max() <= EXACT


def check_several_places(count: int) -> None:
    """The joint law of three tokens from a certain draft of two: every draft, every rejection, and the bonus row."""
    vocab = 3
    drafts = torch.cartesian_prod(torch.arange(vocab), torch.arange(vocab)).expand(count, -1, -1)
    p, _ = (rows.view(count, 3, vocab) for rows in pairs(3 * count, vocab, seed=1000))
    rows = p[:, None].expand(-1, len(drafts[0]), -1, -1)  # [count, draft, 3, vocab]
    first, second = (acceptance_probability(rows, None, drafts, place) for place in (0, 1))
    instead = [law_when_rejected(rows, None, drafts, place) for place in (0, 1)]
    bonus = decide(rows, None, drafts, torch.zeros(drafts.shape, dtype=p.dtype))[1]
    for case, number in product(range(count), range(len(drafts[0]))):
        x, y = drafts[case, number].tolist()
        a, b = first[case, number], second[case, number]
        law = torch.zeros(vocab, vocab, vocab, dtype=p.dtype)
        if a < 1:
            law += (1 - a) * outer(instead[0][case, number], p[case, 1], p[case, 2])
        if a > 0 and b < 1:
            law[x] += a * (1 - b) * instead[1][case, number][:, None] * p[case, 2]
        if a * b > 0:
            law[x, y] += a * b * bonus[case, number]
        assert (law - outer(*p[case])).abs().max() <= EXACT


class Tree:
    """Conditional laws of p and q for every prefix of a draft of k tokens, `cases` of them, and every such draft."""

    def __init__(self, cases: int, vocab: int, k: int, seed: int) -> None:
        self.vocab, self.k = vocab, k
        self.drafts = torch.tensor([*product(range(vocab), repeat=k)])  # [draft, k]
        nodes = sum(vocab**depth for depth in range(k + 1))
        self.p, self.q = (law.view(cases, nodes, vocab) for law in pairs(cases * nodes, vocab, seed))
        starts = [sum(vocab**depth for depth in range(level)) for level in range(k + 1)]
        at = [starts[level] + self.number(self.drafts[:, :level]) for level in range(k + 1)]
        self.at = torch.stack(at, dim=-1)  # [draft, k + 1]: the nodes on its path
        self.rows_p = self.p[:, self.at]  # [cases, draft, k + 1, vocab]
        self.rows_q = self.q[:, self.at[:, :-1]]
        chances = self.rows_q.gather(-1, self.drafts[None, ..., None].expand(cases, -1, -1, -1)).squeeze(-1)
        self.proposed = chances.prod(-1)  # [cases, draft]: the chance that it is proposed

    def number(self, tokens: Tensor) -> Tensor:
        """The number of a prefix [..., n] among all of its length."""
        return (tokens * self.vocab ** torch.arange(tokens.shape[-1]).flip(-1)).sum(-1)

    def lengths(self) -> tuple[Tensor, list[Tensor]]:
        """The chance of each accepted length [cases, draft, k + 1], and by length the law of the token that follows."""
        chances, laws = [torch.ones_like(self.proposed)], [self.decide(0, 0.0)[1]]
        for length in range(1, self.k + 1):
            low, high = torch.zeros_like(self.proposed), torch.ones_like(self.proposed)
            for _ in range(HALVINGS):
                kept = self.decide(length, (low + high) / 2)[0] >= length
                low, high = torch.where(kept, (low + high) / 2, low), torch.where(kept, high, (low + high) / 2)
            accepted, law = self.decide(length, 0.0)
            chances.append(torch.where(accepted < length, 0.0, high))
            laws.append(law)
        kept = torch.stack(chances, dim=-1)
        refused = (1 - kept[..., 1:]).flip(-1).cumprod(-1).flip(-1)  # all of this length or more
        return kept * torch.cat((refused, torch.ones_like(kept[..., :1])), dim=-1), laws

    def decide(self, length: int, coin: Tensor | float) -> tuple[Tensor, Tensor]:
        """Of every draft, with this coin for one length and coins that refuse every other."""
        drafts = self.drafts.expand(len(self.p), -1, -1)
        every = torch.full(drafts.shape, 1 - torch.finfo(torch.float64).eps, dtype=torch.float64)
        if length:
            every[..., length - 1] = coin
        return decide(self.rows_p, self.rows_q, drafts, every)


def check_blocks(cases: int, *, k: int = 2) -> None:
    """Σ over drafts x of q(x), and lengths, of [what is kept, then the residual, then p] is p's law of k + 1 tokens."""
    vocab = 3
    tree = Tree(cases, vocab, k, seed=1000 + k)
    length, laws = tree.lengths()
    for case in range(cases):
        path = [tree.p[case, node] for node in range(tree.p.shape[1])]
        joint = torch.zeros([vocab] * (k + 1), dtype=torch.float64)
        for number, draft in enumerate(tree.drafts.tolist()):
            for kept in range(k + 1):
                share = tree.proposed[case, number] * length[case, number, kept]
                if share > 0:
                    joint[tuple(draft[:kept])] += share * continued(laws[kept][case, number], draft[:kept], path, k)
        whole = continued(path[0], [], path, k)
        assert (joint - whole).abs().max() <= EXACT, case


def continued(law: Tensor, prefix: list[int], path: list[Tensor], k: int) -> Tensor:
    """The joint law of the next token and of all after it to k + 1, which follow p."""
    if len(prefix) == k:
        return law
    vocab, after = len(law), []
    for token in range(vocab):
        tokens = [*prefix, token]
        start = sum(vocab**depth for depth in range(len(tokens)))
        number = sum(each * vocab**power for power, each in enumerate(reversed(tokens)))
        after.append(law[token] * continued(path[start + number], tokens, path, k))
    return torch.stack(after)


def outer(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a[:, None, None] * b[:, None] * c


def check_residual(count: int) -> None:
    """A law, whatever p and q: sums to one, negative nowhere, a number everywhere, and p where nothing is left."""
    for vocab in range(2, 9):
        p, q = pairs(count, vocab, seed=vocab)
        left = acceptance.residual(p, q)
        assert (left.sum(-1) - 1).abs().max() <= EXACT
        assert (left >= 0).all()
        assert torch.equal(acceptance.residual(p, p.clone()), p)


def check_algebra(count: int) -> None:
    check_residual(count)
    for greedy_draft in (False, True):
        check_one_place(count, greedy_draft=greedy_draft)
    check_several_places(count // 2)
    check_blocks(count // 4)


@pytest.mark.parametrize("greedy_draft", [False, True], ids=["sampled", "greedy"])
def test_the_emitted_token_has_the_targets_law_for_100_pairs_in_every_vocabulary(greedy_draft: bool) -> None:
    check_one_place(100, greedy_draft=greedy_draft)


def test_three_tokens_from_a_certain_draft_of_two_have_the_targets_joint_law() -> None:
    check_several_places(70)


@pytest.mark.parametrize(("k", "cases"), [(1, 70), (2, 70), (3, 14)])
def test_tokens_from_a_block_have_the_targets_joint_law(k: int, cases: int) -> None:
    check_blocks(cases, k=k)


def test_a_block_keeps_at_least_as_much_on_average_as_one_token_after_another_and_often_more() -> None:
    tree = Tree(70, 3, 3, seed=7)
    length, _ = tree.lengths()
    block = (tree.proposed[..., None] * length * torch.arange(4)).sum((-1, -2))
    index = tree.drafts[None, ..., None].expand(70, -1, -1, -1)
    each = (tree.rows_p[..., :-1, :].gather(-1, index) / tree.rows_q.gather(-1, index)).squeeze(-1)
    alone = (tree.proposed * each.nan_to_num(0.0).clamp_max(1).cumprod(-1).sum(-1)).sum(-1)
    assert (block >= alone - EXACT).all()
    assert (block > 1.005 * alone).sum() > 7


def test_a_certain_draft_verified_as_a_block_keeps_as_much_as_one_token_after_another() -> None:
    """So look-up and greedy drafts lose nothing by the cheaper rule."""
    tree = Tree(70, 3, 3, seed=8)
    tree.rows_q = torch.zeros_like(tree.rows_q).scatter(-1, tree.drafts[None, ..., None].expand(70, -1, -1, -1), 1.0)
    length, _ = tree.lengths()
    index = tree.drafts[None, ..., None].expand(70, -1, -1, -1)
    alone = tree.rows_p[..., :-1, :].gather(-1, index).squeeze(-1).cumprod(-1).sum(-1)
    assert ((length * torch.arange(4)).sum(-1) - alone).abs().max() <= EXACT


def test_the_residual_is_a_law_whatever_p_and_q() -> None:
    check_residual(100)


def test_a_draft_that_the_target_excludes_is_never_accepted_even_by_a_coin_of_zero() -> None:
    p = torch.tensor([[0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    q = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    accepted, law = decide(p, q, torch.tensor([0]), torch.zeros(1, dtype=torch.float64))
    assert accepted == 0
    assert torch.equal(law, p[0])


def test_an_equal_draft_is_accepted_by_every_coin() -> None:
    p, _ = pairs(50, 8, seed=3)
    rows = torch.stack((p, p), dim=-2)
    for token in range(8):
        coin = torch.full((50, 1), 1 - torch.finfo(p.dtype).eps, dtype=p.dtype)
        drafted = torch.full((50, 1), token)
        possible = p[:, token] > 0
        assert (decide(rows, rows[:, :1], drafted, coin)[0] == 1)[possible].all()


def test_drawing_is_exact_for_one_hot_laws_and_never_draws_what_has_no_chance() -> None:
    draw = torch.Generator().manual_seed(5)
    hot = torch.eye(6).repeat(2000, 1)
    assert torch.equal(acceptance.draw(hot, draw), hot.argmax(-1))
    half = torch.tensor([0.0, 0.5, 0.0, 0.5]).repeat(20_000, 1)
    assert set(acceptance.draw(half, draw).tolist()) == {1, 3}


@pytest.mark.slow
def test_the_emitted_token_has_the_targets_law_for_1000_pairs_in_every_vocabulary() -> None:
    check_algebra(1000)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_likeliest_is_the_first_of_equals_in_every_row_and_precision(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1, 3, 3, 2], [5, 5, 5, 5], [-torch.inf, -torch.inf, -1, -2]], dtype=dtype)
    assert likeliest(scores).tolist() == [1, 0, 2]
    assert likeliest(torch.cat((scores, scores), 1)[:, 2:]).tolist() == [0, 0, 0]  # rows that do not lie together


def test_the_likeliest_of_numbers_that_a_narrower_precision_cannot_tell_apart() -> None:
    assert likeliest(torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64)).tolist() == [1]
