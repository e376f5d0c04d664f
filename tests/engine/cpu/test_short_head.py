"""A head of fewer words on the CPU engine: its logits are the whole head's, bit for bit, and so is every text."""

from __future__ import annotations

import pytest
import torch

from localspec.engine import shortlist as shortlist_module
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.formats import PackedFormat
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.lengths import Lengths
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from localspec.engine.shortlist import drafter_bytes
from tests.support.fakes import GREEDY, generate, text
from tests.support.packed_models import KINDS, packed_decoder, random_ids, threaded

pytestmark = pytest.mark.heavy

VOCAB = 300
SHORT = Lengths(64, 64)
SEEDED = Sampling(temperature=0.9, seed=7)


def short(words: int) -> Lengths:  # noqa: ARG001 - of any length
    return SHORT


@pytest.fixture(autouse=True)
def always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlist_module, "MOST_MISSING", 10**6)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 3, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_the_whole_heads_bit_for_bit(kind: PackedFormat, rows: int, threads: int) -> None:
    with threaded(threads, seed=1, kind=kind, vocab_size=VOCAB) as decoder:
        words = decoder.shortlist(VOCAB, short)
        assert words is not None
        session = Session(decoder, NoDrafter())
        session.tokens = random_ids(100, vocab=VOCAB).tolist()
        assert words.follow(session)
        assert max(words.ids.tolist()) >= SHORT.total
        ids = random_ids(rows, vocab=VOCAB, seed=2)
        _, whole = decoder.early(ids, 2, 0)
        _, some = decoder.early(ids, 2, 0, short=True)
        assert torch.equal(some, whole[:, words.ids])
        whole = decoder.forward(ids, last_only=True)
        decoder.crop(0)
        some = decoder.forward(ids, last_only=True, short=True)
        assert torch.equal(some, whole[:, words.ids])


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("drafter", ["early exit", "draft model"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_plains_bit_for_bit(kind: PackedFormat, drafter: str, sampling: Sampling) -> None:
    prompt = random_ids(9, vocab=VOCAB).tolist()
    target = packed_decoder(seed=1, kind=kind, vocab_size=VOCAB)
    expected = text(generate(Session(target, NoDrafter()), prompt, max_tokens=80, sampling=sampling))
    target.crop(0)
    if drafter == "early exit":
        made: EarlyExitDrafter | ModelDrafter = EarlyExitDrafter(target, 3, shorten=short)
    else:
        made = ModelDrafter(packed_decoder(seed=1, kind=kind, vocab_size=VOCAB), VOCAB, shorten=short)
    for k in (1, 3, 6):
        rounds = generate(Session(target, made), prompt, max_tokens=80, policy=k, sampling=sampling)
        assert text(rounds) == expected
        assert sum(done.accepted for done in rounds) > 0
        target.crop(0)
        made.crop(0)


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_bytes_are_read_and_the_copies_counted(kind: PackedFormat) -> None:
    decoder = packed_decoder(seed=1, kind=kind, vocab_size=VOCAB)
    row = decoder.weights.head.num_bytes // decoder.weights.head.outputs
    words = decoder.shortlist(VOCAB, short)
    assert words is not None
    assert drafter_bytes(decoder) == SHORT.slots * row

    def read(*, short: bool) -> int:
        before = decoder.bytes_read
        decoder.early(torch.tensor([1]), 2, 0, short=short)
        return decoder.bytes_read - before

    saved = decoder.weights.head.outputs - SHORT.total
    assert read(short=False) - read(short=True) == saved * row
    del words
    assert drafter_bytes(decoder) == 0


def test_lengths_that_are_no_whole_blocks_shorten_nothing() -> None:
    decoder: PackedDecoder = packed_decoder(seed=1, vocab_size=VOCAB)
    assert decoder.shortlist(VOCAB, lambda _: Lengths(65, 64)) is None
    assert decoder.shortlist(VOCAB, lambda _: Lengths(64, 16)) is None
