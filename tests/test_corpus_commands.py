"""What the built-in model tells people to type is so: every command and every example in its answers runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from pathlib import Path

import click
import pytest

from localspec import paths
from localspec.cli import cli, outcome
from localspec.config.reading import read
from localspec.recipe import corpus
from localspec.tui.commands import find, parse
from localspec.tui.themes import read_theme

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder")]

CORPUS, ROOT = corpus.load(), Path(__file__).parents[1]
ANSWERS = [text for entry in CORPUS.known for text in (entry.answer, *entry.follow_ups.values())] + [CORPUS.fallback]
SHELL_WORDS = re.compile(r"[<;&$]|^(if|python|[A-Z_]+=)|^echo(?!.* [|] )")
PLACEHOLDERS = {"folder": "target", "large": "target", "small": "draft"}
GROUPS = {name for name, command in cli.commands.items() if isinstance(command, click.Group)}


def blocks(language: str) -> list[str]:
    """The fenced blocks in this language, each once."""
    found = [body for text in ANSWERS for body in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]
    return list(dict.fromkeys(found))


def inline() -> list[str]:
    """Commands within sentences, without those that show a placeholder in capitals."""
    found = [words for text in ANSWERS for words in re.findall(r"`(localspec [^`]+)`", text)]
    return [words for words in dict.fromkeys(found) if is_whole(words)]


def is_whole(words: str) -> bool:
    """A group's command takes any word where it shows one in capitals."""
    return words.split()[1] in GROUPS or not re.search(r"\b[A-Z]{4,}\b", words)


def slash_commands() -> list[str]:
    """What is typed in the chat, within sentences."""
    found = [typed for text in ANSWERS for typed in re.findall(r"`(/[a-z]+(?: [^`]*)?)`", text)]
    return list(dict.fromkeys(found))


@pytest.fixture(autouse=True)
def folder_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an answer says path/to/folder there is a model."""
    models = tmp_path / "path" / "to"
    models.mkdir(parents=True)
    for name, part in PLACEHOLDERS.items():
        (models / name).symlink_to(paths.packaged(f"assets/guide/{part}"))
    (tmp_path / "question.txt").write_text("What is a draft?\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)


def without_shell(line: str) -> tuple[list[str], bytes]:
    """The command of a line, and what is piped into it; where the shell puts the output is its own affair."""
    before, _, command = line.rpartition(" | ")
    piped = subprocess.run(shlex.split(before), check=True, capture_output=True).stdout if before else b""
    return shlex.split(command.partition(" > ")[0]), piped


@pytest.mark.parametrize("block", blocks("sh"))
def test_a_shell_example_runs(block: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """In this process, which has loaded all that one of its own would load first; where more than a pipe or a file of
    output is written, as a shell runs it."""
    if SHELL_WORDS.search(block):
        done = subprocess.run(["sh", "-e", "-c", block], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return
    opened = []
    monkeypatch.setattr("localspec.tui.app.run", lambda *asked, **_: opened.append(asked) or 0)
    for line in block.splitlines():
        words, piped = without_shell(line)
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(piped)))
        monkeypatch.setattr(sys, "argv", words)
        assert outcome() == 0, capfd.readouterr().err
        assert bool(opened) == (words[1] == "chat")
        opened.clear()


@pytest.mark.parametrize("words", inline())
def test_a_command_in_a_sentence_exists(words: str) -> None:
    """And takes the options and values that stand there."""
    _, name, *rest = shlex.split(words.partition(" > ")[0])  # where the shell puts the output is its own affair
    command, given = (cli, [name]) if name.startswith("-") else (cli.commands[name], rest)
    if isinstance(command, click.Group) and command is not cli and given:
        name, *given = given
        command = command.commands[name]
    with suppress(
        click.exceptions.Exit, click.MissingParameter
    ):  # --help leaves; `localspec run` is the command's name
        command.make_context(name, given)


@pytest.mark.parametrize("words", [words for words in inline() if words.startswith("localspec config set ")])
def test_a_setting_in_a_sentence_can_be_set(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", shlex.split(words))
    assert outcome() == 0


@pytest.mark.parametrize("block", blocks("toml"))
def test_an_example_of_settings_or_of_a_theme_can_be_read(block: str, tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(block)
    read_theme(file) if block.startswith("name") else read(file)


@pytest.mark.parametrize("typed", slash_commands())
def test_a_slash_command_in_a_sentence_exists(typed: str) -> None:
    name, argument = parse(typed) or ("", "")
    command = find(name)
    assert command is not None
    assert command.argument or not argument
    assert not command.choices or argument in ("", "NAME", *command.choices)


def test_a_make_target_and_an_extra_that_an_answer_names_exist() -> None:
    text = "\n".join(ANSWERS)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make (\w+)[^`]*`", text)) <= set(targets)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"localspec\[(\w+)\]", text)) <= set(extras)


@pytest.mark.parametrize("block", blocks("python"))
def test_a_python_example_runs(block: str) -> None:
    exec(compile(block, "an answer", "exec"), {"__name__": "answer"})
