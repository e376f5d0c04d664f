"""Checks arguments against annotations: a value that a function of the Python interface does not take is a UsageError
that names the argument and says what it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from inspect import Parameter, Signature, isclass, signature
from os import PathLike
from reprlib import repr as short
from sys import float_info
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,  # a hint
    Literal,
    ParamSpec,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from localspec.core.errors import UsageError
from localspec.core.weight_formats import either

P = ParamSpec("P")
R = TypeVar("R")

LISTS = (Sequence, tuple, list)
WORDS: dict[Any, str] = {
    str: "text", int: "a whole number", float: "a number", bool: "True or False", PathLike: "a path",
    Callable: "a function",
}  # fmt: skip


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, which takes no argument that its annotations do not allow; the tree of errors has no other."""
    parameters = signature(function)

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        given = bound(function.__name__, parameters, args, named)
        for name, hint in hints_of(function).items():
            if name in given:
                check(name, given[name], hint)
        return function(*args, **named)

    return call


def bound(function: str, parameters: Signature, args: Sequence[object], named: Mapping[str, object]) -> dict[str, Any]:
    """The arguments by name; UsageError for one too many or too few."""
    kinds = {name: one.kind for name, one in parameters.parameters.items() if name != "self"}
    names = [name for name, kind in kinds.items() if kind is not Parameter.VAR_KEYWORD]
    if len(names) == len(kinds):
        check_names(named, names)
    try:
        return parameters.bind(*args, **named).arguments
    except TypeError as fault:
        message = f"{function}() was called wrongly: {fault}."
        raise UsageError(message, hint=f"It takes {', '.join(names) or 'nothing'}.") from fault


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """UsageError for a name that is not known."""
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(f"There is no option '{unknown[0]}'.", hint=f"Known: {', '.join(known)}.")


def check(name: str, value: object, hint: Any) -> None:
    """UsageError that names the value, or the part of it, that the hint does not allow."""
    if found := wrong(name, value, hint):
        shown, takes = " ".join(short(found.value).split()), words(found.hint)
        is_off = is_number(found.value) and "number" in takes
        message = f"{found.name} {shown} is out of range." if is_off else f"{found.name} cannot be {shown}."
        raise UsageError(message, hint=f"Use {takes}.")


def check_fields(record: msgspec.Struct, *names: str) -> None:
    """The same for these fields of a record."""
    for name in names:
        check(name, getattr(record, name), hints_of(type(record))[name])


@dataclass(frozen=True, slots=True)
class Wrong:
    """A value that its hint does not allow, innermost: of a list the item, of a record the field."""

    name: str
    value: object
    hint: Any


def wrong(name: str, value: object, hint: Any) -> Wrong | None:
    kind, parts, whole = get_origin(hint), get_args(hint), Wrong(name, value, hint)
    if kind is Annotated or kind in (Union, UnionType):
        found = [wrong(name, value, part) for part in (parts[:1] if kind is Annotated else parts)]
        if None in found:
            return None if kind is not Annotated or is_within(value, parts[1]) else whole
        return next((one for one in found if one and one.name != name), whole)
    if kind in LISTS and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return first(wrong(f"{name}[{index}]", item, parts[0]) for index, item in enumerate(value))
    if isclass(hint) and issubclass(hint, msgspec.Struct) and isinstance(value, hint):
        return first(wrong(named, found, inner) for named, found, inner in fields_of(name, value))
    return None if fits(value, hint, kind, parts) else whole


def fits(value: object, hint: Any, kind: Any, parts: tuple[Any, ...]) -> bool:
    """Whether a hint without parts of its own allows the value."""
    if kind is Literal:
        return isinstance(value, str) and value in parts
    if kind in LISTS or hint is Any:
        return hint is Any
    if hint is int:
        return is_number(value) and isinstance(value, int)
    if hint is float:
        return is_number(value) and abs(value) <= float_info.max  # NaN is not, either
    return isinstance(value, kind or (NoneType if hint is None else hint))


def first(found: Iterable[Wrong | None]) -> Wrong | None:
    return next(filter(None, found), None)


def fields_of(name: str, record: msgspec.Struct) -> Iterator[tuple[str, object, Any]]:
    """Fields as users name them: that of an item with the item's name before it."""
    before, hints = f"{name}." if name.endswith("]") else "", hints_of(type(record))
    for field, shown in zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True):
        yield before + shown, getattr(record, field), hints[field]


@cache
def hints_of(named: Any) -> dict[str, Any]:
    return get_type_hints(named, include_extras=True)


def is_within(value: Any, meta: msgspec.Meta) -> bool:
    return meta.ge is None or meta.le is None or meta.ge <= value <= meta.le


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def words(hint: Any) -> str:
    """What a hint allows, in words; that an option may be left out goes without saying."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType, Literal):
        return either(*alternatives(hint))
    if kind is Annotated:
        meta = parts[1]
        return meta.title or words(parts[0]) + (f" from {meta.ge} to {meta.le}" if meta.ge is not None else "")
    if kind in (*LISTS, Iterable):
        return f"a list of {many(parts[0])}"
    named = kind or hint
    return WORDS.get(named) or f"{'an' if named.__name__[0] in 'AEIOU' else 'a'} {named.__name__}"


def alternatives(hint: Any) -> Iterator[str]:
    if get_origin(hint) is Literal:
        yield from map(repr, get_args(hint))
    elif get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from alternatives(part)
    elif hint is not NoneType:
        yield words(hint)


def many(hint: Any) -> str:
    """The same for the items of a list."""
    if get_origin(hint) in (Union, UnionType):
        return either(*map(many, get_args(hint)))
    return words(hint).removeprefix("an ").removeprefix("a ").partition(" of ")[0] + "s"
