"""Small tasks whose answers are right by construction: counting, lists, words; sums are refused. corpus/tasks.md asks.

The questions are already varied; to misspell one would change its answer. Knows nothing about localspec's own subjects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from training.corpus import Entry, read
from training.vary import invented_word

HELD_OUT = 2  # the last phrasings of each task, kept from training
LARGEST = 20  # what the model counts up to
BEYOND_SHARE = 0.2  # tasks that ask for more than that
INVENTED_SHARE = 0.15  # words that mean nothing, so that copying is learned as a rule
COUNT_LIMIT = f"I can count only up to {LARGEST}."
NO_SUMS = "I cannot answer that: I do not calculate, not even small sums. Use a calculator, or a larger model."
_WORDS = """
    apple arm baby bag ball bank bed bell bird blue boat book bottle box boy brain bread bridge brown bus butter cake
    camera car cat chair cheese child city clock cloud coat coffee cold corn cow cup dance day desk dog door draft dream
    dress dust ear earth egg eye face farm father field fire fish flag floor flower food foot forest friend fruit game
    garden girl glass gold grass green guide hair hammer hand happy hat head heart hill home honey horse house ice
    island juice key king kitchen knife lake lamp leaf lemon letter light lion localspec machine map market milk mirror
    model money moon morning mother mountain mouse music name nest night nose ocean onion orange paper park pen pencil
    piano picture pig pizza plant plate pocket potato queen rabbit rain red rice ring river road rock roof room rose
    salt sand school sea shirt shoe silver sister sky small snow soap song soup spoon star stone storm street sugar
    sun table tea tiger token tomato tower train tree turtle wall watch water wheel white wind window winter wolf wood
    yellow zebra
"""
_NUMBERS = """
    zero one two three four five six seven eight nine ten
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty
"""
WORDS, NUMBERS = tuple(_WORDS.split()), tuple(_NUMBERS.split())


@dataclass(frozen=True, slots=True)
class Series:
    """Things with a fixed order, and what one and all of them are called."""

    one: str
    names: tuple[str, ...]
    items: tuple[str, ...]
    has_neighbours: bool = True  # "what comes after A" must mean one thing only
    is_cycle: bool = False


_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
_MONTHS = "January February March April May June July August September October November December"
_PLANETS = "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune"
_COLOURS = "red orange yellow green blue indigo violet"
DAYS = tuple(_DAYS.split())
EVEN = tuple(str(n) for n in range(2, LARGEST + 1, 2))
ODD = tuple(str(n) for n in range(1, LARGEST, 2))
SERIES = (
    Series("day of the week", ("days of the week", "days in a week"), DAYS, is_cycle=True),
    Series("month of the year", ("months of the year", "months"), tuple(_MONTHS.split()), is_cycle=True),
    Series("season", ("seasons", "seasons of the year"), ("spring", "summer", "autumn", "winter"), is_cycle=True),
    Series("planet", ("planets", "planets of the solar system"), tuple(_PLANETS.split())),
    Series("colour of the rainbow", ("colours of the rainbow", "rainbow colours"), tuple(_COLOURS.split())),
    Series("color of the rainbow", ("colors of the rainbow", "rainbow colors"), tuple(_COLOURS.split())),
    Series(
        "letter of the alphabet",
        ("letters of the alphabet", "letters in the alphabet"),
        tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ),
    Series("vowel", ("vowels", "vowels in English"), tuple("AEIOU"), has_neighbours=False),
    Series("day of the weekend", ("days of the weekend", "weekend days"), DAYS[5:], has_neighbours=False),
    Series("working day", ("working days", "working days of the week"), DAYS[:5], has_neighbours=False),
    Series("even number up to 20", ("even numbers up to 20", "even numbers from 2 to 20"), EVEN, has_neighbours=False),
    Series("odd number up to 20", ("odd numbers up to 20", "odd numbers from 1 to 19"), ODD, has_neighbours=False),
)
NEIGHBOURLY = tuple(series for series in SERIES if series.has_neighbours)


@dataclass(frozen=True, slots=True)
class Filling:
    """The fillings of a template's gaps, and the answer that makes it right."""

    fields: dict[str, str]
    answer: str


def listed(items: Iterable[str]) -> str:
    """Items on one line."""
    return ", ".join(items)


