"""A download's plan in the lines of a question, and the answers that there are to it. Knows records only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localspec.core.sanitize import one_line
from localspec.core.sizes import count_words, size_words
from localspec.history.text.columns import columns
from localspec.history.text.lists import count as count_of
from localspec.hub import blobs
from localspec.hub.gates import gate_lines
from localspec.hub.licences import acknowledge, must_acknowledge
from localspec.hub.plan_words import flagged_sentence, offer_words, template_words
from localspec.hub.records import PullPlan, Repository
from localspec.loading.fit import FitReport
from localspec.models.hub_cache import SHORT_COMMIT

BOTH, ALONE, PAGE = "both", "alone", "page"
VARIANT = "variant:"


def plan_lines(plan: PullPlan) -> list[str]:
    """Everything a person wants to know before the download."""
    lines = [repository_line(plan.target)]
    if not plan.target.access.may_read:
        return [*lines, *gate_lines(plan.target.repo, plan.target.access, plan.meanwhile)]
    if plan.drafter is not None:
        lines.append(f"with {repository_line(plan.drafter)}")
    if plan.variants:
        return [*lines, "It has several models. Choose one:"]
    lines += [size_line(plan), fit_line(plan.fit), f"Speculation: {offer_words(plan.offer)}"]
    if plan.target.files and not plan.unloadable and not plan.target.chat_template:
        lines.append(f"Chat template: {template_words(plan)}")
    if plan.unloadable:
        lines.append(f"localspec cannot load it: {one_line(plan.unloadable)}")
    lines.append(flagged_sentence(plan))
    return list(filter(None, lines))


def repository_line(repository: Repository) -> str:
    facts = [f"{one_line(repository.repo)} @ {one_line(repository.commit)[:SHORT_COMMIT]}"]
    if repository.parameters:
        facts.append(f"{count_words(repository.parameters)} {one_line(repository.dtype)}".rstrip())
    facts.append(f"licence {one_line(repository.licence.words)}")
    if repository.access.gate == "granted":
        facts.append("gated; you have access")
    return " · ".join(facts)


def size_line(plan: PullPlan) -> str:
    count = len(plan.target.files) + (len(plan.drafter.files) if plan.drafter else 0)
    here = plan.num_bytes - plan.bytes_left
    parts = f" ({size_words(here)} are here)" if here else ""
    return f"{size_words(plan.num_bytes)} in {count_of(count, 'file')}{parts} · disk: {size_words(plan.disk_free)} free"


def fit_line(report: FitReport | None) -> str:
    if report is None:
        return ""
    chosen = next((each for each in report.formats if each.quant == report.chosen), None)
    takes = f": {size_words(chosen.total_bytes)} of {size_words(report.free_bytes)} free" if chosen else ""
    about = "about " if report.approximate else ""
    return f"This machine: {about}{one_line(report.word)} with {report.context:,} tokens{takes}"


def is_here(plan: PullPlan) -> bool:
    """Whether nothing of it has to be fetched or linked. Reads the disk."""
    return bool(plan.target.files) and not plan.unloadable and all(map(blobs.is_complete, repositories(plan)))


def choices(plan: PullPlan) -> list[tuple[str, str]]:
    """The answers to choose from, as values and words; none that would fetch what cannot be used."""
    page = [(PAGE, "See its page")]
    if not plan.target.access.may_read:
        return page
    if plan.variants:
        return [*zip((VARIANT + one.name for one in plan.variants), variant_lines(plan.variants), strict=True)]
    if plan.unloadable or plan.disk_free < plan.disk_needed:
        return page
    begin = "Accept the licence (non-commercial) and download" if needs_acceptance(plan) else "Download"
    if plan.drafter is None:
        return [(BOTH, begin), *page]
    return [(BOTH, f"{begin} both ({size_words(plan.bytes_left)})"), (ALONE, f"{begin} it alone"), *page]


def needs_acceptance(plan: PullPlan) -> bool:
    """Whether a licence that forbids commercial use is to be acknowledged first."""
    return any(must_acknowledge(one.repo, one.licence) for one in repositories(plan))


def accept(plan: PullPlan) -> None:
    """Remember that its licences were acknowledged."""
    for one in repositories(plan):
        if must_acknowledge(one.repo, one.licence):
            acknowledge(one.repo, one.licence)


def repositories(plan: PullPlan) -> Iterator[Repository]:
    yield from filter(None, (plan.target, plan.drafter))


def variant_lines(found: Sequence[FitReport]) -> list[str]:
    """The files of a GGUF repository in columns, each with its size and its fit."""
    rows = [(one_line(one.name), size_words(one.num_bytes), one_line(one.word)) for one in found]
    return columns(rows, right={1}).split("\n")
