"""Reads the text the model learns: files of questions in several phrasings with one answer each.

The format is in corpus/README.md. Knows nothing about tokens or training.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from localspec.core.errors import LocalspecError
from localspec.core.text_file import read_text

FOLDER = Path(__file__).with_name("corpus")
TOPICS = ("guide.md", "product.md", "models.md", "chat.md", "serve.md", "speculation.md", "machine.md", "talk.md")
MIN_PHRASINGS = 13  # twelve to learn from, one kept from training
MIN_THEN = 4  # of a question that only an answer before it explains
FOLLOW_UPS = ("more", "example", "shorter", "simpler", "why", "next")
NOTHING_MORE = "That is all I know about it. Ask me about another part of localspec."
NO_SUBJECT = "More about what? Ask me about localspec or speculative decoding first."
NO_EXAMPLE = "I have no example for that one. Ask me about another part of localspec."
NO_REASON = "I know no other reason than what I said. Ask me about another part of localspec."
NOTHING_NEXT = "There is no next step that I know of: that was all of it. What else would you like to do?"


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer, the ways to ask for it, and answers to questions that follow it."""

    key: str
    phrasings: tuple[str, ...]
    answer: str
    follow_ups: dict[str, str] = field(default_factory=dict)

    @property
    def trained(self) -> tuple[str, ...]:
        """Every phrasing but the last."""
        return self.phrasings[:-1]

    @property
    def held_out(self) -> str:
        """The phrasing that is never trained on."""
        return self.phrasings[-1]

    def follow_up(self, kind: str) -> str:
        """The answer to 'tell me more', 'give an example', 'shorter' and the like after this entry."""
        first = first_sentence(self.answer)
        fallback = {"more": NOTHING_MORE, "example": NO_EXAMPLE, "shorter": first, "simpler": first}
        fallback |= {"why": NO_REASON, "next": self.follow_ups.get("example", NOTHING_NEXT)}
        return self.follow_ups.get(kind, fallback[kind])


@dataclass(frozen=True, slots=True)
class Then:
    """Ways to ask for another entry's answer that are understood only after an answer: 'does it cost memory?'."""

    phrasings: tuple[str, ...]
    meant: Entry


@dataclass(frozen=True, slots=True)
class Corpus:
    """Everything the model learns."""

    known: tuple[Entry, ...]
    unknown: tuple[Entry, ...]
    follow_ups: dict[str, Entry]
    then: dict[str, tuple[Then, ...]]
    systems: tuple[str, ...]
    stories: tuple[str, ...]

    @property
    def fallback(self) -> str:
        """The answer to everything else."""
        return section(self.unknown, "questions").answer


def first_sentence(answer: str) -> str:
    """The first sentence of an answer that begins with prose; one that begins otherwise is short enough as it is."""
    line = answer.partition("\n")[0]
    if line.startswith(("```", "- ", "1.")) or ("." not in line and line.endswith(":")):
        return answer
    sentence = line.partition(". ")[0]
    return sentence if sentence.endswith((".", "!", "?")) else sentence.rstrip(":") + "."


def section(entries: Iterable[Entry], key: str) -> Entry:
    """The entry with this key."""
    for entry in entries:
        if entry.key == key:
            return entry
    raise LocalspecError(f"The corpus has no section '# {key}'.")


def _sections(text: str, name: str) -> Iterator[tuple[int, str, list[str]]]:
    """Each '# key' heading outside a code fence: its line number, key and lines."""
    key, start, lines, fenced = "", 0, list[str](), False
    for number, line in enumerate(text.splitlines(), start=1):
        fenced ^= line.startswith("```")
        if line.startswith("# ") and not fenced:
            if key:
                yield start, key, lines
            key, start, lines = line[2:].strip(), number, []
        elif key:
            lines.append(line)
        elif line.strip():
            raise LocalspecError(f"{name}:{number}: text before the first '# key' heading.")
    if fenced:
        raise LocalspecError(f"{name}:{start}: '{key}' has a code fence that is never closed.")
    if key:
        yield start, key, lines


