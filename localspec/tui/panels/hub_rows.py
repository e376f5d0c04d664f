"""What a search of the hub found, as lines: repository, size, fit, licence, gate, pair, and whether it is here.

Knows records; the widths that they are shown in are the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from localspec.core.sanitize import one_line
from localspec.core.sizes import count_words, size_words
from localspec.engine.drafters.table import names_without_model
from localspec.history.text.columns import cells, cut, fitted
from localspec.hub.records import SearchRow
from localspec.loading.fit import FitReport
from localspec.runtime.pairs import DrafterCandidate
from localspec.tui.themes import QUIET

WIDE, NARROW = 74, 70  # columns from which licence and pair may have their own, and under which a gate may not
LEAST_NAME, LEAST_OTHER = 14, 6  # columns of a repository's name, and of a licence or a pair that is cut
CUT_WIDE, CUT_NARROW = (5, 3), (3,)  # columns that give way to a name: the pair, the licence; a gate
ABOUT = "≈"
GGUF = "GGUF"  # a note that excludes nothing
GATES = {"": "", "auto": "gated", "manual": "gated by hand"}
TONES = {"fits": "$text-success", "from disk": "$text-warning", "too large": "$text-error"}
RANKS = ("fits", "from disk", "", "too large")


@dataclass(frozen=True, slots=True)
class Listing:
    """A row of the search with what was found out since. `fit` None: its size and fit are estimates. `drafter`: it is
    listed with this one. `here`: "✓ disk", "↓ 50 %", …"""

    row: SearchRow
    fit: FitReport | None = None
    drafter: DrafterCandidate | None = None
    here: str = ""

    @property
    def word(self) -> str:
        """The word for its fit, or why localspec cannot run it."""
        return self.row.note or (self.fit.word if self.fit else self.row.fit)

    @property
    def is_estimate(self) -> bool:
        return self.fit is None or self.fit.approximate

    @property
    def fits(self) -> bool:
        return self.rank < RANKS.index("")

    @property
    def rank(self) -> int:
        """Its place by fit, the best first."""
        return rank(self.row.fit if self.row.note == GGUF else self.word)

    @property
    def num_bytes(self) -> int:
        """The size, of both where it has a drafter: of its weights, as soon as their headers were read."""
        own = self.fit.num_bytes if self.fit is not None and not self.fit.approximate else 0
        return (own or self.row.num_bytes) + (self.drafter.num_bytes if self.drafter else 0)

    @property
    def size(self) -> str:
        return f"{ABOUT if self.is_estimate else ''}{size_words(self.num_bytes)}" if self.num_bytes else "–"

    @property
    def gate(self) -> str:
        return GATES[self.row.gated]

    @property
    def pair(self) -> str:
        if self.drafter is not None:
            verdict = self.drafter.verdict
            return f"+ {short(self.drafter.name)}{f' {one_line(verdict.reason)}' if verdict else ''}"
        own = self.row.pair in ("", *names_without_model())
        return self.row.pair if own else f"+ {short(self.row.pair)}"


def rank(word: str) -> int:
    """The rank of a word among those for a fit, the best first."""
    return next((index for index, known in enumerate(RANKS) if known and word.startswith(known)), RANKS.index(""))


def tone(listing: Listing) -> str:
    """The colour of the word: an estimate has none."""
    if listing.is_estimate or listing.row.note:
        return QUIET
    return next((tone for word, tone in TONES.items() if listing.word.startswith(word)), "")


def short(repo: str) -> str:
    """The repository without its owner."""
    return one_line(repo).rpartition("/")[2]


def padded(text: str, width: int, *, right: bool = False) -> str:
    gap = " " * max(0, width - cells(text))
    return gap + text if right else text + gap


def listed(listings: Sequence[Listing], width: int) -> list[Content]:
    """The rows in columns. What licence and pair have is left by the name; both are in the detail line, too."""
    texts = [columns_of(one, wide=width >= WIDE) for one in listings]
    if not texts:
        return []
    widths = [max(map(cells, column)) for column in zip(*texts, strict=True)]
    cut_last = CUT_WIDE if width >= WIDE else CUT_NARROW if width < NARROW else ()
    others = [index for index in range(1, len(widths)) if index not in cut_last]
    left = width - sum(widths[index] + 2 for index in others if widths[index])
    widths[0] = max(LEAST_NAME, min(widths[0], left))
    shares = fitted([widths[index] for index in cut_last], left - widths[0], LEAST_OTHER)
    for index, share in zip(cut_last, shares, strict=True):
        widths[index] = share
    return [line(one, text, widths) for one, text in zip(listings, texts, strict=True)]


def columns_of(listing: Listing, *, wide: bool) -> tuple[str, ...]:
    row = listing.row
    first = (one_line(row.repo), listing.size, one_line(listing.word) or "unknown")
    middle = (one_line(row.licence.words), listing.gate, listing.pair) if wide else (listing.gate,)
    return (*first, *middle, listing.here)


def line(listing: Listing, texts: Sequence[str], widths: Sequence[int]) -> Content:
    name, size, word, *others = texts
    first = f"{padded(cut(name, widths[0]), widths[0])}  {padded(size, widths[1], right=True)}  "
    shown = [(cut(text, width), width) for text, width in zip(others, widths[3:], strict=True) if width]
    rest = "".join(f"  {padded(text, width)}" for text, width in shown)
    return Content.assemble(first, (padded(word, widths[2]), tone(listing)), (rest.rstrip(), QUIET))


def detail(listing: Listing) -> Content:
    """Everything known about one, the exact fit last."""
    row = listing.row
    facts = [one_line(row.repo)]
    if row.parameters:
        facts.append(f"{count_words(row.parameters)} {one_line(row.dtype)}".rstrip())
    facts += [one_line(row.licence.words), listing.gate or "open"]
    facts += [listing.pair] if listing.pair else []
    return Content.assemble((" · ".join(facts), QUIET), "\n", exact(listing))


def exact(listing: Listing) -> str:
    """The fit in figures, or why there are none."""
    if listing.row.note == GGUF:
        return "GGUF: Enter lists its files, each with its fit."
    if listing.row.note:
        return f"Not for localspec: {one_line(listing.row.note)}."
    if listing.fit is None:
        return "Estimated from the number of parameters."
    report = listing.fit
    chosen = next((each for each in report.formats if each.quant == report.chosen), None)
    using = f"with {short(listing.drafter.name)} and " if listing.drafter else "with "
    if chosen is None:
        return f"{using}{report.context:,} tokens: {one_line(report.word)}; {size_words(report.free_bytes)} are free"
    left = report.free_bytes - chosen.total_bytes
    rest = f"{size_words(left)} left" if left >= 0 else f"{size_words(-left)} too little"
    return f"{using}{report.context:,} tokens: {size_words(chosen.total_bytes)} in {one_line(chosen.quant)}, {rest}"