def bulleted(items: Iterable[str]) -> str:
    """Items as a Markdown bullet list."""
    return "\n".join(f"- {item}" for item in items)


def numbered(items: Iterable[str]) -> str:
    """Items as a Markdown numbered list."""
    return "\n".join(f"{place}. {item}" for place, item in enumerate(items, start=1))


def tabled(items: Iterable[str]) -> str:
    """Items as a Markdown table, one row each."""
    rows = "\n".join(f"| {place} | {item} |" for place, item in enumerate(items, start=1))
    return f"| No. | Word |\n| --- | --- |\n{rows}"


def _number(value: int, rng: Random) -> str:
    in_words = value < len(NUMBERS) and rng.random() < 0.15
    return NUMBERS[value] if in_words else str(value)


def _asked(items: Sequence[str], rng: Random) -> str:
    """Items the way a person writes a list."""
    head, last = items[:-1], items[-1]
    return rng.choice((listed(items), listed(items), " ".join(items), f"{listed(head)} and {last}"))


def _words(rng: Random, most: int = 6, invented: bool = True) -> list[str]:
    words = rng.sample(WORDS, rng.randint(2, most))
    if invented and rng.random() < INVENTED_SHARE:
        words[rng.randrange(len(words))] = invented_word(rng).lower() + "x"  # no ordinary word, so never one twice
    return words


def _up_to(rng: Random) -> Filling:
    if rng.random() < BEYOND_SHARE:
        return Filling({"n": str(rng.choice((30, 50, 100, 1000, rng.randint(LARGEST + 1, 200))))}, COUNT_LIMIT)
    n = rng.randint(2, LARGEST)
    return Filling({"n": _number(n, rng)}, listed(map(str, range(1, n + 1))))


def _between(rng: Random) -> Filling:
    a, b = sorted(rng.sample(range(1, LARGEST + 1), 2))
    return Filling({"a": _number(a, rng), "b": _number(b, rng)}, listed(map(str, range(a, b + 1))))


def _down(rng: Random) -> Filling:
    if rng.random() < BEYOND_SHARE:
        return Filling({"n": str(rng.choice((30, 50, 100, rng.randint(LARGEST + 1, 200))))}, COUNT_LIMIT)
    n = rng.randint(2, LARGEST)
    return Filling({"n": _number(n, rng)}, listed(map(str, range(n, 0, -1))))


def _next_number(step: int) -> Callable[[Random], Filling]:
    def fill(rng: Random) -> Filling:
        n = rng.randint(2, LARGEST - 1)
        return Filling({"n": _number(n, rng)}, str(n + step))

    return fill


def _series(show: Callable[[tuple[str, ...]], str]) -> Callable[[Random], Filling]:
    def fill(rng: Random) -> Filling:
        series = rng.choice(SERIES)
        return Filling({"series": rng.choice(series.names), "one": series.one}, show(series.items))

    return fill


def _series_count(rng: Random) -> Filling:
    series = rng.choice(SERIES)
    name = rng.choice(series.names)
    return Filling({"series": name}, f"There are {len(series.items)} {name}.")


def _neighbour(step: int) -> Callable[[Random], Filling]:
    def fill(rng: Random) -> Filling:
        series = rng.choice(NEIGHBOURLY)
        count = len(series.items)
        places = range(count) if series.is_cycle else range(max(0, -step), count - max(0, step))
        place = rng.choice(places)
        fields = {"item": series.items[place], "series": rng.choice(series.names), "one": series.one}
        return Filling(fields, series.items[(place + step) % count])

    return fill


def _given(show: Callable[[list[str]], str], invented: bool = True, most: int = 6) -> Callable[[Random], Filling]:
    def fill(rng: Random) -> Filling:
        words = _words(rng, most, invented)
        return Filling({"words": _asked(words, rng)}, show(words))

    return fill


def _sorted_numbers(reverse: bool) -> Callable[[Random], Filling]:
    def fill(rng: Random) -> Filling:
        numbers = rng.sample(range(1, LARGEST + 1), rng.randint(2, 5))
        in_order = sorted(numbers, reverse=reverse)
        return Filling({"words": _asked([str(n) for n in numbers], rng)}, listed(map(str, in_order)))

    return fill


