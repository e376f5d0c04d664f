"""Renders a chat template in jinja's sandbox: messages to the text format that the model was trained on.

The template is an untrusted program. It sees messages and a few token strings; its time and memory are limited by the
process it runs in (limits.py). Knows nothing about tokens or ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn  # Any: what a template computes with has no type

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.core.errors import CHOOSE_ANOTHER, CheckpointError, UsageError
from localspec.core.limits import entering
from localspec.core.requests import Message

MAX_GROWTH = 1 << 20  # characters a template may add to the messages; real ones add a few hundred per message


class TemplateRefusal(jinja2.TemplateError):
    """The template called raise_exception: it refuses this conversation."""


class ChatTemplate:
    """A compiled template; `name` is the model's name in errors."""

    def __init__(self, source: str, *, name: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._name = name
        self._special_tokens = dict(special_tokens)
        entering("template")
        try:
            self._template = _environment().from_string(source)
        except (jinja2.TemplateError, RecursionError, ValueError, OverflowError, SyntaxError) as error:
            raise self._broken(error) from error

    def render(self, messages: Sequence[Message], *, opens: bool = True) -> str:
        """The conversation as text; with `opens`, up to where the assistant's answer begins."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        most = MAX_GROWTH + 2 * sum(len(message.content) for message in messages)
        entering("template")
        try:
            return self._collect(turns, most, opens)
        except TemplateRefusal as error:
            raise UsageError(
                f"The chat template of '{self._name}' refuses this conversation: {str(error)[:300]}"
            ) from error
        except (CheckpointError, MemoryError):
            raise
        except Exception as error:  # an untrusted program can raise anything
            raise self._broken(error) from error

    def _collect(self, turns: list[dict[str, str]], most: int, opens: bool) -> str:
        pieces: list[str] = []
        for piece in self._template.generate(
            messages=turns, add_generation_prompt=opens, tools=None, documents=None, **self._special_tokens
        ):
            pieces.append(piece)
            most -= len(piece)
            if most < 0:
                raise CheckpointError(f"The chat template of '{self._name}' never ends.", hint=CHOOSE_ANOTHER)
        return "".join(pieces)

    def _broken(self, error: Exception) -> CheckpointError:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        return CheckpointError(f"The chat template of '{self._name}' fails: {reason}.", hint=CHOOSE_ANOTHER)


class _Generation(Extension):
    """{% generation %}…{% endgeneration %} marks the assistant's text for training; here only its body is rendered."""

    tags = {"generation"}  # noqa: RUF012  jinja's own name and type

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _environment() -> ImmutableSandboxedEnvironment:
    """The environment with what Hugging Face offers to templates, and nothing else."""
    extensions = [loopcontrols, _Generation]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    del environment.globals["lipsum"]  # generates text of any length
    return environment


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateRefusal(str(message))
