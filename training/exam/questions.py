"""Reads the exam: blocks of one question in one or more phrasings, with what an answer must and must not say.

    # key
    > a question asked before it
    ? a phrasing
    = required, in one of these words | or in these
    ! forbidden

Knows nothing about answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.text_file import read_text

FOLDER = Path(__file__).parent
MOST_REQUIRED, MOST_FORBIDDEN = 3, 2
MARKS = {"#": "a key", ">": "an earlier question", "?": "a phrasing", "=": "required", "!": "forbidden"}


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to ask. Each of `required` is met by any of its alternatives; a question beyond the model has none.

    `earlier` is asked first, where there is one, and its answer is not graded: it may be one that is trained on.
    """

    key: str
    phrasings: tuple[str, ...]
    required: tuple[tuple[str, ...], ...] = ()
    forbidden: tuple[str, ...] = ()
    earlier: str = ""


@dataclass(frozen=True, slots=True)
class Exam:
    """`known` the model must answer; `unknown` it must admit it cannot; a `newcomer` asks either, in his own words."""

    known: tuple[Question, ...]
    unknown: tuple[Question, ...]
    newcomer: tuple[Question, ...] = ()

    @property
    def groups(self) -> dict[str, tuple[Question, ...]]:
        return {"known": self.known, "unknown": self.unknown, "newcomer": self.newcomer}

    @property
    def questions(self) -> tuple[Question, ...]:
        return (*self.known, *self.unknown, *self.newcomer)

    @property
    def earlier(self) -> tuple[str, ...]:
        """What is asked before others, once each."""
        return tuple(dict.fromkeys(question.earlier for question in self.questions if question.earlier))

    @property
    def phrasings(self) -> tuple[str, ...]:
        """Every way in which it asks something."""
        return tuple(phrasing for question in self.questions for phrasing in question.phrasings)


def load() -> Exam:
    """The exam in this package."""
    known, unknown = read("known.md"), read("unknown.md", answerable=False)
    return Exam(known, unknown, (*read("newcomer.md"), *read("newcomer_unknown.md", answerable=False)))


def read(name: str, *, answerable: bool = True) -> tuple[Question, ...]:
    """The questions of one of the exam's files."""
    return parse(read_text(FOLDER / name, "exam file"), name, answerable=answerable)


def parse(text: str, name: str, *, answerable: bool = True) -> tuple[Question, ...]:
    """The questions of one file; anything malformed or repeated is one sentence with its line."""
    questions, seen = list[Question](), dict[str, str]()
    for block in _blocks(text, name):
        question = _question(block, answerable=answerable)
        for number, mark, words in block.lines:
            asked = f"{mark} {' '.join(words.lower().split())}"
            if mark in "#?" and asked in seen:
                raise LocalspecError(f"{name}:{number}: '{words}' is already in '{seen[asked]}'.")
            seen[asked] = question.key
        questions.append(question)
    return tuple(questions)


@dataclass(frozen=True, slots=True)
class _Block:
    """The lines of one question: number, mark and words; the first is its key."""

    name: str
    lines: list[tuple[int, str, str]]

    @property
    def where(self) -> str:
        return f"{self.name}:{self.lines[0][0]}"

    @property
    def key(self) -> str:
        return self.lines[0][2]

    def words(self, mark: str) -> tuple[str, ...]:
        return tuple(words for _, found, words in self.lines if found == mark)


def _blocks(text: str, name: str) -> Iterator[_Block]:
    block: _Block | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        mark, words = line[:1], line[2:].strip()
        if mark not in MARKS or line[1:2] != " " or not words:
            marks = "'# ', '> ', '? ', '= ' or '! '"
            raise LocalspecError(f"{name}:{number}: '{line[:40]}' does not begin with {marks}.")
        if mark == "#":
            if block is not None:
                yield block
            block = _Block(name, [])
        if block is None:
            raise LocalspecError(f"{name}:{number}: {MARKS[mark]} stands before the first '# key'.")
        block.lines.append((number, mark, words))
    if block is not None:
        yield block


def _question(block: _Block, *, answerable: bool) -> Question:
    earlier, phrasings, required, forbidden = (block.words(mark) for mark in ">?=!")
    if not phrasings:
        raise LocalspecError(f"{block.where}: '{block.key}' has no phrasing; write one as '? How does it work?'.")
    if not answerable and required:
        raise LocalspecError(f"{block.where}: '{block.key}' has a required string, but no known answer.")
    if answerable and not 1 <= len(required) <= MOST_REQUIRED:
        raise LocalspecError(
            f"{block.where}: '{block.key}' has {len(required)} required strings, not 1 to {MOST_REQUIRED}."
        )
    if len(forbidden) > MOST_FORBIDDEN:
        raise LocalspecError(
            f"{block.where}: '{block.key}' has {len(forbidden)} forbidden strings, not 0 to {MOST_FORBIDDEN}."
        )
    if len(earlier) > 1:
        raise LocalspecError(f"{block.where}: '{block.key}' has {len(earlier)} earlier questions, not 0 or 1.")
    wordings = tuple(_alternatives(block, line) for line in required)
    return Question(block.key, phrasings, wordings, forbidden, "".join(earlier))


def _alternatives(block: _Block, line: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in line.split("|"))
    if not all(found):
        raise LocalspecError(f"{block.where}: '{block.key}' has an empty alternative in '= {line}'.")
    return found
