"""The rounds of an answer as bytes, and back: who wrote each token, what was rejected. Knows no database."""

from __future__ import annotations

import re
import zlib

import msgspec
from msgspec.structs import replace

from localspec.core.events import Step, Token

LEVEL = 6  # rounds of ten thousand tokens in some ten milliseconds, at a sixth of their size
WORDS = re.compile(r"\s*\S+|\s+")
NO_ID = -1
ROUNDS = msgspec.msgpack.Decoder(tuple[Step, ...])


def pack(steps: tuple[Step, ...]) -> bytes | None:
    """Bytes without the names of other chats that tokens were copied from: those may be deleted."""
    unnamed = tuple(without_chat(step) for step in steps)
    return zlib.compress(msgspec.msgpack.encode(unnamed), LEVEL) if steps else None


def without_chat(step: Step) -> Step:
    origin = step.origin
    if origin is None or origin.kind != "chat" or not origin.name:
        return step
    return replace(step, origin=replace(origin, name=""))


def unpack(packed: bytes | None) -> tuple[Step, ...]:
    """The rounds; none where there are none or the bytes are damaged: the text is still there without its colours."""
    try:
        return ROUNDS.decode(zlib.decompress(packed)) if packed else ()
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def edited_steps(text: str) -> tuple[Step, ...]:
    """What the user wrote of an answer as a step of its words; none where that is nothing."""
    words = tuple(Token(NO_ID, word, "edited") for word in WORDS.findall(text))
    return (Step("edited", words),) if words else ()