def _entry(key: str, lines: list[str], where: str) -> Entry:
    phrasings, parts, kind, fenced = list[str](), {"answer": list[str]()}, "answer", False
    for line in lines:
        fenced ^= line.startswith("```")
        if line.startswith("? ") and not fenced:
            if any(parts["answer"]):
                raise LocalspecError(f"{where}: '{key}' has a question after its answer: '{line}'.")
            phrasings.append(line[2:].strip())
        elif line.startswith("+ ") and not fenced:
            kind = line[2:].strip()
            if kind not in FOLLOW_UPS or kind in parts:
                raise LocalspecError(f"{where}: '{key}' has a second or unknown part '+ {kind}'.")
            parts[kind] = []
        else:
            parts[kind].append(line)
    if not phrasings:
        raise LocalspecError(f"{where}: '{key}' has no phrasing; write one as '? How does it work?'.")
    texts = {kind: "\n".join(body).strip() for kind, body in parts.items()}
    answer = texts.pop("answer")
    if empty := [kind for kind, words in texts.items() if not words]:
        raise LocalspecError(f"{where}: '{key}' has nothing after '+ {empty[0]}'.")
    return Entry(key, tuple(phrasings), answer, texts)


def parse(text: str, name: str, *, known: bool = False, least: int = MIN_PHRASINGS) -> tuple[Entry, ...]:
    """The entries of one file; anything malformed or repeated is one sentence with its line. `known`: every entry has
    an answer, and `least` phrasings."""
    entries, seen = list[Entry](), dict[str, str]()
    for number, key, lines in _sections(text, name):
        where = f"{name}:{number}"
        entry = _entry(key, lines, where)
        for question in (f"# {key}", *entry.phrasings):
            if question.lower() in seen:
                raise LocalspecError(f"{where}: '{question}' is already in '{seen[question.lower()]}'.")
            seen[question.lower()] = key
        if known and not entry.answer:
            raise LocalspecError(f"{where}: '{key}' has no answer.")
        if known and len(entry.phrasings) < least:
            raise LocalspecError(f"{where}: '{key}' has fewer than {least} phrasings.")
        entries.append(entry)
    return tuple(entries)


def read(name: str, *, known: bool = False, least: int = MIN_PHRASINGS) -> tuple[Entry, ...]:
    """The entries of one of the corpus' files."""
    return parse(read_text(FOLDER / name, "corpus file"), name, known=known, least=least)


def _unrepeated(files: dict[str, tuple[Entry, ...]]) -> None:
    """A question has one answer in all files together."""
    seen = dict[str, str]()
    for name, entries in files.items():
        for entry in entries:
            where = f"'{entry.key}' of {name}"
            for question in entry.phrasings:
                other = seen.setdefault(question.lower().rstrip("?!. "), where)
                if other != where:
                    raise LocalspecError(f"'{question}' is asked both in {other} and in {where}.")


def then_of(ways: Iterable[Entry], known: Iterable[Entry]) -> dict[str, tuple[Then, ...]]:
    """What may be asked after each entry, by its key. In then.md an answer is a list: `subject subject > meant`."""
    named, found = {entry.key: entry for entry in known}, defaultdict[str, list[Then]](list)
    for way in ways:
        for line in way.answer.splitlines():
            subjects, _, meant = line.partition(" > ")
            if missing := [key for key in (*subjects.split(), meant) if key not in named]:
                raise LocalspecError(f"then.md: '{way.key}' names '{missing[0]}', which no entry is called.")
            for subject in subjects.split():
                found[subject].append(Then(way.trained, named[meant]))
    return {key: tuple(thens) for key, thens in found.items()}


def load() -> Corpus:
    """The corpus in this package."""
    unknown, frame = read("unknown.md"), read("frame.md")
    known = {name: read(name, known=True) for name in TOPICS}
    asked = tuple(entry for entry in unknown if entry.key == "questions")
    _unrepeated({**known, "unknown.md": asked, "frame.md": tuple(section(frame, kind) for kind in FOLLOW_UPS)})
    everything = tuple(entry for entries in known.values() for entry in entries)
    return Corpus(
        known=everything,
        unknown=unknown,
        follow_ups={kind: section(frame, kind) for kind in FOLLOW_UPS},
        then=then_of(read("then.md", known=True, least=MIN_THEN), everything),
        systems=section(frame, "systems").phrasings,
        stories=section(frame, "stories").phrasings,
    )
