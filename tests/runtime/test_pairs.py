"""Verdicts about pairs: compared once, remembered by both tokenizers, and candidates in their order."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from localspec.core import paths
from localspec.core.errors import CheckpointError, IncompatiblePair
from localspec.models.checkpoint import Snapshot, open_snapshot
from localspec.runtime import draft_choice, pairs
from localspec.runtime.draft_choice import DrafterChoice, paired
from localspec.runtime.pairs import DrafterCandidate, PairVerdict, candidates, pair, ranked
from tests.support.models import save_snapshot
from tests.support.tokenizers import gpt2_like, llama3_like, wordpiece_like

GUIDE = Path(__file__).parents[2] / "assets" / "guide"


@pytest.fixture
def target() -> Snapshot:
    return open_snapshot(GUIDE / "target", "target")


@pytest.fixture
def draft() -> Snapshot:
    return open_snapshot(GUIDE / "draft", "draft")


def hash_of(folder: Path) -> str:
    return sha256((folder / "tokenizer.json").read_bytes()).hexdigest()


def never(*_: object) -> None:
    raise AssertionError("compared again")


def test_a_verdict_is_keyed_by_both_tokenizers_and_kept(
    target: Snapshot, draft: Snapshot, monkeypatch: pytest.MonkeyPatch
):
    """Check 14: the second time nothing runs, whatever the models are called."""
    first = pair(target, draft)
    assert (first.ok, first.reason) == (True, "same")
    assert (first.target_hash, first.drafter_hash) == (hash_of(GUIDE / "target"), hash_of(GUIDE / "draft"))
    assert first.target_hash in paths.pairs_file().read_text()
    monkeypatch.setattr(pairs, "compare_tokenizers", never)
    again = pair(replace(target, name="other"), draft)
    assert (again.target, again.reason, again.detail) == ("other", first.reason, first.detail)
    more = {**target.config, "vocab_size": target.config["vocab_size"] + 64}
    with pytest.raises(AssertionError, match="compared again"):
        pair(replace(target, config=more), draft)  # the rows are part of the question


def test_a_changed_tokenizer_is_compared_anew(target: Snapshot, tmp_path: Path):
    """A remembered verdict does not outlive the file that it was about."""
    shutil.copytree(GUIDE / "draft", tmp_path / "draft")
    assert pair(target, open_snapshot(tmp_path / "draft")).ok
    spec = json.loads((tmp_path / "draft" / "tokenizer.json").read_text())
    vocab = spec["model"]["vocab"]
    one, other = list(vocab)[1000:1002]
    vocab[one], vocab[other] = vocab[other], vocab[one]
    (tmp_path / "draft" / "tokenizer.json").write_text(json.dumps(spec))
    found = pair(target, open_snapshot(tmp_path / "draft"))
    assert (found.ok, found.reason, found.same_tokens) == (True, "translate", False)


def test_what_cannot_be_compared_is_a_verdict_too(target: Snapshot, draft: Snapshot, tmp_path: Path):
    """Nothing is raised, and nothing remembered."""
    assert pair(target, replace(draft, tokenizer_file=None)).reason == "no-tokenizer"
    shutil.copytree(GUIDE / "draft", tmp_path / "draft")
    (tmp_path / "draft" / "tokenizer.json").write_text('{"model": 1}')
    found = pair(target, open_snapshot(tmp_path / "draft"))
    assert (found.ok, found.reason) == (False, "broken-tokenizer")
    assert found.detail
    assert not paths.pairs_file().exists()


def test_the_notice_at_loading_is_of_the_same_verdict(
    target: Snapshot, draft: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A pair is judged in one way only: what `pair` refuses is refused, each for its own reason."""
    broken = shutil.copytree(GUIDE / "draft", tmp_path / "broken")
    (broken / "tokenizer.json").write_text('{"model": 1}')
    other = save_snapshot(tmp_path / "other", wordpiece_like())
    for drafter, words in (
        (
            replace(draft, config={**draft.config, "model_type": "mamba"}),
            "recurrent model: its state cannot be rolled back",
        ),
        (replace(draft, tokenizer_file=None), "cannot be checked: a tokenizer.json is missing"),
        (open_snapshot(other, "other"), "cannot draft for 'target': tokenizers differ"),
    ):
        assert not pair(target, drafter).ok
        with pytest.raises(IncompatiblePair, match=f"^'{drafter.name}' .*{words}"):
            paired(DrafterChoice("model"), drafter, target)
    unreadable = open_snapshot(broken, "broken")
    assert not pair(target, unreadable).ok
    with pytest.raises(CheckpointError, match=r"broken/tokenizer\.json is not a working tokenizer"):
        paired(DrafterChoice("model"), unreadable, target)  # its files are at fault, as of any model
    same = paired(DrafterChoice("model"), draft, target)
    assert (same.snapshot, same.notice, same.translates) == (draft, None, False)
    cousin = open_snapshot(save_snapshot(tmp_path / "cousin", gpt2_like()), "cousin")
    translated = paired(DrafterChoice("model"), cousin, target)
    assert translated.translates
    assert translated.notice is not None
    assert translated.notice.level == "info"
    assert translated.notice.message == "'cousin' has a different tokenizer from 'target', so its text is translated."
    few = PairVerdict("target", "draft", True, "controls-differ", "same tokens but for a control token (x)")
    monkeypatch.setattr(draft_choice, "pair", lambda *_: few)
    notice = paired(DrafterChoice("model"), draft, target).notice
    assert notice is not None
    assert notice.message == "'draft' and 'target' have the same tokens but for a control token (x)."


def test_candidates_are_small_of_its_family_and_can_draft_first(target: Snapshot, draft: Snapshot, tmp_path: Path):
    """A model of another family that cannot draft is none; the target itself is none."""
    stranger = open_snapshot(save_snapshot(tmp_path / "stranger", wordpiece_like(), model_type="qwen2"), "stranger")
    cousin = open_snapshot(save_snapshot(tmp_path / "cousin", wordpiece_like()), "cousin")
    friend = open_snapshot(save_snapshot(tmp_path / "friend", llama3_like(), model_type="qwen2"), "friend")
    found = candidates(target, [stranger, cousin, friend, target, draft, replace(target, name="twin")])
    assert [one.name for one in found] == ["draft", "friend", "cousin"]
    assert [one.verdict is not None and one.verdict.ok for one in found] == [True, True, False]
    assert [one.verdict is not None and one.verdict.same_tokens for one in found] == [True, False, False]
    assert found[0].num_bytes == draft.total_bytes


def verdict(*, ok: bool = True, reason: str = "same") -> PairVerdict:
    return PairVerdict("t", "d", ok=ok, reason=reason, detail="")


def test_the_rank_is_the_verdict_and_then_the_nearest_to_a_tenth():
    listed = [
        DrafterCandidate("no", 100, True, verdict(ok=False, reason="untranslatable")),
        DrafterCandidate("translated", 100, True, verdict(reason="translate")),
        DrafterCandidate("far", 10, True, verdict()),
        DrafterCandidate("unknown", 100, False),
        DrafterCandidate("controls", 100, True, verdict(reason="controls-differ")),
        DrafterCandidate("near", 90, True, verdict(reason="padding")),
        DrafterCandidate("large", 250, True, verdict()),
    ]
    assert [one.name for one in ranked(1000, listed)] == [
        "near",
        "large",
        "far",
        "controls",
        "translated",
        "unknown",
        "no",
    ]
