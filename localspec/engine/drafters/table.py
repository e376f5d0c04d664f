"""DRAFTERS: every way to draft, a row each: what users write, whether a target allows it, how it is made and shown.

A new drafter is a file beside this one, a row here and its tests. Importing this needs no torch: `make` imports the
drafter's file when a model is loaded. By name the rest knows only what is true of one drafter alone: a look-up drafts
in front of another, copies, and is marked so; an early exit is a number of layers, which a sweep, a pull plan,
/compare and transformers take; and other programs have words for a look-up (`runtime/other_programs.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename, normpath
from typing import TYPE_CHECKING

from localspec.core.errors import UsageError
from localspec.core.events import Notice, SpecCard
from localspec.core.requests import DraftRequest
from localspec.engine.drafters.row import CheckedDrafter, DrafterRow, DraftTarget, Suggestion, card_name

if TYPE_CHECKING:
    from localspec.engine.protocols import Drafter, Resident

SMALL_MODEL = "--draft ./FOLDER or ./FILE.gguf of a small model"


# Early exit: the argument is the exit layer.

TRAINED = "trained for early exit"
UNTRAINED = "not known to be trained for early exit: most drafts would be rejected"


def parse_exit(argument: str | None) -> str:
    if argument is None:
        return ""
    if not argument.isdecimal():
        fault = f"'{argument}' is not an exit layer." if argument else "'early-exit:' names no layer."
        raise UsageError(fault, hint="Write e.g. --draft early-exit:3.")
    return str(int(argument))


def check_early_exit(argument: str, target: DraftTarget) -> CheckedDrafter:
    """Takes the layer of the argument, else the usual one."""
    layer = int(argument) if argument else usual_exit(target)
    check_exit(layer, target.exit_layers, target.name)
    message = f"'{target.title}' may not be trained for early exit; drafts from layer {layer} may be accepted rarely."
    notice = Notice("warning", "untrained_exit", message, "Watch the acceptance, or --draft off.")
    return CheckedDrafter(str(layer), f"early exit {layer}", layer, None if target.known_exit is not None else notice)


def usual_exit(target: DraftTarget) -> int:
    """The exit layer of models.toml, else a quarter of the depth."""
    return target.known_exit or max(target.exit_layers // 4, 1)


def suggest_exit(target: DraftTarget) -> Suggestion | None:
    if target.exit_layers < 2:
        return None
    trained = target.known_exit is not None
    return Suggestion(str(usual_exit(target)), TRAINED if trained else UNTRAINED, trained)


def shown_exit(spec: SpecCard) -> str:
    return exit_words(str(spec.exit_layer)) if spec.exit_layer else card_name(spec)


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
    label=lambda layer: f"early exit {layer}".strip(),
    summary=exit_words,
    spelling=lambda spec: f"early-exit:{spec.exit_layer}",
    parse=parse_exit,
    check=check_early_exit,
    suggest=suggest_exit,
    shown=shown_exit,
    explains="the model's own first layers guess the next tokens",
    setting="exit_layer",
)


# A draft model: the argument is its key, folder or file.


def make_model(argument: str, target: Resident, own: Resident | None) -> Drafter:  # noqa: ARG001 - it is loaded
    from localspec.engine.drafters.model import ModelDrafter

    assert own is not None
    return ModelDrafter(own, target.arch.vocab_size)


def model_label(name: str) -> str:
    return f"draft model {name}".strip()


MODEL = DrafterRow(
    name="model",
    make=make_model,
    usage="",
    label=model_label,
    summary=lambda name: f"a smaller model ({basename(normpath(name))})",
    spelling=lambda spec: spec.name,
    suggest=lambda _: None,
    shown=lambda spec: model_label(spec.name) if spec.lookup else card_name(spec),
    explains="a smaller model guesses the next tokens",
    setting="model",
)

# Look-up: what followed the last tokens before; it needs no model, and has no argument.

COPIES = "copies earlier text of this chat; needs no model"


def make_lookup(argument: str, target: Resident, own: Resident | None) -> Drafter:  # noqa: ARG001 - it needs neither
    from localspec.engine.drafters.lookup import LookupDrafter

    return LookupDrafter()


LOOKUP = DrafterRow(
    name="lookup",
    make=make_lookup,
    usage="lookup",
    label=lambda _: "look-up",
    summary=lambda _: "look-up",
    spelling=lambda _: "lookup",
    check=lambda argument, _: CheckedDrafter(argument, "look-up"),
    suggest=lambda _: Suggestion(detail=COPIES),
    explains="it copies what followed the last words earlier in the text",
    holds_memory=False,
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


def holds_memory(kind: str) -> bool:
    return kind in DRAFTERS and DRAFTERS[kind].holds_memory


def names_row(text: str) -> bool:
    """Whether --draft takes this for a row with a name of its own, and not for a model."""
    return text.partition(":")[0] in names()


def usages() -> list[str]:
    """How --help spells the drafters that have a name of their own: early-exit[:E]."""
    return [row.usage for row in DRAFTERS.values() if row.usage]


def spellings() -> list[str]:
    """Usages with their argument, for a hint: early-exit:E."""
    return [usage.replace("[", "").replace("]", "") for usage in usages()]


def names() -> list[str]:
    """Names that completion offers."""
    return [row.name for row in DRAFTERS.values() if row.usage]


def suggested(target: DraftTarget) -> Iterator[tuple[DraftRequest, Suggestion]]:
    """What could draft for a target without a model of its own, look-up first."""
    for row in sorted(DRAFTERS.values(), key=lambda row: row.name != LOOKUP.name):
        if (found := row.suggest(target)) is not None:
            yield DraftRequest(row.name, found.argument), found


def label(request: DraftRequest) -> str:
    """The drafter's name in a benchmark."""
    row = DRAFTERS.get(request.kind)
    return together(row.label(request.argument), request.lookup) if row else request.kind


def kind_name(kind: str) -> str:
    """The kind of a drafter, as the user reads it."""
    return DRAFTERS[kind].label("") if kind in DRAFTERS else kind


def names_without_model() -> list[str]:
    """The kinds that need no model of their own, as the user reads them."""
    return [row.label("") for row in DRAFTERS.values() if not row.has_model]


def together(name: str, lookup: bool) -> str:
    """The names of both where a look-up stands in front."""
    return f"look-up + {name}" if lookup else name


def summary(request: DraftRequest) -> str:
    """The drafter as screens and lists name it."""
    row = DRAFTERS.get(request.kind)
    return row.summary(request.argument) if row else request.kind


def shown(spec: SpecCard) -> str:
    """The drafter beside the chat, without a look-up in front of it."""
    return DRAFTERS[spec.kind].shown(spec) if spec.kind in DRAFTERS else card_name(spec)


def spelled(request: DraftRequest) -> str:
    """The --draft that `parse` makes this of."""
    argument = f":{request.argument}" if request.argument else ""
    own = request.argument if has_model(request.kind) else f"{request.kind}{argument}"
    return f"{IN_FRONT}{own}" if request.lookup else own


def spelling(spec: SpecCard) -> str | None:
    """The --draft that gets this drafter again; None without one."""
    row = DRAFTERS.get(spec.kind)
    return (IN_FRONT if spec.lookup else "") + row.spelling(spec) if row else None
