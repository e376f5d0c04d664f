"""How far answers are drafted for at present, and why `auto` does not: read from the last rounds. Knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mode

from localspec.core.events import SpecCard, Step
from localspec.core.sanitize import one_line
from localspec.runtime.draft_choice import NO_DRAFTER, TURNED_OFF

NO_MODEL, PAUSED = "no draft model", "paused"
USUAL = {NO_DRAFTER: NO_MODEL, TURNED_OFF: "speculation off", "": NO_MODEL}  # reasons without a fault

RECENT = 16  # rounds
SELDOM = 1 / 4  # so few of them have a draft where that is only tried now and then
LOOKED_AT = 512  # rounds that say what a draft costs and brings


def length_now(rounds: Sequence[Step]) -> int | None:
    """The length of most of the last drafts; 0 where hardly any round drafted, None while it is not known yet."""
    recent = [step.drafted for step in rounds[-RECENT:]]
    drafts = [length for length in recent if length]
    if len(drafts) > SELDOM * len(recent):
        return mode(drafts)
    return 0 if len(recent) == RECENT else None


def length(spec: SpecCard, rounds: Sequence[Step] = ()) -> str:
    """k=4, or k=auto(4): decided from round to round, and 4 at present; paused where that is 0. Nothing where nothing
    is drafted."""
    if spec.switch == "off":
        return ""
    chosen = spec.k if spec.mode == "on" else "auto"
    now = None if isinstance(chosen, int) else length_now(rounds)
    if now == 0:
        return PAUSED
    return one_line(f"k={chosen}" + (f"({now})" if now is not None else ""))


def drafting(spec: SpecCard, rounds: Sequence[Step] = ()) -> str:
    """The drafter and how far it drafts, or in short why nothing does."""
    if spec.kind == "off":
        return undrafted(spec)
    name, now = spec.name or spec.kind, length(spec, rounds)
    return one_line(f"{name} · {PAUSED}, does not pay" if now == PAUSED else f"{name} {now}".rstrip())


def undrafted(spec: SpecCard) -> str:
    """Why nothing drafts, in short."""
    return USUAL.get(spec.reason) or one_line(f"{NO_MODEL}: {spec.reason}")


def why_off(spec: SpecCard | None, rounds: Sequence[Step] = ()) -> str:
    """The reason why nothing is drafted though the user did not turn it off and a drafter is known; "" where something
    is."""
    if spec is None:
        return ""
    if spec.kind == "off":
        return "" if spec.reason in USUAL else one_line(spec.reason)
    if spec.mode != "auto" or length_now(rounds) != 0:
        return ""
    drafted = [step for step in rounds[-LOOKED_AT:] if step.drafted]
    tested = sum(step.accepted + len(step.rejected) for step in drafted)
    spent = sum(step.draft_ms + step.verify_ms for step in drafted)
    if not tested or not spent:
        return ""
    cost, accepted = sum(step.draft_ms for step in drafted) / spent, sum(step.accepted for step in drafted) / tested
    return f"draft costs {100 * cost:.0f} % of a step, accepts {100 * accepted:.0f} %"
