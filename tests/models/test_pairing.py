"""Two tokenizers are judged by their contents, and the message names the first difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, normalizers

from localspec.core.errors import CheckpointError
from localspec.models.checkpoint import open_snapshot
from localspec.models.pairing import compare, probe_lines
from localspec.models.sandbox_jobs import TokenizerText, Verdict
from localspec.runtime.draft_choice import DrafterChoice, paired
from tests.support.models import save_snapshot
from tests.support.tokenizers import byte_level, gpt2_like, llama2_like, llama3_like, unigram_like, wordpiece_like
from tests.support.two_tongues import unigram

pytestmark = pytest.mark.heavy


def spec_of(tokenizer: Tokenizer) -> dict[str, Any]:
    return json.loads(tokenizer.to_str())


def judge(
    target: Tokenizer, drafter: Tokenizer, *, target_rows: int | None = None, drafter_rows: int | None = None
) -> Verdict:
    return compare(
        TokenizerText(target.to_str(), "target.json", target_rows),
        TokenizerText(drafter.to_str(), "drafter.json", drafter_rows),
    )


def swapped() -> Tokenizer:
    """Same words, same number of them, two ids exchanged."""
    spec = spec_of(gpt2_like())
    vocab = spec["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    return Tokenizer.from_str(json.dumps(spec))


def reworded() -> Tokenizer:
    """Another vocabulary of the same size."""
    spec = spec_of(gpt2_like())
    merges = spec["model"]["merges"]
    left, right = merges.pop()
    spec["model"]["vocab"]["zq"] = spec["model"]["vocab"].pop("".join((left, right)))
    spec["model"]["merges"] = [*merges, ["z", "q"]]
    return Tokenizer.from_str(json.dumps(spec))


def remerged() -> Tokenizer:
    """Same vocabulary, merges in another order: the ids mean the same and the same text becomes others."""
    spec = spec_of(gpt2_like())
    spec["model"]["merges"].reverse()
    return Tokenizer.from_str(json.dumps(spec))


def with_added(*, special: bool = False, content: str = "<tool_call>") -> Tokenizer:
    tokenizer = gpt2_like()
    tokenizer.add_tokens([AddedToken(content, special=special)])
    return tokenizer


def with_word(word: str) -> Tokenizer:
    """A word of the vocabulary where others have added a token."""
    spec = spec_of(gpt2_like())
    spec["model"]["vocab"][word] = len(spec["model"]["vocab"]) + len(spec["added_tokens"])
    return Tokenizer.from_str(json.dumps(spec))


def lower_case() -> Tokenizer:
    tokenizer = gpt2_like()
    tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def other_decoder() -> Tokenizer:
    tokenizer = gpt2_like()
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


COMPATIBLE = {
    "identical": (gpt2_like, gpt2_like, {}, "same"),
    "padded target": (gpt2_like, gpt2_like, {"target_rows": 512, "drafter_rows": 448}, "padding"),
    "padded drafter": (gpt2_like, gpt2_like, {"target_rows": 405, "drafter_rows": 512}, "padding"),
    "added token in the target": (with_added, gpt2_like, {}, "extra-tokens"),
    "added token in the drafter": (gpt2_like, lambda: with_added(special=True), {}, "extra-tokens"),
    "other control tokens": (
        lambda: with_added(special=True, content="<|reserved_2|>"),
        lambda: with_added(special=True, content="<|finetune_right_pad_id|>"),
        {},
        "controls-differ",
    ),
    "a thought that is no control of the target's": (
        lambda: with_added(content="<thought>"),
        lambda: with_added(special=True, content="<|box_start|>"),
        {},
        "controls-differ",
    ),
    "special to one only": (with_added, lambda: with_added(special=True), {}, "controls-differ"),
}
TRANSLATED = {
    "llama 2 and llama 3": (llama3_like, llama2_like),
    "two ids swapped": (gpt2_like, swapped),
    "same size, another word": (gpt2_like, reworded),
    "one a word shorter": (gpt2_like, lambda: byte_level("<|endoftext|>", vocab_size=399)),
    "another added token at the same id": (with_added, lambda: with_added(content="<other>")),
    "an added word that is another control": (lambda: with_word("<tool_call>"), lambda: with_added(special=True)),
    "same words, other merges": (gpt2_like, remerged),
    "another split of digits": (byte_level, lambda: byte_level(pattern=r"\p{N}|\P{N}+")),
    "unigram and byte-level": (unigram, gpt2_like),
    "a normaliser that keeps plain text": (gpt2_like, lambda: unigram(nfkc=True)),
}
LOSSY = {
    "a vocabulary that lacks letters": (
        unigram_like,
        gpt2_like,
        "the target's tokenizer changes the text that it reads",
    ),
    "a normaliser that changes plain text": (
        gpt2_like,
        lower_case,
        "the draft's tokenizer changes the text that it reads",
    ),
    "another decoder": (gpt2_like, other_decoder, "the draft's tokens are not bytes of the text"),
    "blanks that depend on the next token": (
        wordpiece_like,
        gpt2_like,
        "the target's tokens are not bytes of the text",
    ),
}


@pytest.mark.parametrize("case", COMPATIBLE)
def test_a_drafter_that_speaks_the_targets_tokens_is_accepted(case: str) -> None:
    target, drafter, rows, reason = COMPATIBLE[case]
    verdict = judge(target(), drafter(), **rows)
    assert (verdict.ok, verdict.reason) == (True, reason), verdict


@pytest.mark.parametrize("case", TRANSLATED)
def test_a_drafter_that_speaks_other_tokens_is_translated(case: str) -> None:
    target, drafter = TRANSLATED[case]
    verdict = judge(target(), drafter())
    assert (verdict.ok, verdict.reason) == (True, "translate"), verdict
    assert verdict.detail.startswith("tokenizers differ (")
    assert verdict.detail.endswith(")")


@pytest.mark.parametrize("case", LOSSY)
def test_one_whose_text_does_not_survive_is_refused(case: str) -> None:
    target, drafter, fault = LOSSY[case]
    verdict = judge(target(), drafter())
    assert (verdict.ok, verdict.reason) == (False, "untranslatable"), verdict
    assert verdict.detail.startswith("tokenizers differ (")
    assert verdict.detail.endswith(f"), and {fault}")


def test_the_message_names_the_first_id_that_differs() -> None:
    assert judge(gpt2_like(), llama2_like()).detail == 'tokenizers differ (id 0 "!" vs "<unk>")'


def test_the_control_tokens_that_differ_are_counted_and_the_first_is_named() -> None:
    """Llama 3.0 with 3.1 and 3.2, R1's distilled models with those that they were made of."""
    names = [(f"<|reserved_{at}|>", f"<|named_{at}|>") for at in range(3)]
    pair = [gpt2_like(), gpt2_like()]
    for side, tokenizer in enumerate(pair):
        tokenizer.add_tokens([AddedToken(name[side], special=True) for name in names])
    verdict = judge(*pair)
    first = pair[0].token_to_id("<|reserved_0|>")
    assert verdict.detail == f'same tokens but for 3 control tokens (id {first} "<|reserved_0|>" vs "<|named_0|>")'


