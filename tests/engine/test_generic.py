"""Models that transformers runs: speculative text is plain text, and transformers' own, whatever the cache's layout."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from localspec.bench.proof import EveryKind
from localspec.core.drain import drain
from localspec.core.errors import Cancelled, EngineError
from localspec.core.paths import packaged
from localspec.core.weight_formats import find_format
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.lookup import LookupDrafter, LookupText
from localspec.engine.drafters.mixed import Mixed
from localspec.engine.drafters.model import ModelDrafter
from localspec.engine.generic import IndexedLayer, PositionCache
from localspec.engine.generic_arch import RECURRENT, REWINDING, GenericArch, read_any, read_generic
from localspec.engine.linear import FourBitLinears
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from localspec.loading.footprint import footprint, num_elements
from localspec.loading.generic import far, load_generic
from localspec.loading.plan import Plan
from localspec.loading.self_check.formats import DequantisedReference
from localspec.models.checkpoint import open_snapshot
from tests.support.fakes import Alarm, generate, text
from tests.support.generic_models import (
    ALL,
    NAMED,
    OTHERS,
    STATEFUL,
    VARIANTS,
    VOCAB,
    blurred,
    make_model,
    save_generic,
)

pytestmark = pytest.mark.heavy

CONTEXT = 64
PROMPT = [5, 9, 14, 3, 30, 22, 41, 8, 17, 5, 33]
LENGTH = 16
SAMPLED = Sampling(temperature=0.9, top_k=20, top_p=0.95, repetition_penalty=1.1, seed=42)
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in {**VARIANTS, **OTHERS}]
SLOW_STATES = [pytest.param(name, marks=pytest.mark.slow) for name in STATEFUL if name != "mamba"]


def decoder_of(model: Any, *, quant: str = "fp64", context: int = CONTEXT) -> Any:
    """Through the disk, as it is loaded for anybody."""
    with TemporaryDirectory() as folder:
        snapshot = open_snapshot(save_generic(model, Path(folder) / "model"))
        arch = read_any(snapshot.config)
        assert isinstance(arch, GenericArch)
        return drain(load_generic(snapshot, arch, Plan(find_format(quant), context), stage="weights"))


@cache
def target(family: str) -> Any:
    return decoder_of(make_model(family))


@cache
def draft(family: str) -> Any:
    return decoder_of(blurred(make_model(family), 0.15))


@cache
def theirs(family: str) -> list[int]:
    """transformers' own greedy text."""
    model = make_model(family)
    ids = torch.tensor([PROMPT])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=LENGTH,
        min_new_tokens=LENGTH,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return [int(token) for token in out[0, len(PROMPT) :]]


def plain(family: str, prompt: list[int] = PROMPT, **said: Any) -> list[int]:
    target(family).crop(0)
    return text(generate(Session(target(family), NoDrafter()), prompt, max_tokens=LENGTH, **said))


def session_of(family: str) -> Session:
    target(family).crop(0)
    draft(family).crop(0)
    return Session(target(family), ModelDrafter(draft(family), VOCAB))


def in_transformers(folder: Path) -> Any:
    """A model of a family that our decoder runs, as transformers runs others."""
    snapshot = open_snapshot(folder)
    arch = read_generic(snapshot.config, snapshot.config["model_type"])
    return drain(load_generic(snapshot, arch, Plan(find_format("fp64"), 256), stage="weights"))


@pytest.mark.slow
def test_with_the_weights_of_guide_every_drafter_and_mix_says_what_plain_decoding_says():
    """Real ones, of the built-in model and its draft model, in float64."""
    guide = packaged("assets/guide")
    target, own = (in_transformers(guide / name) for name in ("target", "draft"))
    tokenizer = Tokenizer.from_file(str(guide / "target" / "tokenizer.json"))
    counts = Counter[str]()
    for question in ("What is a drafter?", "How do I change the drafter of a chat?"):
        asked = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        prompt = tokenizer.encode(asked, add_special_tokens=False).ids
        for sampling in (Sampling(), SAMPLED):
            target.crop(0)
            expected = text(generate(Session(target, NoDrafter()), prompt, max_tokens=48, sampling=sampling))
            draft_model, lookup = ModelDrafter(own, target.arch.vocab_size), LookupDrafter()
            for drafter in (lookup, draft_model, Mixed(lookup, draft_model)):
                target.crop(0)
                drafter.crop(0)
                session = Session(target, drafter)
                rounds = generate(session, prompt, max_tokens=48, sampling=sampling, policy=EveryKind())
                assert text(rounds) == expected
                for done in rounds:
                    counts.update(done.drafters)
                    counts["accepted"] += done.accepted
                    counts["rejected"] += done.drafted - done.accepted - done.ignored
    assert min(counts[name] for name in ("lookup", "model", "accepted", "rejected")) > 0


