"""A fit as a table, and verdicts about pairs as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.history.text.columns import columns
from localspec.hub.plan_words import verdict_words
from localspec.hub.records import FitFound
from localspec.loading.fit_text import parts_table
from localspec.runtime.pairs import DrafterCandidate, PairVerdict

REMARKS = {
    "padding": " vLLM needs use_heterogeneous_vocab.",
    "controls-differ": " Few drafts are accepted; the text stays correct.",
    "translate": " It has another tokenizer, so its text is translated; the answer stays the same.",
}


def fit_text(found: FitFound) -> str:
    """A row for each format: what it takes, part by part, and whether it fits."""
    report = found.report
    beside = f" with {one_line(report.drafter)}" if report.drafter else ""
    read = f" (not downloaded: {size_words(found.bytes_read)} of headers were read)" if found.bytes_read else ""
    return f"{one_line(report.name)}{beside}{read}: memory in each weight format\n{parts_table(report)}"


def verdict_text(verdict: PairVerdict) -> str:
    """Whether the pair can be used, and why."""
    target, drafter = one_line(verdict.target), one_line(verdict.drafter)
    detail = one_line(verdict.detail)
    if not verdict.ok:
        return f"{one_line(verdict.reason)}: {detail}. {drafter} cannot draft for {target}."
    words = verdict_words(verdict)
    remark = REMARKS.get(verdict.reason, "")
    return f"{words[:1].upper()}{words[1:]}. {drafter} can draft for {target}.{remark}"


def candidates_table(found: Sequence[DrafterCandidate]) -> str:
    head = ("DRAFTER", "SIZE", "WHERE", "VERDICT")
    return columns([head, *map(candidate_row, found)], right={1})


def candidate_row(one: DrafterCandidate) -> tuple[str, str, str, str]:
    verdict = one.verdict
    words = "not compared" if verdict is None else verdict_words(verdict)
    where = "on this machine" if one.on_disk else "hub"
    return one_line(one.name), size_words(one.num_bytes) if one.num_bytes else "–", where, words
