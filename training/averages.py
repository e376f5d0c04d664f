"""A network begins as an average of words: which answer is meant is mostly said by which words are there.

A classifier that sees only the mean of a question's word vectors learns that in a minute; the whole network, begun with
random numbers, takes an hour to. So what it learned is laid into the network before the training: the vectors into one
half of the embedding, the mean into the first layer's attention, and what tells the answers apart into the other half
of the embedding, at their first tokens, where the head reads it. Joulin et al., arXiv 1607.01759.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from training.dialogue import opening
from training.network import INITIAL_STD, Layer, Network
from training.train import Report
from training.vary import vary

EPOCHS, ROWS, RATE, SMOOTHING = 5, 512, 0.02, 0.1
WORD_STD = 0.1  # only its ratio to the rate matters, for the vectors are normed
MEASURED = 1000  # questions whose means say how large means are
# How loud the mean is beside the token it is added to, the answers beside a mean, and everything random beside both.
MEAN, ANSWERS, RANDOM = 0.2, 1.2, 0.1


class Averages:
    """Predicts the first token of the answer to a question from the mean of the question's normed word vectors."""

    def __init__(self, asked: Sequence[tuple[str, str]], tokenizer: Tokenizer, size: int, seed: int) -> None:
        """asked: questions and answers. size: of a word's vector."""
        self.tokenizer, self.rng = tokenizer, Random(seed)
        first = {answer: tokenizer.encode(answer, add_special_tokens=False).ids[0] for _, answer in asked}
        self.firsts = sorted(set(first.values()))
        place = {token: number for number, token in enumerate(self.firsts)}
        self.asked = [(question, place[first[answer]]) for question, answer in asked]
        torch.manual_seed(seed)
        self.words = nn.Parameter(torch.randn(tokenizer.get_vocab_size(), size) * WORD_STD)
        self.answers = nn.Parameter(torch.randn(len(self.firsts), size) / size**0.5)

    @property
    def steps(self) -> int:
        """How many there are to learn in."""
        return EPOCHS * (len(self.asked) // ROWS)

    @property
    def normed(self) -> Tensor:
        """[vocab, size], each vector of mean square one."""
        return F.rms_norm(self.words, self.words.shape[-1:])

    def means(self, questions: Sequence[str]) -> Tensor:
        """[questions, size]; of everything before the answer, as the network's first token of it sees it."""
        ids = [self.tokenizer.encode(opening(question), add_special_tokens=False).ids for question in questions]
        starts = torch.tensor([0, *map(len, ids[:-1])]).cumsum(0)
        return F.embedding_bag(torch.tensor([token for row in ids for token in row]), self.normed, starts, mode="mean")

    def learn(self, report: Report) -> None:
        """Learns from every question, worded otherwise each time."""
        optimizer = torch.optim.Adam([self.words, self.answers], lr=RATE)
        for step in range(self.steps):
            at = step * ROWS % (len(self.asked) // ROWS * ROWS)
            if at == 0:
                self.rng.shuffle(self.asked)
            some = self.asked[at : at + ROWS]
            scores = self.means([vary(question, self.rng) for question, _ in some]) @ self.answers.T
            wanted = torch.tensor([number for _, number in some])
            loss = F.cross_entropy(scores, wanted, label_smoothing=SMOOTHING)
            optimizer.param_groups[0]["lr"] = RATE * (1 - step / self.steps)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            report(step, loss.item())

    @torch.no_grad()
    def lay_into(self, network: Network) -> None:
        """The network, new so far, chooses the answers' first tokens as this does. Its keys and values together must be
        as wide as a word's vector here, and that half as wide as its states."""
        shape, size = network.shape, self.words.shape[1]
        layers = cast("list[Layer]", list(network.model.layers))
        for layer in layers:
            for quiet in (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.down_proj):
                quiet.weight.mul_(RANDOM)
        loudness = self.means([question for question, _ in self.asked[:MEASURED]]).square().mean().sqrt()
        embedding = network.model.embed_tokens.weight.zero_()
        embedding[:, :size] = self.normed * INITIAL_STD * 2**0.5  # as large as a whole row was
        embedding[self.firsts, :size] *= RANDOM
        embedding[self.firsts, size:] = self.answers * loudness * ANSWERS / 2**0.5
        attention = layers[0].self_attn
        attention.v_proj.weight.copy_(torch.eye(size, shape.hidden_size))
        sharing, head_dim = shape.num_heads // shape.num_kv_heads, shape.head_dim
        for head in range(shape.num_heads):
            out, into = size + head // sharing * head_dim, head * head_dim
            mean = torch.eye(head_dim) * MEAN / sharing
            attention.o_proj.weight[out : out + head_dim, into : into + head_dim] += mean