def test_a_draft_with_other_control_tokens_may_draft_and_it_is_said(tmp_path: Path) -> None:
    for side in ("target", "draft"):
        save_snapshot(tmp_path / side, with_added(special=True, content=f"<|{side}|>"))
    target, draft = (open_snapshot(tmp_path / side, side) for side in ("target", "draft"))
    choice = paired(DrafterChoice("model"), draft, target)
    assert choice.kind == "model"
    assert choice.notice is not None
    assert choice.notice.message.startswith("'draft' and 'target' have the same tokens but for a control token (id")
    itself = paired(DrafterChoice("model"), target, target).notice
    assert itself is not None
    assert itself.message.startswith("target drafts for itself")


def test_padding_is_said_in_words() -> None:
    verdict = judge(gpt2_like(), gpt2_like(), target_rows=152064, drafter_rows=151936)
    assert verdict.detail == "vocab 152064 vs 151936: same 405 tokens, padding differs: compatible"


@pytest.mark.parametrize("rows", [{"target_rows": 399}, {"drafter_rows": 398}], ids=str)
def test_an_id_beyond_the_embedding_is_refused(rows: dict[str, int]) -> None:
    with pytest.raises(CheckpointError, match=f"ids up to 399 and the model {min(rows.values())} rows"):
        judge(gpt2_like(), gpt2_like(), **rows)


def test_the_probe_is_two_thousand_lines_and_always_the_same() -> None:
    lines = probe_lines()
    assert len(lines) == 2000
    assert lines == probe_lines()
    assert len(set(lines)) > 1900


def test_a_broken_tokenizer_is_named() -> None:
    broken = TokenizerText('{"model": {"type": "BPE"}}', "drafter.json")
    with pytest.raises(CheckpointError, match=r"drafter\.json is not a working tokenizer"):
        compare(TokenizerText(gpt2_like().to_str(), "target.json"), broken)
