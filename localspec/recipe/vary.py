"""Light, seeded variation of questions: case, punctuation, politeness, a typo, a missing word, an invented topic.

Works on plain strings. Knows nothing about answers.
"""

from __future__ import annotations

from random import Random

OPENERS = (
    "please tell me: ", "hey, ", "hi! ", "quick question: ", "ok, ", "so ", "and ", "um, ", "sorry, ", "excuse me, ",
    "I want to know, ", "can you tell me, ", "one more thing: ", "now, ", "well, ", "I was wondering, ",
)  # fmt: skip
CLOSERS = (" please", ", please", " thanks", ", thank you", " exactly", " then", " here", " :)", "...")
SYLLABLES = (
    "ba", "be", "bo", "cra", "da", "del", "dro", "fi", "fla", "gor", "gu", "hin", "jo", "ka", "kel", "lu", "ma",
    "mi", "mor", "na", "nix", "o", "pa", "pel", "qua", "ri", "ro", "sa", "sti", "ta", "tor", "u", "vel", "wi",
    "xan", "yo", "zu",
)  # fmt: skip


def _typo(text: str, rng: Random) -> str:
    place = rng.randrange(max(len(text) - 1, 1))
    swapped = text[:place] + text[place + 1 : place + 2] + text[place : place + 1] + text[place + 2 :]
    return rng.choice((swapped, text[:place] + text[place + 1 :]))


def _drop_word(text: str, rng: Random) -> str:
    words = text.split(" ")
    small = [i for i, word in enumerate(words) if word.lower() in {"the", "a", "an", "of", "to", "is", "do", "does"}]
    if small:
        del words[rng.choice(small)]
    return " ".join(words)


def _surround(text: str, rng: Random) -> str:
    if rng.random() < 0.15:
        text = rng.choice(OPENERS) + text[:1].lower() + text[1:]
    if rng.random() < 0.08:
        mark = text[-1] if text[-1] in "?!." else ""
        text = text.rstrip("?!.") + rng.choice(CLOSERS) + mark
    return text


def _recase(text: str, rng: Random) -> str:
    roll = rng.random()
    if roll < 0.35:
        return text.lower()
    return text.upper() if roll < 0.37 else text


def vary(question: str, rng: Random) -> str:
    """The question as somebody in a hurry might type it; never empty."""
    text = _surround(question, rng)
    if rng.random() < 0.1:
        text = _drop_word(text, rng)
    if rng.random() < 0.1 and len(text) > 8:
        text = _typo(text, rng)
    if rng.random() < 0.3:
        text = text.rstrip("?!.")
    elif rng.random() < 0.06:
        text = text.rstrip("?!.") + rng.choice(("??", "?!", " ?", "!"))
    return _recase(text, rng) or question


def invented_word(rng: Random) -> str:
    """A word that means nothing, so that not knowing is learned as a rule and not as a list."""
    word = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 4)))
    return word.capitalize() if rng.random() < 0.3 else word
