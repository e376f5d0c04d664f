"""The README's --help blocks, `python -m tests.support.readme_help` writes them; a test compares."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from localspec.cli.main import cli

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"```console\n\$ localspec (?P<words>[a-z ]*)--help\n.*?```", re.DOTALL)


def with_help(text: str) -> str:
    """The text with every block `$ localspec … --help` showing what the command prints."""
    return BLOCK.sub(
        lambda block: f"```console\n$ localspec {block['words']}--help\n{help_of(block['words'])}```", text
    )


def help_of(words: str) -> str:
    printed = CliRunner().invoke(cli, [*words.split(), "--help"], prog_name="localspec", terminal_width=100)
    return printed.output


if __name__ == "__main__":
    README.write_text(with_help(README.read_text(encoding="utf-8")), encoding="utf-8")
