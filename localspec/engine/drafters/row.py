"""A row of DRAFTERS: what there is to know of one way to draft, and of a target that it may draft for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from localspec.core.errors import UsageError
from localspec.core.events import Notice, SpecCard

if TYPE_CHECKING:
    from localspec.engine.protocols import Drafter, Resident


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


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a drafter would draft with for a target, and what to know of that. `suits`: it may well pay, so a benchmark
    measures it unasked."""

    argument: str = ""
    detail: str = "needs no model"
    suits: bool = True


def suggest_itself(target: DraftTarget) -> Suggestion | None:  # noqa: ARG001 - any target will do
    """Suggests the drafter for every target: the default of a row."""
    return Suggestion()


def card_name(spec: SpecCard) -> str:
    """The name that `check` gave it: the default of a row."""
    return spec.name or spec.kind


@dataclass(frozen=True, slots=True)
class DrafterRow:
    """One way to draft. --draft takes its `name`, and `name:argument` where it has one.

    `parse` returns the argument, or raises UsageError; None is a name without a colon. `check` completes it, or refuses
    the target. `make` gets the argument, the target's decoder, and the drafter's own where it has a model.

    `usage` is how help spells it; "" for a draft model, which any other name means. `setting` is its argument's key in
    models.toml. `label` names it in a benchmark, `summary` in the list of models, both by the argument, and `shown`
    beside the chat; `spelling` is what --draft takes to get the same drafter again. `explains`: how it guesses, for
    readers to whom that is new.

    `suggest`: what it would draft with, for the list of drafters and for a benchmark; None where it cannot, and for a
    draft model, which is searched for. `holds_memory`: it is dropped when memory runs out.
    """

    name: str
    make: Callable[[str, Resident, Resident | None], Drafter]
    usage: str
    label: Callable[[str], str]
    summary: Callable[[str], str]
    spelling: Callable[[SpecCard], str]
    parse: Callable[[str | None], str] = refuse_argument
    check: Callable[[str, DraftTarget], CheckedDrafter] = allow_any_target
    suggest: Callable[[DraftTarget], Suggestion | None] = suggest_itself
    shown: Callable[[SpecCard], str] = card_name
    explains: str = "it guesses the next tokens"
    setting: Literal["exit_layer", "model", ""] = ""
    holds_memory: bool = True

    @property
    def has_model(self) -> bool:
        """Whether it is a model of its own, with weights to load and a tokenizer to compare."""
        return self.setting == "model"
