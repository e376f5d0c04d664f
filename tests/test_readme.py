"""What the README says is so: its Python runs, its commands exist, its figures were measured; and it is short."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from localspec.cli.main import cli
from tests.support.help_pages import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LONGEST = 120  # lines: what does not fit belongs in docs/


def test_the_readme_is_short():
    assert len(TEXT.splitlines()) <= LONGEST


def test_every_figure_of_speed_in_the_readme_was_measured():
    """Each stands in docs/measurements.md, with machine, command and commit."""
    (table,) = re.findall(r"^## What it gains\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
    figures, commits = set(re.findall(r"\d+\.\d+\b", table)) - {"3.2"}, set(re.findall(r"\b[0-9a-f]{7}\b", table))
    page = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
    assert len(figures) > 24
    assert len(commits) == 5
    assert {each for each in figures | commits if not re.search(rf"(?<![\d.]){re.escape(each)}\b", page)} == set()


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
