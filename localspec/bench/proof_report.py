"""The result of a proof: a row for every drafter, and every difference. Knows no engine."""

from __future__ import annotations

from localspec.bench.tables import markdown, percent
from localspec.core.events import Record, share_accepted
from localspec.core.sanitize import one_line


class Difference(Record, frozen=True):
    """The first token at which a drafted answer is not the plain one. `gap`: by how much the plain forward prefers its
    own token, in logits; `rounding`: how far two logits move apart by the width of a forward. None where one answer
    ended sooner."""

    case: str
    position: int
    plain: str
    drafted: str
    gap: float | None = None
    rounding: float | None = None

    @property
    def is_near_tie(self) -> bool:
        return self.gap is not None and self.rounding is not None and self.gap <= self.rounding > 0

    @property
    def sentence(self) -> str:
        words = f"{self.case}: token {self.position} is {self.drafted!r} and plain {self.plain!r}"
        known = self.gap is not None and self.rounding is not None
        return words + (f" (gap {self.gap:.2g}, rounding {self.rounding:.2g})" if known else " (one answer ended)")


class ProofRow(Record, frozen=True):
    """One drafter: `answers` were written, `same` of them as without drafts. drafted = accepted + rejected + ignored.
    `fault`: why it drafted no more."""

    drafter: str
    answers: int
    same: int
    tokens: int
    drafted: int
    accepted: int
    rejected: int
    ignored: int
    differences: tuple[Difference, ...] = ()
    fault: str = ""

    @property
    def near_ties(self) -> int:
        return sum(one.is_near_tie for one in self.differences)

    @property
    def divergences(self) -> list[Difference]:
        return [one for one in self.differences if not one.is_near_tie]


class Proof(Record, frozen=True):
    """All rows; `notes` are sentences about drafters that are left out."""

    model: str
    quant: str
    device: str
    prompts: int
    max_tokens: int
    rows: tuple[ProofRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def diverged(self) -> list[ProofRow]:
        return [row for row in self.rows if row.divergences]

    @property
    def failed(self) -> list[ProofRow]:
        return [row for row in self.rows if row.fault]

    def to_markdown(self) -> str:
        head = f"{self.model} · {self.quant} · {self.device} · {self.prompts} prompts × {self.max_tokens} tokens"
        parts = [f"{head}, greedily and with a seed"]
        parts += [markdown([HEAD, *map(cells, self.rows)])] if self.rows else []
        parts += [f"{row.drafter}: {one_line(one.sentence)}" for row in self.rows for one in row.differences]
        return "\n\n".join([*parts, *self.notes, *self.verdict])

    @property
    def verdict(self) -> list[str]:
        """What is proven, and what is not; a divergence and a failed drafter are errors of the command."""
        if not self.rows:
            return ["No drafter can draft for this model, so there is nothing to prove."]
        idle = [f"{row.drafter} drafted nothing, so nothing is proven of it." for row in self.rows if not row.drafted]
        sound = [row for row in self.rows if row.drafted and not row.divergences and not row.fault]
        if not sound:
            return idle
        same, answers = sum(row.same for row in sound), sum(row.answers for row in sound)
        ties = sum(row.near_ties for row in sound)
        names = ", ".join(row.drafter for row in sound)
        of = f"{same} of {answers}" if ties else f"all {answers}"
        more = f", the others but for {ties} near ties" if ties else ""
        proven = f"with {names}, {of} answers are the same, token for token, as without it{more}"
        return [*idle, f"Drafting changed nothing: {proven}."]


HEAD = ["drafter", "answers", "same", "near ties", "diverged", "tokens", "drafted", "accepted"]


def cells(row: ProofRow) -> list[str]:
    name = f"{row.drafter} (failed: {row.fault})" if row.fault else row.drafter
    counts = (row.answers, row.same, row.near_ties, len(row.divergences), row.tokens, row.drafted)
    return [name, *map(str, counts), percent(share_accepted(row.accepted, row.rejected))]
