"""DRAFTERS: every way to draft, a row each: what users write, whether a target allows it, how it is made and shown.

A new drafter is a file beside this one, a row here and its tests. Importing this needs no torch: `make` imports the
drafter's file when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os.path import basename, normpath
from typing import TYPE_CHECKING, Literal

from localspec.core.errors import UsageError
from localspec.core.events import Notice, SpecCard
from localspec.core.requests import DraftRequest

if TYPE_CHECKING:
    from localspec.engine.protocols import Drafter, Resident

SMALL_MODEL = "--draft ./FOLDER or ./FILE.gguf of a small model"


@dataclass(frozen=True, slots=True)
class DraftTarget:
    """The facts of a target that a check needs. `exit_layers`: how many layers it can exit among, 0 if none can be
    run alone; `known_exit`: the exit layer that models.toml gives it; `title`: its name for the user."""

    name: str
    exit_layers: int
    title: str = ""
    known_exit: int | None = None


@dataclass(frozen=True, slots=True)
class CheckedDrafter:
    """A drafter that the target allows. `argument` is complete, `name` stands in the chat's header, and `exit_layer`
    counts the target's layers that a draft runs through."""

    argument: str = ""
    name: str = ""
    exit_layer: int = 0
    notice: Notice | None = None


def refuse_argument(argument: str | None) -> str:
    """Refuses an argument: the default of a row."""
    if argument is not None:
        raise UsageError(f"This drafter takes no argument: ':{argument[:40]}'.", hint="Leave that out of --draft.")
    return ""


def allow_any_target(argument: str, target: DraftTarget) -> CheckedDrafter:  # noqa: ARG001 - any target will do
    """Allows every target: the default of a row."""
    return CheckedDrafter(argument)


def suits_any_target(target: DraftTarget) -> bool:  # noqa: ARG001 - any target will do
    return True


@dataclass(frozen=True, slots=True)
class DrafterRow:
    """One way to draft. --draft takes its `name`, and `name:argument` where it has one.

    `parse` returns the argument, or raises UsageError; None is a name without a colon. `check` completes it, or refuses
    the target. `make` gets the argument, the target's decoder, and the drafter's own where it has a model.

    `usage` is how help spells it; "" for a draft model, which any other name means. `hint` suggests it to a user whose
    model has no drafter, if it `suits` the target. `setting` is its argument's key in models.toml. `label` names it in
    a benchmark, `summary` in the list of models, both by the argument; `spelling` is what --draft takes to get the
    same drafter again. `explains`: how it guesses, for readers to whom that is new.
    """

    name: str
    make: Callable[[str, Resident, Resident | None], Drafter]
    usage: str
    hint: str
    label: Callable[[str], str]
    summary: Callable[[str], str]
    spelling: Callable[[SpecCard], str]
    parse: Callable[[str | None], str] = refuse_argument
    check: Callable[[str, DraftTarget], CheckedDrafter] = allow_any_target
    suits: Callable[[DraftTarget], bool] = suits_any_target
    explains: str = "it guesses the next tokens"
    setting: Literal["exit_layer", "model", ""] = ""

    @property
    def has_model(self) -> bool:
        """Whether it is a model of its own, with weights to load and a tokenizer to compare."""
        return self.setting == "model"


# Early exit: the argument is the exit layer.


def parse_exit(argument: str | None) -> str:
    if argument is None:
        return ""
    if not argument.isdecimal():
        fault = f"'{argument}' is not an exit layer." if argument else "'early-exit:' names no layer."
        raise UsageError(fault, hint="Write e.g. --draft early-exit:3.")
    return str(int(argument))


