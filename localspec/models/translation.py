"""Translates between the tokens of a target and those of a drafter with another tokenizer, along one conversation.

The drafter has the conversation in its own tokens. The answer is one stream of bytes: each token of either side ends at
a byte of it, so both are brought in step at the last byte that both have, and never by searching for text. What does
not translate is not drafted; a wrong translation costs acceptance and nothing else. Knows no model and no round.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil

from localspec.models.pieces import TokenBytes

CHECKED = 32  # the target's tokens whose text must survive both tokenizers
KNOWN_AT = 8  # tokens of an answer from which the two counts are compared
MOST_BACK = 8  # tokens that are encoded again to begin at a word


@dataclass(frozen=True, slots=True)
class Tongue:
    """A tokenizer: the bytes of its tokens, and the ids of text that continues other text."""

    pieces: TokenBytes
    encode: Callable[[str], Sequence[int]]

    def survives(self, text: bytes) -> bool:
        """Whether it gives back the text that it reads."""
        return valid(text) == text and self.pieces.text(self.encode(text.decode())) == text


class Translation:
    """`end_ids`: the drafter's tokens that end its turn; `end_id`: the target's. `broken` is true where the last text
    does not survive a tokenizer: nothing is drafted there."""

    def __init__(self, target: Tongue, drafter: Tongue, *, end_ids: Collection[int], end_id: int | None) -> None:
        self.target, self.drafter = target, drafter
        self.end_ids, self._end_id = frozenset(end_ids), end_id
        self.broken = False
        self.begin((), 0)

    def begin(self, prompt: Sequence[int], length: int) -> None:
        """Begins an answer: the drafter's ids of the prompt, which has `length` of the target's."""
        self._prompt, self._length = list(prompt), length
        self._written = WrittenBytes()
        self._own: list[int] = []
        self._drafted = WrittenBytes()
        self._checked = 0

    def is_able(self, tokens: Sequence[int]) -> bool:
        """Whether anything can be drafted after `tokens`: the prompt is known, and the text survives."""
        answer = tokens[self._length :]
        for id in answer[len(self._written) :]:
            self._written.add(self.target.pieces.of(id) or b"")
        self._check(answer)
        return bool(self._prompt) and not self.broken and len(tokens) >= self._length

    def follow(self, tokens: Sequence[int]) -> list[int]:
        """The drafter's ids of the conversation, which is `tokens` to the target; none where nothing can be drafted."""
        if not self.is_able(tokens):
            return []
        self._bring_in_step()
        return [*self._prompt, *self._own]

    def steps(self, most: int) -> int:
        """How many of its own tokens the drafter has to write for so many of the target's, and the next word."""
        known = len(self._written) >= KNOWN_AT
        ratio = len(self._own) / len(self._written) if known else 1.0
        return min(ceil(most * ratio), 2 * most) + 1

    def translate(self, tokens: Sequence[int], drafted: Sequence[int], most: int) -> list[int]:
        """The target's ids, at most so many, of what the drafter wrote after `tokens`. Its last word may yet go on, so
        it waits, unless there is nothing else."""
        ended = bool(drafted) and drafted[-1] in self.end_ids
        text = valid(self._add(drafted[:-1] if ended else drafted))
        half = self._written.bytes[whole(self._written.bytes) :]  # of a character, which the draft must go on with
        if not text.startswith(half):
            return []
        found = self._continued(tokens, text, len(half)) if len(text) > len(half) else []
        if not ended:
            return (self._settled(found, text[len(half) :]) or found)[:most]
        return [*found, *([] if self._end_id is None else [self._end_id])][:most]

    def crop(self, length: int) -> None:
        """Forgets the target's tokens from `length` on."""
        self._written.crop(max(length - self._length, 0))
        self._checked = min(self._checked, len(self._written))

    def _check(self, answer: Sequence[int]) -> None:
        """Checks, once in so many tokens, whether text survives both tokenizers."""
        if len(answer) - self._checked >= CHECKED:
            self._checked = len(answer)
            text = inside(self.target.pieces.text(answer[-CHECKED:]))
            self.broken = not (self.drafter.survives(text) and self.target.survives(text))

    def _bring_in_step(self) -> None:
        """The drafter's ids end where the last whole character does; from the last common word on they are encoded
        anew."""
        text = self._written.bytes[: whole(self._written.bytes)]
        common = common_length(self._drafted.bytes, text)
        if common == len(text) == len(self._drafted.bytes):
            return
        kept = beginning(self._drafted.ends, text, bisect_right(self._drafted.ends, common))
        self._drafted.crop(kept)
        del self._own[kept:]
        self._extend(text[len(self._drafted.bytes) :])

    def _extend(self, text: bytes) -> None:
        """Encodes text for the drafter. Where its tokenizer changes the text, all of it ends with the last id."""
        if not text:
            return
        ids = self.drafter.encode(text.decode("utf-8", "replace"))
        parts = [self.drafter.pieces.of(id) or b"" for id in ids]
        if b"".join(parts) != text:
            parts = [text, *[b""] * (len(ids) - 1)]
        for id, part in zip(ids, parts, strict=True):
            self._own.append(id)
            self._drafted.add(part)

    def _add(self, drafted: Sequence[int]) -> bytes:
        """What the drafter wrote, up to a token without text; it becomes part of what the drafter has."""
        before = len(self._drafted.bytes)
        for id in drafted:
            part = self.drafter.pieces.of(id)
            if part is None:
                break
            self._own.append(id)
            self._drafted.add(part)
        return self._drafted.bytes[before:]

    def _continued(self, tokens: Sequence[int], text: bytes, half: int) -> list[int]:
        """The target's ids of a text after `tokens`, of which its first `half` bytes are written already: encoded with
        the word before it where that keeps its ids, else without."""
        for back in self._backs(tokens, half):
            tail = list(tokens[len(tokens) - back :])
            joined = self.target.pieces.text(tail) + text[half:]
            ids = list(self.target.encode(joined.decode())) if valid(joined) == joined else []
            if ids[:back] == tail:
                return ids[back:]
        return []

    def _backs(self, tokens: Sequence[int], half: int) -> list[int]:
        """How many of the last ids to encode again with what follows: the last word, or none."""
        size, whole_characters = 0, list[int]()
        for back, id in enumerate(reversed(tokens[-MOST_BACK:]), start=1):
            piece = self.target.pieces.of(id)
            if not piece:
                break
            size += len(piece)
            if is_boundary(piece, 0) and size >= half:
                whole_characters.append(back)
                if piece[:1].isspace():
                    break
        return [*whole_characters[-1:], *whole_characters[:1], *([] if half else [0])]

    def _settled(self, found: Sequence[int], text: bytes) -> list[int]:
        """The ids that end before the last word of the text that they write."""
        end = before_last_word(text)
        ends = accumulate(len(self.target.pieces.of(id) or b"") for id in found)
        return list(found[: sum(1 for at in ends if at <= end)])


