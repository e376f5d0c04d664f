"""What the built-in model tells people to type is so: every command and every example in its answers runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import pytest
from textual.binding import Binding

from benchmarks.shapes.__main__ import read_arguments, shape_request
from localspec.bench import prompts
from localspec.bench.measure import measure
from localspec.bench.prompts import GUIDE, QUESTIONS
from localspec.bench.proof_report import Proof
from localspec.bench.sweep import sweep
from localspec.cli.main import cli, outcome
from localspec.config.reading import read
from localspec.config.tables import KEYS, SECTIONS
from localspec.core import paths
from localspec.core.requests import LoadRequest
from localspec.history import History
from localspec.tui.app import ChatApp
from localspec.tui.control.commands import find
from localspec.tui.control.typed_commands import parse
from localspec.tui.keys.ids import known_ids
from localspec.tui.keys.keymap import spelled
from localspec.tui.panels.prompt import Prompt
from localspec.tui.themes import read_theme
from tests.support.chats import chat
from training import corpus

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder", "verified")]

CORPUS, ROOT = corpus.load(), Path(__file__).parents[2]
ANSWERS = [text for entry in CORPUS.known for text in (entry.answer, *entry.follow_ups.values())] + [CORPUS.fallback]
SHELL_WORDS = re.compile(r"[<;&$]|^(if|python|[A-Z_]+=)|^echo(?!.* [|] )")
PLACEHOLDERS = {"folder": "target", "large": "target", "small": "draft"}
CAPITALS = {"MODEL": "guide", "PROMPT": "Hello", "NAME": "nord", "WORDS": "draft"}  # and ID, a chat's
MEASURING = ("measure", "sweep")
TWO = tuple(prompts.BenchPrompt(GUIDE, question) for question in QUESTIONS[:2])
ELSEWHERE = re.compile(r"^localspec (pull|rm|serve|stop)\b|pair [A-Z]|ORG/|ollama:|qwen3-8b|smollm2|--(server|batch) ")
SHAPES = "python -m benchmarks.shapes "  # a process that imports all that can be measured, for five seconds
TERMINALS_OWN = {"Ctrl+Shift+V"}
PYTHONS_OWN = {"chat.send"}


def blocks(language: str) -> list[str]:
    """The fenced blocks in this language, each once."""
    found = [body for text in ANSWERS for body in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)]
    return list(dict.fromkeys(found))


def inline() -> list[str]:
    """Commands within sentences, without those that are a line of a block too."""
    found = [words for text in ANSWERS for words in re.findall(r"`(localspec [^`]+)`", text)]
    lines = {line for block in blocks("(?:ba)?sh") for line in block.splitlines()}
    return [words for words in dict.fromkeys(found) if words not in lines]


def is_name(words: str) -> bool:
    """Of a command, with nothing after it."""
    command: click.Command = cli
    for word in words.split()[1:]:
        if not isinstance(command, click.Group) or word not in command.commands:
            return False
        command = command.commands[word]
    return True


def is_understood(words: str) -> bool:
    """Of a command with all its flags and arguments, which is not run."""
    command, typed = cast(click.Command, cli), words.split()[1:]
    while isinstance(command, click.Group) and typed and typed[0] in command.commands:
        command = command.commands[typed.pop(0)]
    is_bare = not typed
    try:
        command.make_context(words, typed)
    except click.MissingParameter:
        return is_bare
    except click.UsageError:
        return False
    return not isinstance(command, click.Group)


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


def typed(words: list[str], piped: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code. A chat that should open does, and nothing else opens one."""
    opened = []
    monkeypatch.setattr("localspec.tui.app.run", lambda *asked, **_: opened.append(asked) or 0)
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(piped)))
    monkeypatch.setattr(sys, "argv", words)
    code = outcome()
    assert bool(opened) == (words[1] == "chat" and code == 0 and "--help" not in words)
    return code


def of_the_shell() -> list[str]:
    """Those that a command and its pipe are not all of, the lightest first; those that measure shapes come last."""
    found = [block for block in blocks("(?:ba)?sh") if SHELL_WORDS.search(block)]
    return sorted(found, key=lambda block: (SHAPES in block, "localspec run" in block))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("block", of_the_shell())