def check_early_exit(argument: str, target: DraftTarget) -> CheckedDrafter:
    """Takes the layer of the argument, else models.toml's, else a quarter of the depth."""
    layer = int(argument) if argument else target.known_exit or max(target.exit_layers // 4, 1)
    check_exit(layer, target.exit_layers, target.name)
    message = f"'{target.title}' may not be trained for early exit; drafts from layer {layer} may be accepted rarely."
    notice = Notice("warning", "untrained_exit", message, "Watch the acceptance, or --draft off.")
    return CheckedDrafter(str(layer), f"early exit {layer}", layer, None if target.known_exit is not None else notice)


def check_exit(layer: int, layers: int, name: str) -> None:
    """`layers` is 0 where the first ones cannot be run alone."""
    if not layers:
        raise UsageError(
            f"{name} cannot draft by early exit: transformers runs it, and not localspec's own decoder.",
            hint=f"Use {SMALL_MODEL} with the same tokenizer, or --draft off.",
        )
    if not 1 <= layer < layers:
        raise UsageError(
            f"Exit layer {layer} is outside {name}, which has {layers} layers.",
            hint=f"Use early-exit:E with E from 1 to {layers - 1}.",
        )


def make_early_exit(argument: str, target: Resident, own: Resident | None) -> Drafter:  # noqa: ARG001 - it has none
    from localspec.engine.drafters.early_exit import EarlyExitDrafter
    from localspec.engine.protocols import is_layered

    assert is_layered(target)
    return EarlyExitDrafter(target, int(argument))


def exit_words(layer: str) -> str:
    """The layers that draft, as every screen names them."""
    if not layer:
        return "early exit"
    return f"layers 1–{layer}" if int(layer) > 1 else "layer 1"


EARLY_EXIT = DrafterRow(
    name="early-exit",
    make=make_early_exit,
    usage="early-exit[:E]",
    hint="--draft early-exit:E for a LayerSkip model",
    label=lambda layer: f"early exit {layer}".strip(),
    summary=exit_words,
    spelling=lambda spec: f"early-exit:{spec.exit_layer}",
    parse=parse_exit,
    check=check_early_exit,
    suits=lambda target: target.exit_layers > 0,
    explains="the model's own first layers guess the next tokens",
    setting="exit_layer",
)


# A draft model: the argument is its key, folder or file.


def make_model(argument: str, target: Resident, own: Resident | None) -> Drafter:  # noqa: ARG001 - it is loaded
    from localspec.engine.drafters.model import ModelDrafter

    assert own is not None
    return ModelDrafter(own, target.arch.vocab_size)


MODEL = DrafterRow(
    name="model",
    make=make_model,
    usage="",
    hint=f"{SMALL_MODEL} with the same tokenizer",
    label=lambda name: f"draft model {name}".strip(),
    summary=lambda name: f"a smaller model ({basename(normpath(name))})",
    spelling=lambda spec: spec.name,
    explains="a smaller model guesses the next tokens",
    setting="model",
)

# Look-up: what followed the last tokens before; it needs no model, and has no argument.


def make_lookup(argument: str, target: Resident, own: Resident | None) -> Drafter:  # noqa: ARG001 - it needs neither
    from localspec.engine.drafters.lookup import LookupDrafter

    return LookupDrafter()


LOOKUP = DrafterRow(
    name="lookup",
    make=make_lookup,
    usage="lookup",
    hint="--draft lookup",
    label=lambda _: "look-up",
    summary=lambda _: "look-up",
    spelling=lambda _: "lookup",
    check=lambda argument, _: CheckedDrafter(argument, "look-up"),
    explains="it copies what followed the last words earlier in the text",
)

DRAFTERS = {row.name: row for row in (EARLY_EXIT, LOOKUP, MODEL)}


IN_FRONT = f"{LOOKUP.name}+"  # of another drafter's spelling: both draft


def parse(text: str) -> DraftRequest:
    """ "auto", "off", a drafter's name with its argument, or the name of a draft model; "lookup+" before one of the
    last two."""
    if text in ("auto", "off"):
        return DraftRequest(text)
    if text.startswith(IN_FRONT):
        return in_front(text.removeprefix(IN_FRONT))
    name, colon, argument = text.partition(":")
    row = DRAFTERS.get(name, MODEL)
    if row.has_model:
        return DraftRequest(MODEL.name, text)
    return DraftRequest(row.name, row.parse(argument if colon else None))


def in_front(text: str) -> DraftRequest:
    """A look-up and another drafter."""
    if text in ("auto", "off", LOOKUP.name, "") or text.startswith(IN_FRONT):
        hint = "Write e.g. --draft lookup+early-exit:4, or lookup alone."
        raise UsageError(f"'{text[:40]}' cannot be combined with look-up.", hint=hint)
    found = parse(text)
    return DraftRequest(found.kind, found.argument, lookup=True)


def has_model(kind: str) -> bool:
    return kind in DRAFTERS and DRAFTERS[kind].has_model


def usages() -> list[str]:
    """How --help spells the drafters that have a name of their own: early-exit[:E]."""
    return [row.usage for row in DRAFTERS.values() if row.usage]


def spellings() -> list[str]:
    """Usages with their argument, for a hint: early-exit:E."""
    return [usage.replace("[", "").replace("]", "") for usage in usages()]


def names() -> list[str]:
    """Names that completion offers."""
    return [row.name for row in DRAFTERS.values() if row.usage]


def hints(target: DraftTarget) -> list[str]:
    """Suggestions for a user whose model has no drafter."""
    return [row.hint for row in DRAFTERS.values() if row.suits(target)]


def label(request: DraftRequest) -> str:
    """The drafter's name in a benchmark."""
    row = DRAFTERS.get(request.kind)
    return together(row.label(request.argument), request.lookup) if row else request.kind


def kind_name(kind: str) -> str:
    """The kind of a drafter, as the user reads it."""
    return DRAFTERS[kind].label("") if kind in DRAFTERS else kind


def together(name: str, lookup: bool) -> str:
    """The names of both where a look-up stands in front."""
    return f"look-up + {name}" if lookup else name


def summary(request: DraftRequest) -> str:
    """The drafter as screens and lists name it."""
    row = DRAFTERS.get(request.kind)
    return row.summary(request.argument) if row else request.kind


def spelling(spec: SpecCard) -> str | None:
    """The --draft that gets this drafter again; None without one."""
    row = DRAFTERS.get(spec.kind)
    return (IN_FRONT if spec.lookup else "") + row.spelling(spec) if row else None