def test_every_family_is_tried_here():
    assert {name.split()[0] for name in ALL} == REWINDING | RECURRENT
    assert {name.split()[0] for name in STATEFUL} == RECURRENT


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", [*NAMED, *SLOW])
def test_speculative_text_is_plain_text_and_transformers_own(family: str):
    """One session under all draft lengths, so a rewind stands between any two; drafts are rejected and accepted."""
    expected = plain(family)
    assert expected == theirs(family)
    session, accepted, rejected = session_of(family), 0, 0
    for k in (2, 7):
        rounds = generate(session, PROMPT, max_tokens=LENGTH, policy=k)
        assert text(rounds) == expected
        assert session.target.length == len(session.tokens) - 1
        accepted += sum(done.accepted for done in rounds)
        rejected += sum(done.drafted - done.accepted for done in rounds)
    assert accepted > 0
    assert rejected > 0
    assert len(set(expected)) >= 3


@pytest.mark.parametrize("family", ["gemma3_text", *SLOW])
def test_looked_up_drafts_change_no_text(family: str):
    """A text that is right but for every fifth token."""
    for sampling in (Sampling(), SAMPLED):
        expected, drafter = plain(family, sampling=sampling), LookupDrafter()
        drafter.refer(
            [
                LookupText(
                    "branch", "", [*PROMPT, *((token + (at % 5 == 4)) % VOCAB for at, token in enumerate(expected))]
                )
            ]
        )
        for k in (2, 16):
            target(family).crop(0)
            rounds = generate(Session(target(family), drafter), PROMPT, max_tokens=LENGTH, sampling=sampling, policy=k)
            assert text(rounds) == expected
            assert 0 < sum(done.accepted for done in rounds) < sum(done.drafted for done in rounds)


@pytest.mark.parametrize("family", ["gemma3_text", *SLOW])
def test_a_seed_gives_one_text_with_and_without_drafts(family: str):
    expected = plain(family, sampling=SAMPLED)
    for k in (2, 5):
        assert text(generate(session_of(family), PROMPT, max_tokens=LENGTH, sampling=SAMPLED, policy=k)) == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", ["bloom", "gemma3_text", "mamba", *SLOW, *SLOW_STATES])
def test_after_a_cancel_and_a_rewind_the_text_is_the_same(family: str):
    """Stopped at every place a cancel is looked at, then the same prompt, a longer and a shorter one."""
    longer = [*PROMPT, 7, 7, 12]
    expected = {tuple(prompt): plain(family, prompt) for prompt in (PROMPT, longer, PROMPT[:6])}
    fresh = family in STATEFUL
    session = Session(target(family), NoDrafter()) if fresh else session_of(family)
    for at in (2, 9):
        with pytest.raises(Cancelled):
            generate(session, PROMPT, max_tokens=LENGTH, policy=3, cancelled=Alarm(at))
        for prompt, words in expected.items():
            assert text(generate(session, prompt, max_tokens=LENGTH, policy=0 if fresh else 3)) == words


@pytest.mark.parametrize("family", ["mamba", *SLOW_STATES])
def test_what_folds_its_past_into_a_state_says_what_transformers_says(family: str):
    assert plain(family) == theirs(family)


def test_a_state_is_kept_from_turn_to_turn():
    """A turn that only adds is not read anew."""
    session = Session(target("mamba"), NoDrafter())
    said = text(generate(session, PROMPT, max_tokens=4))
    session.begin(session.sampler)
    first = next(iter(session.prefill([*PROMPT, *said, 3, 4])))
    assert first.cached == len(PROMPT) + 3


def fp32(family: str, folder: Path, **changes: Any) -> Path:
    return save_generic(make_model(family, **changes).float(), folder)


@pytest.mark.parametrize("family", [*NAMED, *SLOW])
def test_the_plan_counts_what_the_cache_takes(family: str):
    model = make_model(family)
    arch = read_any(model.config.to_dict())
    assert target(family).cache.num_bytes == 8 * arch.kv_elements(CONTEXT)
    assert arch.num_layers == 2
    assert arch.vocab_size == VOCAB
    assert arch.max_context >= 256