def test_an_example_runs_in_a_shell(block: str) -> None:
    done = subprocess.run(["sh", "-e", "-c", block], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled(3)
@pytest.mark.parametrize("block", [block for block in blocks("(?:ba)?sh") if not SHELL_WORDS.search(block)])
def test_a_shell_example_runs(block: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """In this process, which has loaded all that one of its own would load first. A bench asks two of its questions."""
    for measuring in (measure, sweep):
        monkeypatch.setitem(measuring.__kwdefaults__, "prompts", TWO)
    for line in block.splitlines():
        assert typed(*without_shell(line), monkeypatch) == 0, capfd.readouterr().err


def test_an_example_that_measures_a_shape_is_understood() -> None:
    lines = [line for block in blocks("(?:ba)?sh") for line in block.splitlines() if line.startswith(SHAPES)]
    assert len(lines) > 1
    for line in lines:
        assert shape_request(read_arguments(shlex.split(line.removeprefix(SHAPES)))).shape == "tiny"


@pytest.mark.parametrize("words", inline())
def test_a_command_in_a_sentence_runs(
    words: str, history: History, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in a shell where a question waits to be read, a chat is kept, the editor changes nothing and all is confirmed.
    Nothing is measured, and nothing proven. What only names a command may lack the command's argument, and nothing
    else. What needs the hub, a server or a model that is not here is only read."""
    if "--plot" in words:
        pytest.importorskip("matplotlib")
    examples = CAPITALS | {"ID": chat(history, "A draft?", "Tokens.")[0].chat_id}
    filled = re.sub(rf"\[?\b({'|'.join(examples)})\b\]?", lambda found: examples[found[1]], words)
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setattr("localspec.cli.history.confirmed", lambda _: True)
    if ELSEWHERE.search(words):
        assert is_understood(words)
        return
    for name in MEASURING:
        monkeypatch.setattr(f"localspec.bench.options.{name}", unmeasured)
    monkeypatch.setattr("localspec.cli.proof.prove", unproven)
    code, said = typed(without_shell(filled)[0], b"What is a draft?", monkeypatch), capfd.readouterr().err
    assert code == 0 or (is_name(words) and "Missing argument" in said), said


def unmeasured(*_: object, **__: object) -> SimpleNamespace:
    """The report of a bench that takes no time."""
    return SimpleNamespace(to_markdown=str, to_json="{}".strip, to_csv=str)


def unproven(load: LoadRequest, *, num_prompts: int, max_tokens: int, **_: object) -> Proof:
    """That of a model for which nothing can draft."""
    return Proof(load.model, "int8", "cpu", num_prompts, max_tokens, ())


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
    words = command.choices if isinstance(command.choices, tuple) else ()  # else names that only a chat knows
    assert not words or argument.split(" ")[0] in ("", "NAME", *words)


def test_a_key_that_an_answer_names_is_bound_in_the_chat() -> None:
    """Or in the field one types in, which is Textual's."""
    keys = [key for bound in known_ids(ChatApp.BINDINGS).values() for key in bound.keys]
    keys += [key for one in Prompt.BINDINGS if isinstance(one, Binding) for key in one.key.split(",")]
    named = re.findall(r"(?<![\w+])(?:(?:Ctrl|Alt|Shift)\+)+(?:\w+|[^\s\w])|\bF\d+\b", "\n".join(ANSWERS))
    assert len(set(named)) > 20
    assert set(named) - {spelled(key) for key in keys} == TERMINALS_OWN


def test_a_setting_that_an_answer_names_exists() -> None:
    tops = {section.partition(".")[0] for section in SECTIONS}
    named = set(re.findall(rf"`((?:{'|'.join(sorted(tops))})\.[a-z_.]+)`", "\n".join(ANSWERS)))
    assert len(named) > 5
    assert named - {*KEYS, *SECTIONS} == PYTHONS_OWN


def test_a_make_target_and_an_extra_that_an_answer_names_exist() -> None:
    text = "\n".join(ANSWERS)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make (\w+)[^`]*`", text)) <= set(targets)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"localspec\[(\w+)\]", text)) <= set(extras)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("block", blocks("python"))
def test_a_python_example_runs(block: str) -> None:
    exec(compile(block, "an answer", "exec"), {"__name__": "answer"})


def parameters(command: click.Command) -> list[click.Parameter]:
    """Of a command and of all below it."""
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [*command.params, *(one for child in below for one in parameters(child))]


def unknown_flags(texts: list[str]) -> set[str]:
    """Flags within backticks that no command has."""
    flags = {flag for one in parameters(cli) for flag in (*one.opts, *one.secondary_opts)} | {"--help"}
    spans = [span for text in texts for span in re.findall(r"`([^`\n]+)`", text) if not span.startswith("python")]
    return {flag for span in spans for flag in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", span)} - flags


def unknown_commands(texts: list[str]) -> set[str]:
    """Commands of the shell and of the chat, within backticks or in a block, that do not exist."""
    text = "\n".join(texts)
    lines = [line for block in re.findall(r"```(?:ba)?sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", text)
    named = {found[0] for line in lines if (found := re.match(r"localspec [a-z]+|/[a-z]+(?= |$)", line))}
    return {one for one in named if not (find(one[1:]) if one.startswith("/") else is_name(one))}


def test_a_flag_and_a_variable_that_an_answer_names_exist() -> None:
    assert unknown_flags(ANSWERS) == set()
    source = "".join(file.read_text() for file in (ROOT / "localspec").rglob("*.py"))
    variables = {str(one.envvar) for one in parameters(cli)} | set(re.findall(r"LOCALSPEC_[A-Z_]+", source))
    assert {name for text in ANSWERS for name in re.findall(r"LOCALSPEC_[A-Z_]+", text)} - variables == set()


def test_a_command_that_is_only_read_must_be_right() -> None:
    right = ["localspec pull ORG/NAME", "localspec pull", "localspec rm", "localspec pull qwen3-8b --draft none -y"]
    wrong = ["localspec pull a/b c/d", "localspec pull a/b --hurry", "localspec get a/b", "localspec rm --hurry"]
    assert [is_understood(words) for words in right + wrong] == [True] * 4 + [False] * 4


def test_a_flag_or_a_command_that_never_existed_is_found() -> None:
    texts = [
        "`localspec run guide --quick`",
        "`localspec fly` or `/fly now`, `/help`.",
        "```sh\nlocalspec flee now\n```\nlocalspec is quick",
    ]
    assert unknown_flags(texts) == {"--quick"}
    assert unknown_commands(texts) == {"localspec fly", "/fly", "localspec flee"}
