"""What the pages say is so: links lead somewhere, help is the program's, settings and code words are complete."""

from __future__ import annotations

import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from click import HelpFormatter
from click.testing import CliRunner

from localspec.cli.main import cli
from localspec.config.tables import KEYS
from localspec.core import errors, paths
from localspec.core.errors import LocalspecError
from localspec.models.catalog import Catalog
from localspec.tui.app import ChatApp
from localspec.tui.keys.ids import known_ids
from tests.support.help_pages import PAGE, ROOT, commands, help_of, with_help, without_help

PAGES = (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), ROOT / "tests" / "attacks" / "README.md")
PIPE_LEFT = 141  # 128 + SIGPIPE, as shells count


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_resolves(page: Path):
    """Pictures too, and the heading behind a #."""
    found = re.findall(r"\]\((?!https?://)([^)\s]*)\)", page.read_text(encoding="utf-8"))
    assert [link for link in found if not resolves(page, link)] == []


def resolves(page: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not anchor or anchor in anchors(target.read_text(encoding="utf-8")))


def anchors(page: str) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_help_in_the_pages_is_what_the_program_prints():
    """`make help-pages` renews it."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_help(page) == page


def test_every_command_has_its_help_in_the_pages():
    shown = re.findall(r"^\$ localspec ((?:[a-z][a-z-]* )*)--help$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(shown) == sorted(commands())


def test_lists_of_commands_say_whole_sentences_in_80_columns(monkeypatch: pytest.MonkeyPatch):
    """click cuts what is longer, and ends it with three dots; of a window's columns it leaves some free."""
    monkeypatch.setenv("COLUMNS", "80")
    width = HelpFormatter(max_width=cli.context_settings["max_content_width"]).width
    assert width < 80
    lists = {
        words: listed for words in commands() if (listed := help_of(words, columns=width).partition("Commands:")[2])
    }
    assert {"", "config ", "history ", "remote "} == set(lists)
    assert [words for words, listed in lists.items() if "..." in listed] == []


def test_every_cell_about_pull_names_tests_that_there_are():
    page = text("docs/models.md")
    (row,) = re.findall(r"^\| \*\*localspec pull\*\* \|(.*)\|$", page, re.MULTILINE)
    tested = re.findall(r"^- [^`]*((?:`test_\w+`,?\s*)+)$", page, re.MULTILINE)
    assert len(tested) == len(row.split(" | ")) == 7
    written = "".join(file.read_text(encoding="utf-8") for file in ROOT.glob("tests/**/test_*.py"))
    named = [name for cell in tested for name in re.findall(r"`(test_\w+)`", cell)]
    assert [name for name in named if f"\ndef {name}(" not in written] == []


def test_every_command_in_the_pages_exists():
    named = {
        command
        for page in PAGES
        if page.name != "measurements-archive.md"
        for command in re.findall(r"(?:^\$ |`)localspec ([a-z][a-z-]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {"chat", "run", "bench", "history", "config", "doctor"} <= named
    assert named <= set(cli.commands)


def test_every_program_in_the_pages_is_one_and_every_one_of_benchmarks_is_listed():
    named = {
        module
        for page in PAGES
        if page.name not in {"measurements-archive.md", "CHANGELOG.md", "DECISIONS.md"}
        for module in re.findall(
            r"python3?\s-m\s((?:benchmarks|training|tests|localspec)[.\w]*)", page.read_text(encoding="utf-8")
        )
    }
    assert [module for module in named if not is_program(module)] == []
    files = [*ROOT.glob("benchmarks/*.py"), *(file.parent for file in ROOT.glob("benchmarks/*/__main__.py"))]
    programs = {module for file in files if is_program(module := f"benchmarks.{file.stem}")}
    assert len(programs) > 15
    assert programs <= named


def is_program(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    file = path.with_suffix(".py")
    return (path / "__main__.py").is_file() or (file.is_file() and "__main__" in file.read_text(encoding="utf-8"))


def test_the_exit_codes_are_those_of_the_errors():
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", text("docs/cli.md"), re.MULTILINE)}
    raised = {
        kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LocalspecError)
    }
    assert table == raised | {0, PIPE_LEFT}


def test_every_setting_is_explained():
    """A row has one key, or one whole key and the ends of others of its section."""
    (table,) = re.findall(r"^## Every key\n(.*?)^## ", text("docs/configuration.md"), re.MULTILINE | re.DOTALL)
    named: list[str] = []
    for row in re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE):
        first, *others = re.findall(r"`([^`]*)`", row)
        section = first.rpartition(".")[0]
        named += [first, *(section + other for other in others)]
    assert sorted(named) == sorted({*KEYS, "[presets.NAME]", "[keymap]"} - {"schema_version"})


def test_every_key_that_can_be_changed_is_named():
    (table,) = re.findall(r"^## Keys\n(.*?)^## ", text("docs/configuration.md"), re.MULTILINE | re.DOTALL)
    named = [
        name for row in re.findall(r"^\|[^|`]*\|(.*)\|$", table, re.MULTILINE) for name in re.findall("`(.*?)`", row)
    ]
    assert sorted(named) == sorted(known_ids(ChatApp.BINDINGS))


def test_the_settings_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "models" / "mine").mkdir(parents=True)
    commands = re.findall(r"^\$ localspec (config .*)$", without_help(text("docs/configuration.md")), re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        result = CliRunner().invoke(cli, shlex.split(command))
        assert result.exit_code == 0, command + result.output
    assert "0.7" in result.output


@pytest.mark.heavy
def test_the_python_in_the_pages_runs(capsys: pytest.CaptureFixture[str]):
    (example,) = re.findall(r"```python\n(.*?)```", text("docs/python.md"), re.DOTALL)
    exec(compile(example, "docs/python.md", "exec"), {})
    assert "draft" in capsys.readouterr().out


def test_the_models_of_your_own_load():
    """As the page has them, but for their folder."""
    (example,) = re.findall(r"```toml\n(.*?)```", text("docs/configuration.md"), re.DOTALL)
    paths.config_dir().mkdir(parents=True)
    (paths.config_dir() / "models.toml").write_text(example, encoding="utf-8")
    entries = Catalog.load()
    for key in tomllib.loads(example)["models"]:
        assert entries.resolve(key)


def test_every_code_word_of_the_tests_is_explained():
    """F5 is a key of the keyboard as well, so those of F are listed in the page and not searched for."""
    word = re.compile(r"(?<![\w'\"/])(L[0-7]|[CDEG][1-9]|I[1-3])(?![\w'\"])")
    used = {found for file in ROOT.glob("tests/**/*.py") for found in word.findall(file.read_text(encoding="utf-8"))}
    explained = re.findall(r"^\| ([A-Z]\d) \|", text("docs/testing.md"), re.MULTILINE)
    assert used <= set(explained)
    assert all(before < after for before, after in pairwise(explained) if before[0] == after[0])


def test_the_picture_of_a_sweep_is_the_one_that_the_command_above_it_draws():
    """Every exit layer of the built-in model, as it is loaded without further options."""
    page = text("docs/measurements.md")
    named, shown = re.findall(
        r"^`localspec bench guide --sweep exit-layer --plot (\S+)`.*?^!\[.*?\]\((.*?)\)$",
        page,
        re.MULTILINE | re.DOTALL,
    )[0]
    assert (ROOT / named).resolve() == (ROOT / "docs" / shown).resolve()
    picture = (ROOT / named).read_text(encoding="utf-8")
    labels = re.findall("<!-- (.*?) -->", picture)
    assert {"guide, int8", "exit layer", "tokens/s", "accepted", *map(str, range(1, 12))} <= set(labels)
