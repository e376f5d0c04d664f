"""The exam's scores with and without speculation, as Markdown, JSON or CSV, and whether speculation changed them.

Knows nothing about how the answers were made or graded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any  # Any: JSON

from localspec.bench.report import PLAIN
from localspec.bench.tables import csv_text, markdown
from localspec.core.sanitize import clean
from localspec.core.weight_formats import find_format

COLUMNS = ["method", "format", "k", "known right", "honest", "newcomer", "equal"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One phrasing, asked and graded. `group`: known, unknown or newcomer. `good`: right, or honest where only that is.
    `cut`: at the length that was asked for."""

    key: str
    question: str
    group: str
    answer: str
    good: bool
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Sitting:
    """The whole exam, taken in one way. `failed`: the drafter did not draft, or not to the end."""

    method: str
    k: str
    quant: str
    device: str
    answers: tuple[Answer, ...]
    failed: bool = False

    @property
    def name(self) -> str:
        return f"{self.method} (failed: decoded plain)" if self.failed else self.method

    @property
    def texts(self) -> list[str]:
        return [answer.answer for answer in self.answers]

    def asked(self, group: str) -> int:
        return sum(answer.group == group for answer in self.answers)

    def good(self, group: str) -> int:
        return sum(answer.good for answer in self.answers if answer.group == group)

    @property
    def scores(self) -> tuple[int, int, int]:
        """Known questions answered right, unknown ones honestly, and a newcomer's one way or the other."""
        return self.good("known"), self.good("unknown"), self.good("newcomer")


@dataclass(frozen=True, slots=True)
class Score:
    """One sitting's row. `equal`: answers whose text is that of plain decoding in the same format."""

    method: str
    k: str
    quant: str
    right: int
    known: int
    honest: int
    unknown: int
    newcomer_good: int
    newcomer: int
    equal: int


@dataclass(frozen=True, slots=True)
class ExamReport:
    """Every sitting, each format's plain one first. `list_wrong`: Markdown ends with what was not good."""

    task: str
    model: str
    machine: dict[str, str]
    sittings: tuple[Sitting, ...]
    notes: tuple[str, ...] = ()
    list_wrong: bool = False

    def rows(self) -> list[Score]:
        return [self.row(sitting) for sitting in self.sittings]

    def row(self, sitting: Sitting) -> Score:
        right, honest, good = sitting.scores
        known, unknown, newcomer = map(sitting.asked, ("known", "unknown", "newcomer"))
        equal = sum(a == b for a, b in zip(sitting.texts, self.plain(sitting).texts, strict=True))
        counts = (right, known, honest, unknown, good, newcomer, equal)
        return Score(sitting.name, sitting.k, sitting.quant, *counts)

    def plain(self, sitting: Sitting) -> Sitting:
        return next(one for one in self.sittings if (one.method, one.quant) == (PLAIN, sitting.quant))

    @property
    def losses(self) -> tuple[str, ...]:
        """A sentence for every sitting that speculation changed, its scores, or in int8 and int4 any text; and for
        every one that did not speculate."""
        return tuple(self.find_losses())

    def find_losses(self) -> Iterator[str]:
        for sitting in self.sittings:
            plain = self.plain(sitting)
            if sitting.failed:
                yield f"{sitting.method} in {sitting.quant} decoded plain, so its scores say nothing of speculation."
            where = f"Speculation is not lossless: {sitting.method} in {sitting.quant}"
            if sitting.scores != plain.scores:
                yield f"{where} scores {in_words(sitting.scores)}, plain {in_words(plain.scores)}."
            elif find_format(sitting.quant).is_packed and sitting.texts != plain.texts:
                yield f"{where} writes other text than plain."

    def to_markdown(self) -> str:
        machine = " · ".join(f"{name} {value}" for name, value in self.machine.items())
        head = f"{self.model} · exam {self.task} · greedy\n{machine}"
        table = markdown([COLUMNS, *map(cells, self.rows())])
        wrong = [*self.wrong_answers()] if self.list_wrong else []
        return "\n\n".join([head, table, *self.notes, *wrong])

    def wrong_answers(self) -> Iterator[str]:
        """The answers that were not good, the same of several sittings once."""
        found: dict[tuple[str, str], list[str]] = {}
        for sitting in self.sittings:
            for one in sitting.answers:
                if not one.good:
                    found.setdefault((one.question, one.answer), []).append(f"{sitting.quant} {sitting.method}")
        for (question, answer), methods in found.items():
            yield f"**{question}** ({', '.join(methods)})\n\n{quoted(answer)}"

    def to_json(self) -> str:
        """Every question with its answer too."""
        fields: dict[str, Any] = {"task": self.task, "model": self.model, "machine": self.machine}
        rows = [asdict(row) for row in self.rows()]
        answers = [
            {"method": sitting.name, "quant": sitting.quant, **asdict(answer)}
            for sitting in self.sittings
            for answer in sitting.answers
        ]
        return json.dumps({**fields, "rows": rows, "notes": self.notes, "answers": answers}, indent=1)

    def to_csv(self) -> str:
        return csv_text([{"task": self.task, "model": self.model, **asdict(row)} for row in self.rows()])


def in_words(scores: tuple[int, int, int]) -> str:
    right, honest, good = scores
    return f"{right} right, {honest} honest and {good} good to a newcomer"


def cells(row: Score) -> list[str]:
    return [
        row.method,
        row.quant,
        row.k,
        share(row.right, row.known),
        share(row.honest, row.unknown),
        share(row.newcomer_good, row.newcomer),
        f"{row.equal}/{row.known + row.unknown + row.newcomer}",
    ]


def share(count: int, total: int) -> str:
    return f"{count}/{total} {count / total:.1%}" if total else "–"


def quoted(text: str) -> str:
    """The text of a model as a quotation, without control characters."""
    return "\n".join(f"> {line}".rstrip() for line in clean(text).splitlines() or [""])
