"""Real tokenizers as pairs: those that people try together, and Gemma 3's: more tokens than its models have rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.models.sandbox import compare_tokenizers
from localspec.models.sandbox_jobs import TokenizerText, Verdict
from tests.real.things import GEMMA3, LLAMA3_1, QWEN3, Thing

pytestmark = [pytest.mark.heavy, pytest.mark.real]

# What Llama 3.1 and 3.2 call two of Llama 3.0's reserved tokens, and R1's distilled models some of Qwen2.5's.
LLAMA = {"<|reserved_special_token_2|>": "<|finetune_right_pad_id|>", "<|reserved_special_token_3|>": "<|eom_id|>"}
R1 = {"<|im_start|>": "<｜User｜>", "<|im_end|>": "<｜Assistant｜>", "<|object_ref_start|>": "<｜begin▁of▁sentence｜>"}
GEMMA_ROWS = {"1b": 262144, "4b": 262208}


def renamed(thing: Thing, names: dict[str, str]) -> str:
    """A tokenizer with other names for some of its control tokens."""
    spec: dict[str, Any] = json.loads(thing.file("tokenizer.json").read_text(encoding="utf-8"))
    for token in spec["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    spec["post_processor"] = None
    vocab = spec["model"]["vocab"]
    spec["model"]["vocab"] = {names.get(word, word): id for word, id in vocab.items()}
    return json.dumps(spec)


def judge(thing: Thing, names: dict[str, str], *, rows: tuple[int | None, int | None] = (None, None)) -> Verdict:
    """A tokenizer as it is and renamed, in the sandbox."""
    target = TokenizerText(thing.file("tokenizer.json").read_text(encoding="utf-8"), "target.json", rows[0])
    return compare_tokenizers(target, TokenizerText(renamed(thing, names), "drafter.json", rows[1]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("thing", "names"), [(LLAMA3_1, LLAMA), (QWEN3, R1)], ids=["Llama 3.0 and 3.2", "R1 and Qwen"])
def test_other_control_tokens_do_not_keep_a_draft_from_drafting(thing: Thing, names: dict[str, str]) -> None:
    verdict = judge(thing, names)
    assert (verdict.ok, verdict.reason) == (True, "controls-differ"), verdict
    assert verdict.detail.startswith(f"same tokens but for {len(names)} control tokens (id ")


@pytest.mark.slow
def test_gemmas_token_for_an_image_needs_no_row() -> None:
    verdict = judge(GEMMA3, {}, rows=(GEMMA_ROWS["4b"], GEMMA_ROWS["1b"]))
    assert verdict.ok, verdict
