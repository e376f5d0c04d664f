"""Whether answers are drafted at present, how many tokens at a time, and why `auto` drafts none: read from the last
rounds. Knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, mode

from msgspec.structs import replace

from localspec.core.events import SpecCard, Step
from localspec.core.sanitize import one_line
from localspec.core.server_speculation import SERVER
from localspec.engine.drafters.table import DRAFTERS, LOOKUP, MODEL, shown, together
from localspec.models.gguf.header import name_of
from localspec.runtime.draft_choice import TURNED_OFF

RECENT = 16  # rounds
LONG = 64  # rounds of a pause that is worth a sentence
FEWEST = 4  # rounds with a draft that say what one costs
SELDOM = 1 / 4  # so few of them have a draft where that is only tried now and then
LOOKED_AT = 512  # rounds that say what a draft costs and brings
PATHS = ("/", "./", "../", "~/")
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
    """The name without a look-up. Of a draft model's path it is the folder or the file, as the target's is."""
    is_file = spec.name.lower().endswith(".gguf") and ":" not in spec.name  # a repository's has one
    if spec.kind != MODEL.name or not (is_file or spec.name.startswith(PATHS)):
        return shown(spec)
    return shown(replace(spec, name=name_of(Path(spec.name)) or spec.name))


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
    return loss(rounds[-LOOKED_AT:])


def loss(rounds: Sequence[Step]) -> str:
    """What drafting costs more than it brings, by the rounds with a draft and those without; "" where it does not, or
    too few were drafted to say so."""
    drafted, plain = [one for one in rounds if one.drafted], [one for one in rounds if not one.drafted]
    lone = mean_ms(plain)
    if len(drafted) < FEWEST or not lone:
        return ""
    brings = fmean(len(one.tokens) for one in drafted)
    takes = mean_ms(drafted) / lone
    if round(brings, 1) >= round(takes, 1):
        return ""
    return f"a round with a draft brought {brings:.1f} tokens, but took as long as {takes:.1f} plain ones"


def mean_ms(rounds: Sequence[Step]) -> float:
    """How long a round took; 0 for none."""
    return fmean(one.draft_ms + one.verify_ms for one in rounds) if rounds else 0.0


def is_long_paused(rounds: Sequence[Step]) -> bool:
    """Whether hardly any of many rounds drafted: a short pause is not worth a sentence."""
    recent = rounds[-LONG:]
    return len(recent) == LONG and sum(one.drafted > 0 for one in recent) <= SELDOM * LONG
