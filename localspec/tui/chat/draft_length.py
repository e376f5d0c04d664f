"""Whether answers are drafted at present, how many tokens at a time, and why `auto` drafts none: read from the last
rounds. Knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mode

from localspec.core.events import SpecCard, Step
from localspec.core.sanitize import one_line
from localspec.core.server_speculation import SERVER
from localspec.engine.drafters.table import DRAFTERS, EARLY_EXIT, LOOKUP, MODEL, together
from localspec.runtime.draft_choice import TURNED_OFF

RECENT = 16  # rounds
SELDOM = 1 / 4  # so few of them have a draft where that is only tried now and then
LOOKED_AT = 512  # rounds that say what a draft costs and brings
OFF = "speculation off"
NO_MODEL = "no draft model"
WHY_NONE = {TURNED_OFF: OFF, "it failed": "the draft model failed"}


def length_now(rounds: Sequence[Step]) -> int | None:
    """The length of most of the last drafts; 0 where hardly any round drafted, None while it is not known yet."""
    recent = [step.drafted for step in rounds[-RECENT:]]
    drafts = [length for length in recent if length]
    if len(drafts) > SELDOM * len(recent):
        return mode(drafts)
    return 0 if len(recent) == RECENT else None


def words(spec: SpecCard, rounds: Sequence[Step] = ()) -> str:
    """How long drafts are: `auto, 4 at a time`, the 4 being what is decided at present."""
    now = length_now(rounds) if spec.k == "auto" or spec.mode == "auto" else None
    if spec.switch == "off":
        return "off"
    if now == 0:
        return f"{spec.switch}, paused"
    number = now or (spec.k if isinstance(spec.k, int) and spec.mode == "on" else None)
    return f"{spec.switch}, {number} at a time" if number else spec.switch


def drafter(spec: SpecCard) -> str:
    """Its name, that it has another tokenizer, and that of the look-up in front of it: `look-up + layers 1–8`; in other
    words that there is none."""
    if spec.kind == SERVER:
        return "as the server drafts"
    if spec.kind == "off":
        return WHY_NONE.get(spec.reason, NO_MODEL)
    translated = " (other tokenizer)" if spec.translated else ""
    return together(f"{one_line(own_name(spec))}{translated}", spec.lookup)


def own_name(spec: SpecCard) -> str:
    """The name without a look-up; beside one a model is named as a draft model."""
    if spec.kind == EARLY_EXIT.name and spec.exit_layer:
        return EARLY_EXIT.summary(str(spec.exit_layer))
    return MODEL.label(spec.name) if spec.kind == MODEL.name and spec.lookup else spec.name or spec.kind


def explained(spec: SpecCard) -> str:
    """How the drafter guesses, and the look-up in front of it, in a sentence; "" where nothing drafts here."""
    if spec.switch == "off" or spec.kind not in DRAFTERS:
        return ""
    own = f"{one_line(own_name(spec))}: {DRAFTERS[spec.kind].explains}"
    first = [f"{LOOKUP.label('')}: {LOOKUP.explains}"] if spec.lookup else []
    return f"{'; '.join([*first, own])}. The model checks every guess."


def drafting(spec: SpecCard, rounds: Sequence[Step] = ()) -> str:
    """The drafter and how it drafts; in other words where nothing does."""
    if spec.switch == "off":
        return drafter(spec) if spec.kind == "off" else OFF
    if spec.kind == SERVER:
        return f"speculation {one_line(spec.name)}" if spec.name else ""
    if spec.mode == "auto" and length_now(rounds) == 0:
        return f"{drafter(spec)}, paused"
    is_fixed = spec.mode == "on" and isinstance(spec.k, int)
    return f"{drafter(spec)}, {f'{spec.k} at a time' if is_fixed else spec.switch}"


def why_off(spec: SpecCard | None, rounds: Sequence[Step] = ()) -> str:
    """The reason why nothing is drafted though the user did not turn it off; "" where something is."""
    if spec is None:
        return ""
    if spec.kind == "off":
        return one_line(spec.reason)
    if spec.kind == SERVER or spec.mode != "auto" or length_now(rounds) != 0:
        return ""
    drafted = [step for step in rounds[-LOOKED_AT:] if step.drafted]
    tested = sum(step.accepted + len(step.rejected) for step in drafted)
    spent = sum(step.draft_ms + step.verify_ms for step in drafted)
    if not tested or not spent:
        return ""
    cost, accepted = sum(step.draft_ms for step in drafted) / spent, sum(step.accepted for step in drafted) / tested
    return f"it took {100 * cost:.0f} % of a step's time, and {100 * accepted:.0f} % of the guesses were right"
