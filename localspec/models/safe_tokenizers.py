"""Copies of a tokenizer in which no text becomes a control token, each for text that stands somewhere else.

Knows nothing about templates or messages.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from typing import Any, Literal  # Any: tokenizer.json as the tokenizers library wrote it

from tokenizers import Tokenizer

from localspec.models.checkpoint import parse_tokenizer

Where = Literal["first", "after a control", "running"]
BEGINNERS = ("Prepend", "Strip")  # normalisers that change where a text begins


def without_controls(tokenizer: Tokenizer, control_ids: Collection[int], where: Where = "first") -> Tokenizer:
    """A copy of the tokenizer in which no text becomes a control token, for text that begins there.

    They are renamed, not removed: without them the other added tokens would move to their ids.
    """
    spec = json.loads(tokenizer.to_str())
    controls = [token for token in spec["added_tokens"] if token["id"] in control_ids]
    names = {token["content"]: f"\U0010fffd{secrets.token_hex(16)}" for token in controls}  # these cannot be typed
    for token in controls:
        token["content"] = names[token["content"]]
    spec["post_processor"] = None
    _rename(spec["model"], names)
    if where == "after a control":
        _never_first(spec["pre_tokenizer"])
    if where == "running":
        spec["normalizer"] = _amid(spec["normalizer"])
        _never_prefixed(spec["pre_tokenizer"])
    return parse_tokenizer(json.dumps(spec), "the tokenizer without its control tokens")


def _rename(model: dict[str, Any], names: dict[str, str]) -> None:
    """Renames the pieces of the vocabulary that spell a control token: plain text could reach them."""
    vocab = model["vocab"]
    if isinstance(vocab, list):
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocab]
        return
    model["vocab"] = {names.get(piece, piece): id for piece, id in vocab.items()}
    if "merges" in model:
        parts = [merge if isinstance(merge, list) else merge.split(" ", 1) for merge in model["merges"]]
        model["merges"] = [pair for pair in parts if not names.keys() & {*pair, "".join(pair)}]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]


def _never_first(part: Any) -> None:
    """Stops the pre-tokenizer from treating text after a control token as the beginning of a text."""
    if isinstance(part, dict):
        if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
        for inner in part.get("pretokenizers", ()):
            _never_first(inner)


def _never_prefixed(part: Any) -> None:
    """Stops the pre-tokenizer from putting a space before any text."""
    if isinstance(part, dict):
        if part.get("type") == "Metaspace":
            part["prepend_scheme"] = "never"
        if part.get("type") == "ByteLevel":
            part["add_prefix_space"] = False
        for inner in part.get("pretokenizers", ()):
            _never_prefixed(inner)


def _amid(part: Any) -> Any:
    """The normaliser without what it does to the beginning and end of a text."""
    if not isinstance(part, dict):
        return part
    if part.get("type") == "Sequence":
        return {**part, "normalizers": [found for one in part["normalizers"] if (found := _amid(one)) is not None]}
    return None if part.get("type") in BEGINNERS else part
