"""Decodes ids to text as they arrive: never half a character, and in the end exactly the text of `tokenizer.decode`.

tokenizers' DecodeStream does neither once a byte is invalid: it holds text back until the stream ends, in quadratic
time, and does not correct a run of byte tokens that turns out broken. Knows nothing about models or screens.
"""

from __future__ import annotations

import codecs
import json
from typing import Protocol

from tokenizers import Tokenizer

REPLACEMENT = "\ufffd"


class IdDecoder(Protocol):
    """A decoder of the ids that are shown, piece by piece."""

    def push(self, id: int) -> str: ...

    def flush(self) -> str: ...


class Detokenizer:
    """Decodes one answer. `push` returns "" while inside a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._hidden = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._stream: IdDecoder = ByteStream(tokenizer) if is_byte_level(tokenizer) else RunStream(tokenizer)

    def push(self, id: int) -> str:
        return "" if id in self._hidden else self._stream.push(id)

    def flush(self) -> str:
        """The text held back: a character that never ended."""
        return self._stream.flush()


class ByteStream:
    """Byte-level vocabularies: every token is bytes, and Python's incremental UTF-8 replaces as Rust does."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, id: int) -> str:
        token = self._tokenizer.id_to_token(id)
        return "" if token is None else self._decoder.decode(token_bytes(token))

    def flush(self) -> str:
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


class RunStream:
    """All other vocabularies: a token's text is what it adds to that of the tokens before it.

    Byte tokens (<0xF0>) are decoded by the run: one wrong byte spoils every character of it. So a run is held until it
    ends, or until it is beyond repair, from where each byte is one replacement character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._shown: list[int] = []
        self._held: list[int] = []
        self._run = codecs.getincrementaldecoder("utf-8")("strict")
        self._is_broken = False

    def push(self, id: int) -> str:
        if self._tokenizer.id_to_token(id) is None:
            return ""
        byte = self._byte(id)
        if byte is None:
            return self._push_words(id)
        if self._is_broken:
            self._shown = [id]
            return REPLACEMENT
        if not self._held and self._shown and self._byte(self._shown[-1]):
            self._shown = []  # flushed in the middle of a run: what comes is whole by itself
        self._held.append(id)
        try:
            self._run.decode(byte)
        except UnicodeDecodeError:
            self._is_broken = True
            return self._show(self._held)
        return ""

    def flush(self) -> str:
        return self._show(self._held)

    def _push_words(self, id: int) -> str:
        """Pushes a token that is no byte: ends a run, if there is one."""
        self._run.reset()
        self._is_broken = False
        self._held.append(id)
        return self._show(self._held)

    def _show(self, ids: list[int]) -> str:
        """The text that `ids` add; their end becomes the context of the next ids, as a first token is decoded
        differently."""
        before = self._decode(self._shown)
        seen = self._shown + ids
        length = next((n for n in range(1, len(seen)) if self._decode(seen[-n:])), len(seen))
        self._shown, self._held = seen[-length:], []
        return self._decode(seen)[len(before) :]

    def _byte(self, id: int) -> bytes | None:
        return byte_of(self._tokenizer.id_to_token(id) or "")

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def is_byte_level(tokenizer: Tokenizer) -> bool:
    if tokenizer.decoder is None:
        return False
    spec = json.loads(tokenizer.decoder.__getstate__())
    return {part["type"] for part in spec.get("decoders", [spec])} == {"ByteLevel"}


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's byte alphabet: a printable character for every byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


BYTES = _byte_alphabet()


def token_bytes(token: str) -> bytes:
    """A token's bytes; one with characters outside the alphabet (an added token) stands for itself."""
    found = [BYTES.get(char) for char in token]
    known = [byte for byte in found if byte is not None]
    return bytes(known) if len(known) == len(found) else token.encode("utf-8", "replace")


def byte_of(token: str) -> bytes | None:
    """The byte of a fallback token such as <0x0A>."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return bytes([int(token[3:5], 16)])
        except ValueError:
            return None
    return None
