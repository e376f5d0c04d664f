"""What a plan says about drafting, the chat template, the scanners' reports and what is deleted, in the words of every
screen. Knows records only."""

from __future__ import annotations

from localspec.core.sanitize import one_line
from localspec.engine.drafters.table import EARLY_EXIT, MODEL
from localspec.hub.records import Deleted, DeletePlan, DraftOffer, PullPlan
from localspec.models.named_templates import COMPLETION
from localspec.runtime.pairs import PairVerdict


def offer_words(offer: DraftOffer) -> str:
    source = f" ({one_line(offer.source)})" if offer.source else ""
    match offer.kind:
        case EARLY_EXIT.name:
            return f"{EARLY_EXIT.summary(str(offer.exit_layer))}, k {offer.k}{source}; no second model"
        case MODEL.name:
            verdict = f"; {verdict_words(offer.verdict)}" if offer.verdict else ""
            return f"{one_line(offer.name)} drafts{source}{verdict}"
    return f"none: {one_line(offer.detail)}" if offer.detail else "none"


def flagged_sentence(plan: PullPlan) -> str:
    """Names the files that the hub's scanners report; "" for none."""
    flagged = dict.fromkeys(one_line(file) for one in plan.repositories for file in one.flagged)
    return f"The hub's scanners report {', '.join(flagged)}." if flagged else ""


def template_words(plan: PullPlan) -> str:
    return named_template(plan.preset, has_own=plan.target.chat_template)


def named_template(named: str, *, has_own: bool) -> str:
    """Which chat template is used. `named`: the one in models.toml, if that is used."""
    shown = f'"{one_line(named)}"'
    if has_own:
        return f"{shown}, which models.toml names in place of its own" if named else "its own"
    used = f"{shown} will be used" if named not in ("", COMPLETION.name) else "it completes text"
    return f"none in it (a base model); {used}"


def verdict_words(verdict: PairVerdict) -> str:
    """Why a pair can be used or not; of equal tokenizers their tokens say all."""
    detail = one_line(verdict.detail)
    return detail if verdict.reason == "same" else f"{one_line(verdict.reason)}: {detail}"


def deleted_names(one: DeletePlan | Deleted) -> str:
    """What is deleted; "" for nothing."""
    whole, older = (", ".join(map(one_line, names)) for names in ((*one.repos, *one.models), one.older))
    return ", ".join(filter(None, (whole, f"older versions of {older}" if older else "")))