def _word(show: Callable[[str], str], ask: Callable[[str], str] = str) -> Callable[[Random], Filling]:
    def fill(rng: Random) -> Filling:
        word = rng.choice(WORDS)
        return Filling({"word": ask(word)}, show(word))

    return fill


def _phrase(rng: Random) -> Filling:
    one, two = rng.sample(WORDS, 2)
    phrases = (one, f"{one} {two}", f"the {one} and the {two}", f"My {one} is here", f"I like the {one}")
    phrase = rng.choice((*phrases, " ".join(_words(rng)), f"The {one} is on the {two}", f"hello {one}"))
    return Filling({"phrase": phrase}, phrase)


def _times(rng: Random) -> Filling:
    word, n = rng.choice(WORDS), rng.randint(2, 6)
    return Filling({"word": word, "n": _number(n, rng)}, " ".join([word] * n))


def _sum(rng: Random) -> Filling:
    """Sums of any kind and size: it learned to answer some, and most of its answers were wrong."""
    most = rng.choice((10, LARGEST, 100, 1000))
    a, b = rng.randint(0, most), rng.randint(0, most)
    return Filling({"a": _number(a, rng), "b": _number(b, rng)}, NO_SUMS)


def _chosen(choose: Callable[[list[int]], int]) -> Callable[[Random], Filling]:
    def fill(rng: Random) -> Filling:
        pair = rng.sample(range(LARGEST + 1), 2)
        return Filling(dict(zip("ab", map(str, pair), strict=True)), str(choose(pair)))

    return fill


KINDS: dict[str, Callable[[Random], Filling]] = {
    "count-up": _up_to,
    "count-between": _between,
    "count-down": _down,
    "after-number": _next_number(1),
    "before-number": _next_number(-1),
    "series-list": _series(listed),
    "series-bullets": _series(bulleted),
    "series-numbered": _series(numbered),
    "series-backwards": _series(lambda items: listed(reversed(items))),
    "series-first": _series(lambda items: items[0]),
    "series-last": _series(lambda items: items[-1]),
    "series-after": _neighbour(1),
    "series-before": _neighbour(-1),
    "series-count": _series_count,
    "reverse": _given(lambda words: listed(reversed(words))),
    "sort-words": _given(lambda words: listed(sorted(words)), invented=False, most=4),
    "sort-numbers": _sorted_numbers(reverse=False),
    "sort-numbers-down": _sorted_numbers(reverse=True),
    "bullets": _given(bulleted),
    "numbered": _given(numbered),
    "table": _given(tabled),
    "upper": _word(str.upper),
    "lower": _word(str.lower, ask=str.upper),
    "capitalise": _word(str.capitalize),
    "repeat": _phrase,
    "times": _times,
    "first": _given(lambda words: words[0]),
    "last": _given(lambda words: words[-1]),
    "how-many-words": _given(lambda words: str(len(words))),
    "spell": _word("-".join),
    "letters": _word(lambda word: str(len(word))),
    "add": _sum,
    "subtract": _sum,
    "multiply": _sum,
    "larger": _chosen(max),
    "smaller": _chosen(min),
}


@cache
def wordings() -> dict[str, Entry]:
    """The templates of every kind of task."""
    return {entry.key: entry for entry in read("tasks.md")}


def _dressed(template: str, rng: Random) -> str:
    """The template in another case or without its last mark; the places to fill stay as they are."""
    if rng.random() < 0.3:
        template = template.lower()
    if rng.random() < 0.3:
        template = template.rstrip("?.")
    return f"please {template[:1].lower()}{template[1:]}" if rng.random() < 0.05 else template


def _task(rng: Random, cut: slice) -> tuple[str, str]:
    kind = rng.choice(tuple(KINDS))
    filling = KINDS[kind](rng)
    template = rng.choice(wordings()[kind].phrasings[cut])
    return _dressed(template, rng).format(**filling.fields), filling.answer


def task(rng: Random) -> tuple[str, str]:
    """A question and its right answer."""
    return _task(rng, slice(None, -HELD_OUT))


def held_out_task(rng: Random) -> tuple[str, str]:
    """A question worded as none in training is, and its right answer."""
    return _task(rng, slice(-HELD_OUT, None))