class WrittenBytes:
    """A stream of bytes, and where each token of it ends."""

    def __init__(self) -> None:
        self.bytes = b""
        self.ends: list[int] = []

    def __len__(self) -> int:
        return len(self.ends)

    def add(self, piece: bytes) -> None:
        self.bytes += piece
        self.ends.append(len(self.bytes))

    def crop(self, length: int) -> None:
        """Keeps so many tokens."""
        del self.ends[length:]
        self.bytes = self.bytes[: self.ends[-1] if self.ends else 0]


def beginning(ends: Sequence[int], text: bytes, kept: int) -> int:
    """How many of the first `kept` tokens stay when the text after them is encoded anew: to the last word's beginning,
    if it is near, else to the last whole character."""
    positions = [at for at in range(kept, max(kept - MOST_BACK, 0) - 1, -1) if splits(ends, text, at)]
    words = (at for at in positions if at == 0 or text[ends[at - 1] :][:1].isspace() or ends[at - 1] == len(text))
    return next(words, positions[0] if positions else 0)


def before_last_word(text: bytes) -> int:
    """The length without the last word and the blanks before it, or without the last blanks."""
    if text and not text[-1:].isspace():
        text = text[: len(text) - len(text.split()[-1])]
    return len(text.rstrip())


def splits(ends: Sequence[int], text: bytes, at: int) -> bool:
    """Whether the text may be split after the first `at` tokens."""
    return at == 0 or (is_boundary(text, ends[at - 1]) and (at == len(ends) or ends[at] > ends[at - 1]))


def is_boundary(text: bytes, at: int) -> bool:
    """Whether no character's later bytes are here."""
    return at >= len(text) or text[at] & 0xC0 != 0x80


def whole(text: bytes) -> int:
    """The length without a last character that is not complete."""
    for back in range(1, min(len(text), 3) + 1):
        byte = text[-back]
        if byte >= 0xC0:
            return len(text) - back if back < 2 + (byte >= 0xE0) + (byte >= 0xF0) else len(text)
        if byte < 0x80:
            break
    return len(text)


def valid(text: bytes) -> bytes:
    """The text up to where it is not UTF-8, or not yet."""
    try:
        text.decode()
    except UnicodeDecodeError as fault:
        return text[: fault.start]
    return text


def inside(text: bytes) -> bytes:
    """The text without parts of characters at its ends."""
    start = next((at for at in range(min(len(text), 4)) if is_boundary(text, at)), 0)
    return text[start : whole(text)]


def common_length(left: bytes, right: bytes) -> int:
    """How many first bytes are the same."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
