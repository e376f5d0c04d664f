"""What is shown before and after a download, as text: the plan, and the next command. Asks and prints nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from localspec.core.sanitize import one_line
from localspec.core.sizes import count_words, size_words
from localspec.engine.drafters.table import has_model
from localspec.hub.plan_words import flagged_sentence, offer_words, template_words
from localspec.hub.records import Fetched, PullPlan, Repository
from localspec.loading.fit import FitReport
from localspec.models.catalog import Catalog
from localspec.models.gguf import stores
from localspec.models.hub_cache import SHORT_COMMIT

GAP = "   "
WIDTH, SPACE = 80, "\N{NO-BREAK SPACE}"


def plan_text(plan: PullPlan) -> str:
    """Everything that a person wants to know before the download."""
    lines = [heading(plan.target), f"  {contents(plan.target)}{GAP}disk: {size_words(plan.disk_free)} free"]
    lines += [*flagged_lines(plan), *fit_lines(plan), f"  speculation: {offer_words(plan.offer)}"]
    if plan.drafter is not None:
        lines += [f"  + {heading(plan.drafter)}", f"    {contents(plan.drafter)}"]
    if not plan.unloadable:
        lines.append(f"  chat template: {template_words(plan)}")
    return "\n".join(lines)


def heading(one: Repository) -> str:
    """A repository's name, commit, licence and gate."""
    parts = [f"{one_line(one.repo)} @ {one.commit[:SHORT_COMMIT]}", f"licence {one_line(one.licence.words)}"]
    if one.access.by_hand:
        parts.append("gated: its authors review each request")
    elif one.access.gate != "open":
        parts.append("gated")
    return GAP.join(parts)


def contents(one: Repository) -> str:
    count = len(one.files)
    parts = [f"{size_words(one.num_bytes)} in {count} file{'s' * (count != 1)}"]
    if one.parameters:
        parts.append(f"{count_words(one.parameters)} parameters")
    here = f" ({size_words(one.bytes_here)} are here)" if one.bytes_here else ""
    return ", ".join([*parts, *([one_line(one.dtype)] if one.dtype else [])]) + here


def flagged_lines(plan: PullPlan) -> Iterator[str]:
    if sentence := flagged_sentence(plan):
        yield from wrapped(f"  {sentence}")


def fit_lines(plan: PullPlan) -> Iterator[str]:
    if plan.unloadable:
        yield f"  this machine: cannot load it: {one_line(plan.unloadable)}"
    elif plan.fit is not None:
        yield from wrapped(f"  this machine: {fit_words(plan.fit)}")


def fit_words(fit: FitReport) -> str:
    """What each format of this device takes, best first, of what is free, and what comes of it."""
    sizes = " · ".join(f"{one.quant} {size_words(one.total_bytes)}".replace(" ", SPACE) for one in fit.formats)
    where = " on the GPU" if fit.device.startswith("cuda") else ""
    free = f"of {size_words(fit.free_bytes)} free{where}".replace(" ", SPACE)
    result = f"→ {fit.word} with {fit.context} tokens" if fit.chosen else f"→ {fit.word}"
    return " ".join(filter(None, (sizes, free, result.replace(" ", SPACE))))


def wrapped(line: str) -> list[str]:
    """An indented line as lines, broken between parts."""
    found = textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [one.replace(SPACE, " ") for one in found]


def variants_text(plan: PullPlan) -> str:
    """The models of a GGUF repository, each with its size and its fit."""
    from localspec.history.text.columns import columns

    rows = [(f"  {one_line(one.name)}", size_words(one.num_bytes), one_line(one.word)) for one in plan.variants]
    return "\n".join((heading(plan.target), columns(rows)))


def checked_words(fetched: Fetched, repository: Repository) -> str:
    """How many files have the hub's hash; of a repository that was complete none is read again."""
    hashed = sum(bool(file.sha256) for file in repository.files)
    if not fetched.checked and (hashed or not repository.bytes_left):
        again = f"localspec verify-files {one_line(repository.repo)}"
        return f"All files are here; they were not hashed again (to do so: {again})."
    return f"checked: {fetched.checked} of {hashed} files have the hub's sha256"


def ready_words(name: str, plan: PullPlan) -> str:
    """The next command. `name`: what loads the model."""
    return f"Ready. localspec chat {one_line(name)}{draft_words(name, plan)}"


def draft_words(name: str, plan: PullPlan) -> str:
    """The flag for a drafter where the catalogue names another one, which would come first."""
    catalog, offer = Catalog.load(), plan.offer
    key = catalog.key_of(name)
    known = catalog.models[key] if key else (catalog.of_repository(plan.target.repo) or ("", None))[1]
    if not has_model(offer.kind) or known is None or known.draft is None or known.draft.model == offer.name:
        return ""
    return f" --draft {one_line(offer.name)}"


def gguf_name(file: str) -> str:
    """The name of a GGUF file that was fetched, as every command takes it."""
    return next((one.name for one in stores.kept() if str(one.file) == file), file)
