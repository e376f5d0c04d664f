"""Questions on the terminal, where there is one to ask on. Asks on stderr: stdout is for data."""

from __future__ import annotations

import sys

import click

from localspec.core.errors import UsageError


def interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, *, default: bool, to_do: str) -> bool:
    """The answer to a yes-or-no question; UsageError without a terminal. `to_do`: what --yes would do unasked."""
    if not interactive():
        raise UsageError(f"Not a terminal: add --yes to {to_do} without asking.")
    return click.confirm(question, default=default, err=True)
