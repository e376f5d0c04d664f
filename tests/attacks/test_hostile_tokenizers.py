"""The attack: a tokenizer.json is a program as well; four lines of it fill the memory, one pattern never ends.

It runs in the sandbox, and what decodes an answer in the engine's process may do neither.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from localspec.core.errors import CheckpointError
from localspec.core.requests import Message
from localspec.models import sandbox
from localspec.models.checkpoint import parse_tokenizer
from localspec.models.sandbox import Sandbox, compare_tokenizers
from localspec.models.sandbox_jobs import EncodeChat, Ids, OpenPrompter, PrompterOpened, TokenizerText
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

MEMORY, TIME = r"needs more than \d+ MB of memory", r"needs more than \d+ seconds"
TOO_MUCH, NOT_WORKING = f"{MEMORY}|{TIME}", "is not a working tokenizer"
DECODER = "has a decoder that makes text longer"
QUESTION = "a" * 40 + "! Hello there, what is a draft?"


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


BETWEEN = {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "", "cleanup": True}
SWELLING = [replace("a", "a" * 1000)] * 4
BOMBS: dict[str, tuple[dict[str, Any], str]] = {
    "four replacements": ({"normalizer": sequence(*SWELLING)}, TOO_MUCH),
    "thirty doublings": ({"normalizer": sequence(*[replace("a", "aa")] * 40)}, TOO_MUCH),
    "every character replaced": ({"normalizer": sequence(*[replace(".", "xy" * 500, "Regex")] * 4)}, TOO_MUCH),
    "a long beginning": (
        {"normalizer": sequence(*[{"type": "Prepend", "prepend": "a" * 100_000}, replace("a", "a" * 10_000)])},
        TOO_MUCH,
    ),
    "a pattern that never ends": ({"pre_tokenizer": split(r"(a|a|aa)+$")}, rf"{TIME}|retry-limit"),
    "a pattern that looks back": ({"pre_tokenizer": split(r"(?<x>a+)+\k<x>$")}, rf"{TIME}|retry-limit"),
    "a pattern that is none": ({"pre_tokenizer": split("(")}, NOT_WORKING),
    "a type that is none": ({"normalizer": {"type": "System"}}, NOT_WORKING),
    "a map that is none": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, NOT_WORKING),
    "a decoder that swells": ({"decoder": {"type": "Sequence", "decoders": SWELLING}}, DECODER),
    "a decoder in a decoder": (
        {"decoder": {"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": SWELLING}]}},
        DECODER,
    ),
    "a decoder of thirty, each of which puts a blank between any two letters": (
        {"decoder": {"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": ""}] * 30}},
        DECODER,
    ),
    "the same in the words of another": (
        {"decoder": {"type": "Sequence", "decoders": [BETWEEN] * 30}},
        DECODER,
    ),
    "a decoder of a hundred thousand": (
        {
            "decoder": {
                "type": "Sequence",
                "decoders": [{"type": "WordPiece", "prefix": "#", "cleanup": False}] * 100_000,
            }
        },
        DECODER,
    ),
    "a decoder that searches": ({"decoder": replace("(a+)+$", "", "Regex")}, DECODER),
    "no model": ({"model": None}, NOT_WORKING),
    "a vocabulary of nothing": ({"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}, NOT_WORKING),
    "an id beyond every row": (
        {"model": {"type": "WordLevel", "vocab": {"a": 4_000_000_000}, "unk_token": "a"}, "added_tokens": []},
        "has ids up to 4000000000 and the model 500 rows",
    ),
    "ids below nothing": (
        {"model": {"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}, "added_tokens": []},
        NOT_WORKING,
    ),
}


def spec(change: dict[str, Any]) -> str:
    return json.dumps({**json.loads(gpt2_like().to_str()), **change})


@pytest.fixture(scope="module")
def box() -> Sandbox:
    return Sandbox()


def ask(box: Sandbox, text: str) -> Ids:
    job = OpenPrompter(TokenizerText(text, "m/tokenizer.json", 500), "tiny", CHATML, {})
    box.ask(job, PrompterOpened)
    return box.ask(EncodeChat((Message("user", QUESTION),), None), Ids)


@pytest.mark.parametrize("name", BOMBS)
def test_a_tokenizer_that_fails_or_swells_ends_in_one_sentence(
    name: str, box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within its limits, of which that of time is made shorter here."""
    monkeypatch.setattr(sandbox, "SECONDS", 0.4)
    change, words = BOMBS[name]
    with pytest.raises(CheckpointError, match=words) as caught:
        ask(box, spec(change))
    assert "tokenizer.json" in caught.value.message
    assert caught.value.message.endswith(".")
    assert len(caught.value.message) < 300
    assert caught.value.hint


def test_the_good_one_works(box: Sandbox) -> None:
    assert ask(box, spec({})).ids


@pytest.mark.parametrize("name", [name for name, (_, words) in BOMBS.items() if words == DECODER])
def test_no_decoder_that_could_fill_the_engines_memory_is_ever_opened(name: str) -> None:
    with pytest.raises(CheckpointError, match=DECODER):
        parse_tokenizer(spec(BOMBS[name][0]), "m/tokenizer.json")


SLOW_ON_THE_QUESTION = {"a pattern that never ends", "a pattern that looks back"}  # the lines that are compared end


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(BOMBS.keys() - SLOW_ON_THE_QUESTION))
def test_a_draft_models_tokenizer_is_compared_within_limits_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never encodes a prompt, but two thousand lines, before it may draft."""
    monkeypatch.setattr(sandbox, "SECONDS", 0.4)
    change, words = BOMBS[name]
    with pytest.raises(CheckpointError, match=words) as caught:
        compare_tokenizers(TokenizerText(spec({}), "m/tokenizer.json", 500), TokenizerText(spec(change), "d.json", 500))
    assert "d.json" in caught.value.message


def test_a_good_one_may_draft() -> None:
    assert compare_tokenizers(TokenizerText(spec({}), "m/tokenizer.json"), TokenizerText(spec({}), "d.json")).ok
