"""The bytes of each token, where a vocabulary's tokens are bytes that stand beside each other.

So byte-level vocabularies are, and SentencePiece's with or without byte tokens (<0xF0>). WordPiece's are not: a blank
depends on the next token. Knows nothing about models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any  # Any: tokenizer.json as the tokenizers library wrote it

from tokenizers import Tokenizer

from localspec.models.checkpoint import decoders
from localspec.models.detokenize import byte_of, is_byte_level, token_bytes
from localspec.models.gguf.tokenizer import BLANK

BESIDE = ("ByteFallback", "Fuse", "Strip", "Sequence")  # Strip: of a whole text, not of a token


class TokenBytes:
    """The bytes of a tokenizer's tokens; None of one that writes no text: a control token, or one for what is
    unknown."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.get_added_tokens_decoder()
        self._tokenizer = tokenizer
        self._is_byte_level = is_byte_level(tokenizer)
        self._known: dict[int, bytes | None] = {
            id: None if token.special else token.content.encode("utf-8", "replace") for id, token in added.items()
        }
        unknown = unknown_id(tokenizer)
        self._known |= {} if unknown is None else {unknown: None}

    def of(self, id: int) -> bytes | None:
        if id not in self._known:
            token = self._tokenizer.id_to_token(id)
            self._known[id] = None if token is None else self._bytes(token)
        return self._known[id]

    def text(self, ids: Sequence[int]) -> bytes:
        """What ids write together; those without text write nothing."""
        return b"".join(self.of(id) or b"" for id in ids)

    def _bytes(self, token: str) -> bytes:
        if self._is_byte_level:
            return token_bytes(token)
        byte = byte_of(token)
        return token.replace(BLANK, " ").encode("utf-8", "replace") if byte is None else byte


def are_beside(tokenizer: Tokenizer) -> bool:
    """Whether its tokens are bytes beside each other, by its decoder."""
    if is_byte_level(tokenizer):
        return True
    parts = list(decoders(json.loads(tokenizer.decoder.__getstate__()))) if tokenizer.decoder else []
    return any(map(writes_blanks, parts)) and all(part["type"] in BESIDE or writes_blanks(part) for part in parts)


def writes_blanks(decoder: dict[str, Any]) -> bool:
    """Whether the decoder writes SentencePiece's blanks as spaces."""
    match decoder["type"]:
        case "Metaspace":
            return bool(decoder["replacement"] == BLANK)
        case "Replace":
            return (decoder["pattern"].get("String"), decoder["content"]) == (BLANK, " ")
    return False


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """The id of what the vocabulary does not know, if it has one. A Unigram model does not tell: its is <unk> by
    convention."""
    name = getattr(tokenizer.model, "unk_token", None) or "<unk>"
    return tokenizer.token_to_id(name)
