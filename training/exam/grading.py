"""Grades an answer, whether it is right, honest or nonsense, by the words it contains. Knows neither models nor
files."""

from __future__ import annotations

import re

from localspec.tui.chat.repetition import repeated
from training.exam.questions import Question

HONEST = (
    "small built-in model",
    "only know about localspec",
    "cannot answer that",
    "can't answer that",
    "I do not know",
    "I don't know",
    "I cannot know",
    "I can't know",
)
"""What an answer to a question beyond the model says, in one of these words."""

NEWCOMER_GOOD, NEWCOMER_NONSENSE = 0.80, 0.04
"""The goals for a newcomer's questions: at least so many good answers, at most so much nonsense."""

WHOLE_WORD = 3  # letters: "no" is not in "note", but "accept" is in "accepted"
SENTENCES = re.compile(r"(?<=[.!?…])\s+")
ENDED = re.compile(r"[.!?…:)\"'”’»`*_]\s*\Z")  # a command, too, in its marks
MARKS = re.compile(r"(?<![^\W_])[*`_]+|[*`_]+(?![^\W_])")


def is_right(answer: str, question: Question) -> bool:
    """Every required string is there in one of its wordings, and no forbidden one."""
    found = all(any(says(answer, words) for words in wordings) for wordings in question.required)
    return found and not any(says(answer, words) for words in question.forbidden)


def is_honest(answer: str) -> bool:
    """Whether the answer admits that the question is beyond the model."""
    return any(says(answer, words) for words in HONEST)


def is_good(answer: str, question: Question) -> bool:
    """Right, or where nothing is required, and so nothing can be known, honest."""
    return is_right(answer, question) if question.required else is_honest(answer)


def is_nonsense(answer: str, question: Question) -> bool:
    """Neither good nor honest, and not even a text: it repeats itself, or breaks off in the middle of a sentence."""
    if is_good(answer, question) or is_honest(answer):
        return False
    return repeats_itself(answer) or ENDED.search(answer) is None


def repeats_itself(answer: str) -> bool:
    """It has a sentence twice, or is what the chat stops as a loop."""
    sentences = SENTENCES.split(plain(answer))
    return len(set(sentences)) < len(sentences) or bool(repeated(answer))


def says(answer: str, words: str) -> bool:
    """The words begin where a word begins; short ones and numbers end there too, so 2 is neither in 2.5 nor in 128."""
    wanted = plain(words)
    return re.search(edge_before(wanted) + re.escape(wanted) + edge_after(wanted), plain(answer)) is not None


def edge_before(wanted: str) -> str:
    if wanted[0].isdigit():
        return r"(?<!\w)(?<!\d[.,])"
    if wanted[0] == "-":
        return r"(?<![\w-])"
    return r"(?<!\w)" if wanted[0].isalpha() else ""


def edge_after(wanted: str) -> str:
    if wanted[-1].isdigit():
        return r"(?!\d|[.,]\d)"
    return r"(?!\w)" if len(wanted) <= WHOLE_WORD and wanted[-1].isalpha() else ""


def plain(text: str) -> str:
    """Small letters, single blanks, straight quotes, no Markdown marks at the edges of words."""
    return " ".join(MARKS.sub("", text.replace("’", "'").casefold()).split())
