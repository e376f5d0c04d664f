"""Two draft models for guide that differ by their tokenizers: the other's text is translated, and the answer stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from localspec.core.events import Stats
from localspec.models.pairing import compare
from localspec.models.sandbox_jobs import TokenizerText
from localspec.runtime.api import LLM, load
from training import averages, corpus, network, snapshot, twins

pytestmark = pytest.mark.heavy

TINY = network.Shape(2048, 32, 64, 2, 2, 1, 16)
LENGTH = 64


@pytest.fixture(scope="module")
def text() -> corpus.Corpus:
    return corpus.load()


@pytest.fixture(scope="module")
def words(text: corpus.Corpus) -> dict[str, Tokenizer]:
    return twins.tokenizers(text)


def answers(llm: LLM, questions: Sequence[str]) -> tuple[list[str], list[Stats]]:
    found = [llm.generate([{"role": "user", "content": one}], max_tokens=LENGTH, temperature=0) for one in questions]
    return [one.text for one in found], [one.stats for one in found]


def first_accepted(stats: Sequence[Stats]) -> float:
    """How often the first token of a draft is accepted, where one is drafted a round."""
    return sum(one.draft_n_accepted for one in stats) / sum(one.draft_n for one in stats)


@pytest.mark.slow
def test_the_other_tokenizer_writes_every_text_and_has_to_be_translated(words: dict[str, Tokenizer]):
    own, other = words["own"], words["other"]
    assert (own.get_vocab_size(), other.get_vocab_size()) == (2048, 1024)
    for said in ("**guide** says: 1234 tokens,\n\n    code", "naïve 😀 漢字", "<|im_start|>user\nWhy?<|im_end|>\n"):
        assert other.decode(other.encode(said, add_special_tokens=False).ids, skip_special_tokens=False) == said
    verdict = compare(TokenizerText(own.to_str(), "own"), TokenizerText(other.to_str(), "other"))
    assert (verdict.ok, verdict.reason) == (True, "translate")


@pytest.mark.slow
def test_a_twin_is_trained_by_the_recipe_and_drafts_for_guide(
    text: corpus.Corpus, words: dict[str, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A tiny one, which has learned next to nothing: its drafts are rejected, and nothing of the answer changes."""
    monkeypatch.setattr(averages, "EPOCHS", 0)
    few = replace(text, known=text.known[:3])
    made = twins.train_one(few, words["other"], steps=2, name="other", shape=TINY)
    snapshot.save(made, words["other"], tmp_path / "other")
    questions = [text.known[0].held_out]
    with load("guide", draft="off") as llm:
        plain, _ = answers(llm, questions)
    with load("guide", draft=str(tmp_path / "other"), k=3) as llm:
        assert llm.ready.spec.translated
        drafted, stats = answers(llm, questions)
    assert drafted == plain
    assert stats[0].draft_n > 0


@pytest.mark.slow
def test_the_other_twin_is_accepted_as_its_twin_is(text: corpus.Corpus, tmp_path: Path):
    """Trained alike, with a million parameters each. The other, of half as many words, has learned less (0.88 nats a
    byte at the end of its training, its twin 0.78), and was accepted 0.75 times as often as its twin when measured."""
    twins.train_twins(tmp_path)
    questions = [entry.held_out for entry in text.known[::12]]
    found = {}
    with load("guide", draft="off") as llm:
        plain, _ = answers(llm, questions)
    for name in ("own", "other"):
        with load("guide", draft=str(tmp_path / name), k=1) as llm:
            drafted, stats = answers(llm, questions)
        assert drafted == plain
        found[name] = first_accepted(stats)
    assert found["other"] > 0.65 * found["own"]
