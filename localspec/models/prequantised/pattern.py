"""Matches the regular expressions of compressed-tensors in bounded time, whatever the pattern.

Characters, `.`, classes, `\\d`, `\\w`, groups of alternatives, and `*`, `+` or `?` after any of these but a group. All
possible end positions of a part are tracked together, so nothing is tried twice. Knows nothing about modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from string import digits

LONGEST = 200
WORD = re.compile(r"\w")
CLASS = re.compile(r"\[([\w.-]+)\]", re.ASCII)
RANGE = re.compile(r"(\w)-(\w)", re.ASCII)
DEEPEST = 8

Part = Callable[[str, set[int]], set[int]]  # from where it may begin to where it may end


class UnreadPattern(Exception):
    """The pattern has syntax that is not supported."""


@dataclass(slots=True)
class Parser:
    """Parses a pattern from its start; UnreadPattern for unsupported syntax."""

    text: str
    at: int = 0
    depth: int = 0

    def alternatives(self) -> Part:
        found = [self.sequence()]
        while self.taken("|"):
            found.append(self.sequence())
        return lambda text, starts: {end for one in found for end in one(text, starts)}

    def sequence(self) -> Part:
        found = list(self.parts())

        def ends(text: str, starts: set[int]) -> set[int]:
            for part in found:
                starts = part(text, starts)
            return starts

        return ends

    def parts(self) -> Iterator[Part]:
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            if self.taken("("):
                yield self.group()
            elif self.taken("^"):
                yield lambda _, starts: starts & {0}
            elif self.taken("$"):
                yield lambda text, starts: starts & {len(text)}
            else:
                yield self.repeated(self.character())

    def group(self) -> Part:
        self.taken("?:")
        self.depth += 1
        if self.depth > DEEPEST:
            raise UnreadPattern
        found = self.alternatives()
        self.depth -= 1
        if not self.taken(")"):
            raise UnreadPattern
        return found

    def character(self) -> Callable[[str], bool]:
        if found := CLASS.match(self.text, self.at):
            self.at = found.end()
            return members(found[1]).__contains__
        one, self.at = self.text[self.at], self.at + 1
        if one == ".":
            return lambda _: True
        if one == "\\" and self.at < len(self.text):
            one, self.at = self.text[self.at], self.at + 1
            if one in "dw":
                return digits.__contains__ if one == "d" else lambda text: WORD.match(text) is not None
            if one.isalnum():
                raise UnreadPattern
        elif not WORD.match(one) and one not in "-:/ ":
            raise UnreadPattern
        return one.__eq__

    def repeated(self, fits: Callable[[str], bool]) -> Part:
        def once(text: str, starts: set[int]) -> set[int]:
            return {at + 1 for at in starts if at < len(text) and fits(text[at])}

        def often(text: str, starts: set[int]) -> set[int]:
            found = once(text, starts)
            for at in range(min(found, default=len(text)), len(text)):
                if at in found and fits(text[at]):
                    found.add(at + 1)
            return found

        if self.taken("*"):
            return lambda text, starts: starts | often(text, starts)
        if self.taken("+"):
            return often
        return (lambda text, starts: starts | once(text, starts)) if self.taken("?") else once

    def taken(self, text: str) -> bool:
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True


def members(inside: str) -> set[str]:
    """The characters of a class."""
    spans = RANGE.findall(inside)
    found = {chr(code) for first, last in spans for code in range(ord(first), ord(last) + 1)}
    return found | set(RANGE.sub("", inside))


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that matches a name from its start, as `re.match`; UnreadPattern for unsupported syntax."""
    if len(pattern) > LONGEST:
        raise UnreadPattern
    parser = Parser(pattern)
    whole = parser.alternatives()
    if parser.at < len(pattern):
        raise UnreadPattern
    return lambda text: bool(whole(text, {0}))