def test_a_rope_that_grows_is_turned_as_at_the_end_of_the_context():
    """Its frequencies change at position 128: rows before and after it are turned alike, however they are read."""
    decoder = decoder_of(make_model("phi3 whose rope grows"), context=200)
    ids = torch.arange(150) * 7 % VOCAB
    expected = decoder.at_once(ids)
    got = [decoder.forward(part) for part in ids.split([120, 7, 2, 21])]
    assert torch.allclose(torch.cat(got), expected, rtol=1e-4, atol=1e-4)
    decoder.crop(10)
    assert torch.allclose(decoder.forward(ids[10:14]), expected[10:14], rtol=1e-4, atol=1e-4)
    short = decoder_of(make_model("phi3 whose rope grows"), context=100)
    assert not torch.allclose(short.forward(ids[:20]), expected[:20], rtol=1e-2)


class Spread(FourBitLinears):
    """What four bits stand for, in float32; a bias of 16 bits as well."""

    def linear(self, slabs: Any, shape: tuple[int, int], bias: torch.Tensor | None) -> Any:
        return DequantisedReference(self).linear(slabs, shape, None if bias is None else bias.float())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", ["gpt2", "phi3", *SLOW])
def test_four_bits_compute_what_they_stand_for(family: str, monkeypatch: pytest.MonkeyPatch):
    """Linears have 32 inputs, half a block; GPT-2 has its weights the other way round."""
    model = make_model(family).float()
    quantised = decoder_of(model, quant="nf4")
    monkeypatch.setattr("localspec.loading.generic.quantiser", lambda *_, **__: Spread("nf4", torch.bfloat16))
    reference = decoder_of(model, quant="nf4")
    ids = torch.arange(30) * 11 % VOCAB
    got, expected = quantised.forward(ids).float(), reference.forward(ids).float()
    assert far(got, expected) < 0.1
    assert far(expected, decoder_of(model, quant="fp32").forward(ids)) > 0.1  # nf4 is not nothing


def test_four_bits_take_the_memory_that_is_planned(tmp_path: Path):
    snapshot = open_snapshot(fp32("gpt2", tmp_path / "m", n_embd=128))
    quantised = decoder_of(make_model("gpt2", n_embd=128).float(), quant="nf4")
    planned = footprint(snapshot, find_format("nf4"), CONTEXT).tables
    while_loading = 2 * num_elements(snapshot)
    assert quantised.weights.num_bytes == pytest.approx(planned - while_loading, rel=0.1)


def test_no_weight_stays_mapped_from_its_file(tmp_path: Path):
    """A file that shrinks under a program that maps it ends the program."""
    snapshot = open_snapshot(fp32("gpt_neox", tmp_path / "model"))
    arch = read_any(snapshot.config)
    decoder = drain(load_generic(snapshot, arch, Plan(find_format("fp32"), CONTEXT), stage="weights"))
    before = decoder.forward(torch.tensor(PROMPT))
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    decoder.crop(0)
    assert torch.equal(decoder.forward(torch.tensor(PROMPT)), before)


def test_a_model_that_computes_parts_otherwise_than_the_whole_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(IndexedLayer, "get_mask_sizes", lambda self, rows: (self.filled + rows, 1))
    with pytest.raises(EngineError, match="when a text is read in parts"):
        decoder_of(make_model("gpt_neox"))


def test_a_rollback_that_leaves_rows_behind_is_refused(monkeypatch: pytest.MonkeyPatch):
    right = PositionCache.crop

    def leaves_one(self: PositionCache, length: int) -> None:
        right(self, length)
        self.layers[-1].filled = min(self.layers[-1].filled + 1, CONTEXT)

    monkeypatch.setattr(PositionCache, "crop", leaves_one)
    with pytest.raises(EngineError, match="when a text is read in parts"):
        decoder_of(make_model("gpt_neox"))


@pytest.mark.parametrize("family", STATEFUL)
def test_the_plan_counts_what_lies_by_position_beside_a_state(family: str):
    arch = read_any(make_model(family).config.to_dict())
    assert not arch.can_rewind
    assert (arch.kv_elements(CONTEXT) > 0) == (family == "lfm2")
