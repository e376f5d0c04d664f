"""Seeded variation of questions: case, punctuation, politeness, synonyms, missing words, typing errors, stories.

Works on plain strings. Knows nothing about answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

OPENERS = (
    "please tell me: ", "hey, ", "hi! ", "quick question: ", "ok, ", "so ", "and ", "um, ", "sorry, ", "excuse me, ",
    "I want to know, ", "can you tell me, ", "one more thing: ", "now, ", "well, ", "I was wondering, ", "hello, ",
    "tell me, ", "do you know, ", "I would like to know: ", "please explain: ", "just curious: ", "question: ",
    "in localspec, ", "with localspec, ", "in this program, ", "here, ", "help: ", "I am new to this. ",
    "in simple words: ", "in plain English: ", "explain it to me like I'm twelve: ", "for a beginner: ",
    "explain like I am five: ", "without jargon: ", "I don't get it. ", "stupid question: ", "hm, ", "so... ",
    "ok then, ", "let's say I am a child. ", "my boss asks: ", "remind me, ",
)  # fmt: skip
CLOSERS = (
    " please", ", please", " thanks", ", thank you", " exactly", " then", " here", " :)", "...", " in localspec",
    " with localspec", " in this program", " in this tool", " again", " now", " for me", ", in simple words",
    ", explained simply", " like I'm twelve", " for a beginner", " for dummies", " in plain English",
    " in your own words", ", step by step", ", I'm lost", ", anyone", " pls", " thx",
)  # fmt: skip
SYLLABLES = (
    "ba", "be", "bo", "cra", "da", "del", "dro", "fi", "fla", "gor", "gu", "hin", "jo", "ka", "kel", "lu", "ma",
    "mi", "mor", "na", "nix", "o", "pa", "pel", "qua", "ri", "ro", "sa", "sti", "ta", "tor", "u", "vel", "wi",
    "xan", "yo", "zu",
)  # fmt: skip
FILLERS = frozenset(
    """a an the of to is do does did are be it this that i you me my your can could would will should please so and in
    on for with at just really actually there here get have has want need like""".split()  # noqa: SIM905
)
QUESTION_WORDS = frozenset(
    "how what why when where which who whose what's how's explain tell show describe".split()  # noqa: SIM905
)
# Words and openings of which one may stand for another without changing what is asked.
SYNONYMS = (
    ("how do i", "how can i", "how to", "how would i", "how should i", "what is the way to", "is there a way to",
     "can i", "what do i do to", "i want to", "i need to", "how does one", "tell me how to", "show me how to",
     "what is the best way to", "could you tell me how to", "i'd like to", "how might i", "steps to"),
    ("what is", "what's", "explain", "define", "what does it mean:", "tell me about", "describe", "what exactly is",
     "give me the meaning of", "what do you mean by", "please explain", "can you explain", "what is meant by"),
    ("what are", "explain", "tell me about", "describe", "list", "which are"),
    ("why is", "why's", "how come", "what is the reason", "for what reason is"),
    ("why does", "how come", "what makes", "for what reason does"),
    ("is there", "do you have", "does it have", "does localspec have", "are there", "can i get"),
    ("can i", "could i", "may i", "is it possible to", "am i able to", "is there a way to", "how do i"),
    ("where is", "where do i find", "where can i find", "where's"),
    ("stop", "cancel", "interrupt", "abort", "halt", "cut off"),
    ("show", "display", "see", "view", "look at"),
    ("quit", "exit", "leave", "close"),
    ("option", "flag", "switch", "parameter"),
    ("choose", "pick", "select"),
    ("change", "set", "adjust", "modify", "alter"),
    ("start", "begin", "launch", "open"),
    ("make", "get", "have"),
    ("use", "run with", "work with"),
    ("quick", "fast", "speedy"),
    ("quicker", "faster", "speedier"),
    ("answer", "reply", "response", "output"),
    ("answers", "replies", "responses"),
    ("error", "failure", "problem"),
    ("folder", "directory"),
    ("picture", "image"),
    ("big", "large"), ("bigger", "larger"), ("small", "little", "tiny"), ("smaller", "tinier"),
    ("difference", "contrast", "distinction"),
    ("need", "require"), ("needs", "requires"), ("mean", "stand for", "say"), ("means", "stands for"),
    ("good", "useful", "worth it"), ("happens", "goes on", "occurs"),
    ("guess", "propose", "predict"), ("guesses", "proposes", "predicts"),
    ("computer", "machine", "pc"), ("kind", "type", "sort"), ("kinds", "types", "sorts"),
    ("wrong", "incorrect", "false"), ("right", "correct"), ("everything", "all"),
    ("erase", "delete", "remove", "clear"),
    ("keep", "save", "store"), ("write", "type", "enter"), ("message", "question"), ("shortcut", "key"),
    ("tell", "inform"), ("purpose", "point", "use", "aim"), ("don't", "do not"), ("doesn't", "does not"),
    ("can't", "cannot", "can not"), ("it's", "it is"), ("i'm", "i am"), ("isn't", "is not"), ("didn't", "did not"),
)  # fmt: skip
SYNONYM_SHARE, SURROUND_SHARE, DROP_SHARE = 0.35, 0.15, 0.2
TYPO_SHARE, TYPOS = 0.2, (1, 1, 1, 2, 2, 3)  # a fifth of the questions has typing errors, mostly one or two
APOSTROPHE_SHARE = 0.3  # of the questions that have one: it is left out
FORGET_SHARE, FORGOTTEN = 0.4, 0.15
PLAIN = re.compile(
    r"(?<!\S)[A-Za-z']{3,}(?=[\s?!.,:;]|$)"
)  # no flag, path, key or number: those are copied or looked up
BESIDE = dict(zip("abcdefghijklmnopqrstuvwxyz", "svxswdfguihkjnibaertecaztx", strict=True))  # on the keyboard
WORD = re.compile(r"[A-Za-z0-9'/_+-]+(?:\.[A-Za-z0-9]+)*")


def _groups() -> dict[str, tuple[str, ...]]:
    found = dict[str, tuple[str, ...]]()
    for group in SYNONYMS:
        for phrase in group:
            found.setdefault(phrase, group)
    return found


GROUP_OF = _groups()
PHRASE = re.compile(r"\b(" + "|".join(sorted(map(re.escape, GROUP_OF), key=len, reverse=True)) + r")(?![\w'])", re.I)


def _typo(text: str, rng: Random) -> str:
    """One slip in a plain word: two letters swapped, one missing, doubled or that of the key beside it; or the space
    behind the word."""
    words = list(PLAIN.finditer(text))
    if not words:
        return text
    word = rng.choice(words)
    place = rng.randrange(word.start(), word.end())
    before, letter, after = text[:place], text[place], text[place + 1 :]
    slips = [before + after, before + letter + letter + after]  # "drafer", "draffter"
    if place + 1 < word.end():
        slips += [before + after[0] + letter + after[1:]] * 2  # "waht"
    if letter.lower() in BESIDE:
        slips.append(before + BESIDE[letter.lower()] + after)
    if text[word.end() :].startswith(" ") and rng.random() < 0.1:
        slips.append(text[: word.end()] + text[word.end() + 1 :])  # "howdo"
    if twice := re.search(r"([a-z])\1", word[0]):
        slips.append(text[: word.start() + twice.start()] + text[word.start() + twice.end() - 1 :])  # "instal"
    return rng.choice(slips)


def _drop_words(text: str, rng: Random) -> str:
    words = text.split(" ")
    rate = rng.choice((0.15, 0.4, 1.0))
    kept = [word for word in words if word.lower().strip("?,.!") not in FILLERS or rng.random() > rate]
    return " ".join(kept) or text


def _forget_words(text: str, rng: Random) -> str:
    """Any word may be missing, so that no single one decides."""
    words = text.split(" ")
    return " ".join([word for word in words if rng.random() > FORGOTTEN] or words) if len(words) > 3 else text


def _synonyms(text: str, rng: Random) -> str:
    return PHRASE.sub(lambda m: rng.choice(GROUP_OF[m[0].lower()]) if rng.random() < 0.4 else m[0], text)


def _surround(text: str, rng: Random) -> str:
    if rng.random() < SURROUND_SHARE:
        text = rng.choice(OPENERS) + text[:1].lower() + text[1:]
    if rng.random() < SURROUND_SHARE / 2:
        mark = text[-1] if text[-1] in "?!." else ""
        text = text.rstrip("?!.") + rng.choice(CLOSERS) + mark
    return text


def _recase(text: str, rng: Random) -> str:
    roll = rng.random()
    if roll < 0.4:
        return text.lower()
    return text.upper() if roll < 0.41 else text


def vary(question: str, rng: Random) -> str:
    """The question as a person in a hurry might type it; never empty."""
    text = _synonyms(question, rng) if rng.random() < SYNONYM_SHARE else question
    if rng.random() < DROP_SHARE:
        text = _drop_words(text, rng)
    if rng.random() < FORGET_SHARE:
        text = _forget_words(text, rng)
    text = _surround(text, rng)
    if rng.random() < TYPO_SHARE:
        for _ in range(rng.choice(TYPOS)):
            text = _typo(text, rng)
    if rng.random() < APOSTROPHE_SHARE:
        text = text.replace("'", "")
    if rng.random() < 0.3:
        text = text.rstrip("?!.")
    elif rng.random() < 0.06:
        text = text.rstrip("?!.") + rng.choice(("??", "?!", " ?", "!"))
    return _recase(text, rng) or question


def tell(story: str, question: str) -> str:
    """The story with the question in its place; who types the one without capitals types the other so."""
    told = story.replace("{}", question)
    return told.lower() if question == question.lower() else told


def content_words(question: str) -> list[str]:
    """The words that carry the meaning."""
    words = [word for word in WORD.findall(question) if word.lower() not in FILLERS]
    return words or WORD.findall(question)


def keywords(phrasings: Sequence[str], rng: Random) -> str:
    """The content words of one way to ask, in another order, with one or two from another way."""
    words = content_words(rng.choice(phrasings))
    if rng.random() < 0.7:
        words += rng.sample(more := content_words(rng.choice(phrasings)), min(len(more), rng.randint(1, 2)))
    words = list(dict.fromkeys(words))
    rng.shuffle(words)
    return " ".join(words[:7]) or phrasings[0]


def elsewhere(question: str, subject: str) -> str:
    """The same form of question about another subject: every word that carries meaning makes way."""
    content = {word for word in content_words(question) if word.lower() not in QUESTION_WORDS}
    words = [
        subject if WORD.findall(word)[:1] and WORD.findall(word)[0] in content else word for word in question.split()
    ]
    once = [word for place, word in enumerate(words) if word != subject or subject not in words[:place]]
    return " ".join(once) if subject in once else f"{question.split(maxsplit=1)[0]} {subject}"


def invented_word(rng: Random) -> str:
    """A word that means nothing, so that not knowing is learned as a rule and not as a list."""
    word = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 4)))
    return word.capitalize() if rng.random() < 0.3 else word
