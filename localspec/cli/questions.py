"""Questions on the terminal, where there is one to ask on. Asks on stderr: stdout is for data."""

from __future__ import annotations

import sys

import click

from localspec.core.errors import UsageError

ANSWERS = {"y": True, "yes": True, "n": False, "no": False}


class YesOrNo(click.ParamType[bool]):
    name = "y or n"

    def convert(self, value: str | bool, *_: object) -> bool:
        if isinstance(value, bool):
            return value
        if (answer := ANSWERS.get(value.strip().lower())) is None:
            self.fail("Answer y or n.")
        return answer


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, *, default: bool, to_do: str) -> bool:
    """The answer to a yes-or-no question; UsageError without a terminal. `to_do`: what --yes would do unasked."""
    if not interactive():
        raise UsageError(f"Not a terminal: add --yes to {to_do} without asking.")
    return answered(question, default=default)


def answered(question: str, *, default: bool) -> bool:
    choices = "Y/n" if default else "y/N"
    try:
        given: bool = click.prompt(
            f"{question} [{choices}]", default, type=YesOrNo(), show_default=False, prompt_suffix=": ", err=True
        )
    except click.Abort:
        print(file=sys.stderr)  # Ctrl+C leaves the line as it is
        raise
    return given
