"""What the README says is so: its help is the program's, its Python runs, its commands exist."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from localspec.cli.main import cli
from tests.support.readme_help import README, with_help

TEXT = README.read_text(encoding="utf-8")


def test_the_help_in_the_readme_is_what_the_program_prints():
    """Renew it with `python -m tests.support.readme_help`."""
    assert with_help(TEXT) == TEXT


def test_every_command_in_the_readme_exists():
    named = set(re.findall(r"^\$ localspec ([a-z]+)", TEXT, re.MULTILINE))
    assert named == {"chat", "run", "bench", "history", "config", "doctor"}
    assert named <= set(cli.commands)


@pytest.mark.heavy
def test_the_python_in_the_readme_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    text, figures = capsys.readouterr().out.strip().rsplit("\n", 1)
    assert "draft" in text.lower()
    assert 0 < float(figures.split()[0]) <= 1


@pytest.mark.heavy
def test_the_shell_examples_in_the_readme_run():
    (question,) = re.findall(r'^\$ localspec run guide "(.*?)"', TEXT, re.MULTILINE)
    result = CliRunner().invoke(cli, ["run", "guide", question, "--max-tokens", "12"])
    assert result.exit_code == 0
    assert result.output.strip()


def test_the_picture_of_a_sweep_is_the_one_that_the_command_above_it_draws():
    """Every exit layer of the built-in model, as it is loaded where nobody says otherwise."""
    named, shown = re.findall(
        r"^`localspec bench guide --sweep exit-layer --plot (\S+)`:\n\n!\[.*\]\((.*)\)$", TEXT, re.M
    )[0]
    assert named == shown
    picture = (README.parent / shown).read_text(encoding="utf-8")
    labels = re.findall("<!-- (.*?) -->", picture)
    assert {"guide, int8", "exit layer", "tokens/s", "accepted", *map(str, range(1, 12))} <= set(labels)
