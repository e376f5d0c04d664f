"""docs/cli.md's help blocks: `python -m tests.support.help_pages` (make help-pages) rewrites them, a test compares."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from localspec.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
BLOCK = re.compile(r"```console\n\$ localspec (?P<words>(?:[a-z][a-z-]* )*)--help\n.*?```", re.DOTALL)


def with_help(text: str) -> str:
    """The text with every block `$ localspec … --help` showing what the command prints."""
    return BLOCK.sub(lambda block: help_block(block["words"]), text)


def help_block(words: str) -> str:
    return f"```console\n$ localspec {words}--help\n{help_of(words)}```"


def without_help(text: str) -> str:
    """The text without these blocks: what the page says itself."""
    return BLOCK.sub("", text)


def help_of(words: str, columns: int = 100) -> str:
    printed = CliRunner().invoke(cli, [*words.split(), "--help"], prog_name="localspec", terminal_width=columns)
    return printed.output


def commands(command: click.Command = cli, words: str = "") -> Iterator[str]:
    """The words of every command and group, each with a space behind it; none for localspec itself."""
    yield words
    if isinstance(command, click.Group):
        for name, each in sorted(command.commands.items()):
            yield from commands(each, f"{words}{name} ")


if __name__ == "__main__":
    PAGE.write_text(with_help(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
