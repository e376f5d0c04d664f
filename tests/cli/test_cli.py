"""The command line: what it prints where, exit codes, and no traceback for bad input. One random model on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from localspec.cli.run import Output, show, with_defaults
from localspec.config import precedence
from localspec.config.tables import Config
from localspec.core.errors import EngineError
from localspec.core.events import AnyEvent, ModelCard, Step, Token
from localspec.core.requests import GenerateRequest, SamplingOptions
from localspec.runtime.api import LLM
from tests.conftest import Program
from tests.support.help_pages import commands, help_of
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, byte_level, wordpiece_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder")]

PROGRESS = ("loading", "checking", "compiling", "making", "measuring")
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("models")
    save_snapshot(made / "tiny", byte_level(*SPECIALS), template=CHATML, eos="<|im_end|>", hidden_size=64)
    save_snapshot(made / "base", byte_level(*SPECIALS), eos="<|endoftext|>", hidden_size=64)
    save_snapshot(made / "other", wordpiece_like(), seed=2)
    cut = made / "cut"
    save_snapshot(cut, byte_level(*SPECIALS), template=CHATML)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    return made


def shell(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, as a shell runs it."""
    command = [sys.executable, "-m", "localspec", *words]
    done = subprocess.run(command, check=False, input="", capture_output=True, text=True, timeout=120, env=env)
    assert "Traceback" not in done.stderr
    return done


def test_the_version_and_the_bare_command_answer_at_once():
    assert shell("--version").stdout.startswith("localspec 0.")
    bare = shell()
    assert (bare.returncode, bare.stdout, bare.stderr) == (0, shell("--help").stdout, "")
    assert "Commands:" in bare.stdout


def test_whatever_takes_yes_takes_y():
    """`history rm` did not, beside `rm` and `pull`."""
    pages = {words: help_of(words) for words in commands()}
    asking = {words for words, page in pages.items() if "--yes " in page}
    assert asking == {"pull ", "rm ", "history rm "}
    assert {words for words in asking if "-y, --yes " in pages[words]} == asking


def test_the_shell_can_complete_its_commands():
    asked = {"_LOCALSPEC_COMPLETE": "bash_complete", "COMP_WORDS": "localspec r", "COMP_CWORD": "1"}
    assert shell(env=os.environ | asked).stdout == "plain,remote\nplain,rm\nplain,run\n"


def test_text_goes_to_stdout_and_one_line_of_statistics_to_stderr(folder: Path, localspec: Program):
    words = ("run", folder / "tiny", "hello", "--max-tokens", "9", "--temperature", "0", "--draft", "early-exit:2")
    code, out, err = localspec(*words, "--stats")
    assert (code, out != "") == (0, True)
    figures = json.loads(err.strip().splitlines()[-1])
    assert figures["predicted_n"] == 9
    assert figures["draft_n"] == figures["draft_n_accepted"] + figures["draft_n_rejected"] + figures["draft_n_ignored"]
    assert figures["bandwidth_peak_gbs"] > 0


def test_one_json_object_holds_text_and_stats(folder: Path, localspec: Program):
    _, out, _ = localspec("run", folder / "tiny", "hello", "--max-tokens", "5", "--temperature", "0", "--json")
    answer = json.loads(out)
    assert set(answer) == {"text", "finish_reason", "stats"}
    assert answer["finish_reason"] == "length"


def test_beams_are_searched_without_a_drafter_and_without_the_usual_sampling(folder: Path, localspec: Program):
    words = ("run", folder / "tiny", "hello", "--max-tokens", "5", "--beams", "3", "--draft", "early-exit:2", "--json")
    code, out, err = localspec(*words)
    figures = json.loads(out)["stats"]
    assert code == 0
    assert (figures["predicted_n"], figures["plain_rounds"], figures["draft_kind"]) == (5, 5, "off")
    assert "info: Nothing is drafted while beams are searched." in err


@pytest.mark.parametrize(
    ("own", "asked", "found"),
    [
        ({}, {}, {"temperature": 0.7, "top_p": 0.95}),
        ({"temperature": 0.0}, {}, {"temperature": 0.0}),
        ({}, {"temperature": 0.0}, {"temperature": 0.0, "top_p": 0.95}),
    ],
)
def test_a_model_that_names_no_temperature_is_asked_with_balanced(
    own: dict[str, float], asked: dict[str, float], found: dict[str, float]
):
    """What it names itself is known only when it is loaded."""
    llm = SimpleNamespace(ready=SimpleNamespace(model=ModelCard("m", "int8", "cpu", 512, True, sampling=own)))
    request = GenerateRequest(prompt="hi", sampling=SamplingOptions(**asked))
    usual = precedence.usual(Config(), None)
    assert with_defaults(cast(LLM, llm), request, usual).sampling == SamplingOptions(**found)


def test_every_event_is_a_line_of_json_and_a_seed_repeats_the_text(folder: Path, localspec: Program):
    words = ("run", folder / "tiny", "--max-tokens", "12", "--jsonl", "--temperature", "1", "--seed", "7")
    texts = set()
    for draft in ("off", "early-exit:1", folder / "tiny"):
        _, out, _ = localspec(*words, "--draft", draft, stdin=b"piped")
        events = [json.loads(line) for line in out.splitlines()]
        kinds = [event["type"] for event in events]
        assert kinds[-1] == "done"
        assert kinds.index("ready") < kinds.index("prefill") < kinds.index("step")
        texts.add("".join(t["text"] for e in events if e["type"] == "step" for t in e["tokens"]))
    assert len(texts) == 1


def test_a_base_model_continues_the_text_and_says_so(folder: Path, localspec: Program):
    code, _, err = localspec("run", folder / "base", "once", "--max-tokens", "4")
    assert code == 0
    assert "base model" in err


BAD = {
    "unknown model": (("run", "gide", "hi"), 3, "did you mean 'guide'"),
    "no such folder": (("run", "./nowhere", "hi"), 3, "nowhere"),
    "truncated checkpoint": (("run", "@cut", "hi"), 1, "cut short"),
    "exit layer out of range": (("run", "@tiny", "hi", "--draft", "early-exit:4"), 2, "Exit layer 4"),
    "exit layer no number": (("run", "@tiny", "hi", "--draft", "early-exit:x"), 2, "'x'"),
    "exit without a layer": (("run", "@tiny", "hi", "--draft", "early-exit:"), 2, "'early-exit:' names no layer."),
    "exit layer of the guide": (("run", "guide", "hi", "--draft", "early-exit:12"), 2, "outside guide, which has 12"),
    "drafter with another tokenizer": (("run", "@tiny", "hi", "--draft", "@other"), 6, "cannot draft for"),
    "drafter not for the guide": (("run", "guide", "hi", "--draft", "@other"), 6, "for 'guide'"),
    "unknown drafter": (("run", "guide", "hi", "--draft", "smal"), 3, "auto, off, early-exit:E, lookup, small, or"),
    "bench of an unknown model": (("bench", "gide"), 3, "Use the built-in model, guide"),
    "no prompt": (("run", "@tiny"), 2, "no prompt"),
    "prompt longer than the context": (("run", "@tiny", "word " * 2000), 5, "holds 512. Shorten it.\n"),
    "draft length": (("run", "@tiny", "hi", "--k", "99"), 2, "'99'"),
    "format": (("run", "@tiny", "hi", "--quant", "int3"), 2, "int3"),
    "a CPU's format elsewhere": (("run", "@tiny", "hi", "--quant", "int4", "--device", "cuda"), 2, "on a CPU only"),
    "context": (("run", "@tiny", "hi", "--ctx", "99999"), 2, "99,999"),
    "context for nothing": (("chat", "guide", "--ctx", "5"), 2, "--ctx 5 is too short"),
    "context for no answer": (("run", "guide", "hi", "--ctx", "5"), 2, "must fit. Use --ctx 32 or more.\n"),
    "context of the guide": (("run", "guide", "hi", "--ctx", "99999"), 2, "guide was made for. Use --ctx 32 to 2048."),
    "temperature": (("run", "@tiny", "hi", "--temperature", "-1"), 2, "temperature"),
    "max tokens": (("run", "@tiny", "hi", "--max-tokens", "0"), 2, "max_tokens"),
    "unknown flag": (("run", "@tiny", "hi", "--draf"), 2, "'--draf'. (Did you mean one of: '--draft'"),
    "unknown command": (("rum",), 2, "No such command 'rum'"),
    "no model": (("run",), 2, "'MODEL'"),
    "threads": (("bench", "guide", "--threads", "0"), 2, "'--threads'"),
    "more threads than processors": (("run", "@tiny", "hi", "--threads", "1000"), 2, "too many for this computer's"),
    "threads for a bench": (("bench", "guide", "--threads", "1000"), 2, "too many for this computer's"),
    "a shape": (("bench", "--shape", "tiny"), 2, "--shape moved: run `python -m benchmarks.shapes` from a clone."),
    "the screen's cost": (("bench", "--ui"), 2, "--ui moved: run `python -m benchmarks.ui` from a clone."),
    "the exam": (("bench", "guide", "--task", "guide"), 2, "--task moved: run `python -m benchmarks.exam`"),
    "the exam's questions": (("bench", "--prompts=exam"), 2, "--prompts moved: run `python -m benchmarks.exam.speed`"),
    "llama.cpp": (
        ("bench", "--against", "llama-cpp"),
        2,
        "--against llama-cpp moved: run `python -m benchmarks.shapes`",
    ),
    "a peer that is none": (("bench", "--against", "vllm"), 2, "Try: localspec bench --help"),
    "a shape elsewhere": (("run", "guide", "Hi", "--shape", "tiny"), 2, "Try: localspec run --help"),
    "a trace of beams": (
        ("run", "@tiny", "hi", "--beams", "2", "--trace", "never.jsonl"),
        2,
        "--trace and --beams cannot be combined: nothing is drafted.",
    ),
    "beams that sample": (
        ("run", "@tiny", "hi", "--beams", "2", "--top-p", "0.5"),
        2,
        "so top_p has no effect. Leave out",
    ),
    "raw and system": (
        ("run", "@tiny", "hi", "--raw", "--system", "Be odd."),
        2,
        "--raw and --system cannot be combined.",
    ),
    "top-p": (("run", "@tiny", "hi", "--top-p", "0"), 2, "Use a number from 1e-09 to 1."),
    "seed": (
        ("run", "@tiny", "hi", "--seed", "-2"),
        2,
        "Use a whole number from -1 to 9223372036854775807 (-1: another each time).",
    ),
    "json and jsonl": (("run", "@tiny", "hi", "--json", "--jsonl"), 2, "cannot be combined"),
    "chat with an unknown model": (("chat", "gide"), 3, "did you mean 'guide'"),
    "chat with an unknown drafter": (("chat", "guide", "--draft", "smal"), 3, "smal"),
    "chat with a bad exit": (("chat", "guide", "--draft", "early-exit:x"), 2, "'x'"),
    "chat with a bad draft length": (("chat", "guide", "--k", "99"), 2, "'99'"),
    "chat without a terminal": (("chat", "@tiny"), 2, "terminal"),
}


@pytest.mark.parametrize(("words", "exit_code", "named"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_sentence_and_an_exit_code(
    folder: Path, words: tuple[str, ...], exit_code: int, named: str, localspec: Program
):
    code, out, err = localspec(*(folder / word[1:] if word.startswith("@") else word for word in words))
    assert code == exit_code
    assert named in err
    assert out == ""
    *told, sentence = err.splitlines()
    assert sentence.startswith("error: ")
    assert not any("rror" in line for line in told)
    assert err.count("etch") <= 1, "says twice to fetch it again"
    assert "localspec chat" not in sentence, "advises another command"


@pytest.mark.parametrize("name", ["notes.txt", "./notes.txt", "./empty.gguf", "./empty"])
def test_what_is_there_and_is_no_model_is_told_before_the_chat_opens(
    name: str, tmp_path: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("Buy milk.")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "empty").mkdir()
    sentence = (
        "is not a model that localspec can read. Use a GGUF file, or a folder with config.json and safetensors files."
    )
    assert localspec("chat", name) == (3, "", f"error: {name} {sentence}\n")


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        (
            "--seed",
            "seed -5 is out of range. Use a whole number from -1 to 9223372036854775807 (-1: another each time).",
        ),
        ("--max-tokens", "max_tokens -5 is out of range. Use 1 or more."),
    ],
)
def test_what_is_out_of_range_is_told_before_anything_is_loaded(
    folder: Path, flag: str, sentence: str, localspec: Program
):
    """A large model takes minutes."""
    assert localspec("run", folder / "tiny", "hi", flag, "-5") == (2, "", f"error: {sentence}\n")


def test_a_value_from_the_environment_is_not_laid_to_a_flag(localspec: Program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_TOP_K", "many")
    _, _, err = localspec("run", "guide", "hi")
    sentence = "Invalid value for LOCALSPEC_TOP_K in the environment: 'many' is not a valid integer."
    assert err == f"error: {sentence} Try: localspec run --help\n"


@pytest.mark.parametrize(("stdin", "told"), [(b"\xff\xfe\xfa", "UTF-8"), (None, "no prompt")], ids=["noise", "closed"])
def test_a_pipe_that_is_not_text_or_is_closed_is_told_so(
    stdin: bytes | None, told: str, folder: Path, localspec: Program
):
    code, _, err = localspec("run", folder / "tiny", stdin=stdin)
    assert code == 2
    assert told in err


def start(*words: str | Path, **streams: Any) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen([sys.executable, "-m", "localspec", *map(str, words)], **pipes)


def complaints(stderr: bytes | None) -> list[str]:
    """What stderr says, progress aside."""
    return [line for line in (stderr or b"").decode().splitlines() if not line.startswith(PROGRESS)]


@pytest.mark.parametrize("option", ["--raw", "--jsonl", "--json"])
def test_a_reader_that_leaves_early_ends_it_quietly_as_a_closed_pipe_ends_others(
    option: str, folder: Path, tmp_path: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    reader, writer = os.pipe()
    os.close(reader)
    said = tmp_path / "stderr"
    told = TextIOWrapper(said.open("wb", buffering=0), write_through=True)
    with open(writer, "w") as unread, told, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", unread)
        patched.setattr(sys, "stderr", told)
        words = ("hi", "--max-tokens", "9", "--temperature", "0", "--draft", "off", "--quant", "fp32", option)
        code, _, _ = localspec("run", folder / "tiny", *words)
    assert (code, complaints(said.read_bytes())) == (141, [])


def test_help_and_errors_that_nobody_reads_are_no_error():
    for words, stream in ((["--help"], "stdout"), (["rum"], "stderr")):
        reader, writer = os.pipe()
        os.close(reader)
        running = start(*words, **{stream: writer})
        os.close(writer)
        assert running.communicate(timeout=120) in ((b"", None), (None, b""))
        assert running.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_sentence():
    with Path("/dev/full").open("wb") as full:
        running = start("--help", stdout=full)
    _, stderr = running.communicate(timeout=120)
    assert running.returncode == 5
    assert stderr.decode() == (
        "error: The output cannot be written: the disk is full (No space left on device). Free some space.\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("closed", "exit_code"), [("<&- 2>&-", 0), ("<&- >&- 2>&-", 1)])
def test_streams_that_are_closed_do_no_harm(closed: str, exit_code: int, folder: Path):
    command = [
        sys.executable,
        "-m",
        "localspec",
        "run",
        str(folder / "tiny"),
        "hi",
        "--max-tokens",
        "3",
        "--temperature",
        "0",
    ]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *command], check=False, capture_output=True)
    assert (done.returncode, done.stdout == b"", done.stderr) == (exit_code, bool(exit_code), b"")


@pytest.mark.parametrize(("closed", "exit_code"), [("<&- 2>&-", 0), ("2>&-", 0), (">&-", 1)])
def test_an_answer_that_nobody_can_read_is_no_success(closed: str, exit_code: int):
    command = [sys.executable, "-m", "localspec", "config", "path"]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *command], check=False, capture_output=True, text=True)
    told = "error: The output is closed, so nothing can be written to it.\n" if exit_code else ""
    assert (done.returncode, done.stderr) == (exit_code, told)


def test_an_answer_that_the_context_cuts_says_so(folder: Path, localspec: Program):
    words = ("run", str(folder / "tiny"), "word " * 20, "--ctx", "120", "--draft", "off", "--temperature", "0")
    code, _, said = localspec(*words)
    assert code == 0
    assert "warning: The answer was cut off: the context of 120 tokens is full. Raise --ctx" in said
    _, _, said = localspec(*words, "--max-tokens", "3")
    assert "The answer was cut off" not in said


INTERRUPTING = """import os, signal
os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_before_the_program_is_there_ends_it_without_a_word(tmp_path: Path):
    """The signal comes while its command line is imported."""
    (tmp_path / "click").mkdir()
    (tmp_path / "click" / "__init__.py").write_text(INTERRUPTING)
    running = start(
        "--version",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )
    stdout, stderr = running.communicate(timeout=120)
    assert (running.returncode, stdout, stderr) == (130, b"", b"")


def test_ctrl_c_keeps_the_text_so_far(folder):
    running = start(
        "run", folder / "tiny", "hi", "--max-tokens", "480", "--temperature", "0", "--draft", "off", "--jsonl"
    )
    assert running.stdout
    lines = iter(running.stdout.readline, b"")
    next(line for line in lines if b'"type": "step"' in line)
    running.send_signal(signal.SIGINT)
    *_, last = lines
    _, stderr = running.communicate(timeout=120)
    assert json.loads(last)["finish_reason"] == "cancelled"
    assert (running.returncode, complaints(stderr)) == (130, [])


@pytest.mark.parametrize("module", ["click", "numpy.version", "torch.version"])
def test_ctrl_c_while_libraries_are_imported_ends_it_without_a_word(folder: Path, module: str):
    """torch catches what is raised while it imports numpy."""
    words = [sys.executable, "-X", "importtime", "-m", "localspec", "run", str(folder / "tiny"), "hi"]
    pipe = subprocess.PIPE
    running = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, bufsize=0)
    assert running.stderr is not None
    assert any(line.split()[-1:] == [module.encode()] for line in running.stderr)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=120)
    others = [line for line in complaints(stderr) if not line.startswith("import time:")]
    assert (running.returncode, stdout, others) == (130, b"", [])


def test_a_character_that_the_terminal_lacks_is_no_error(
    folder: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    def in_ascii(*words: str | Path) -> str:
        shown = TextIOWrapper(raw := BytesIO(), "ascii")
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", shown)
            assert localspec(*words)[0] == 0
        return raw.getvalue().decode("ascii")

    words = ("run", folder / "tiny", "naïve Ελληνικά", "--max-tokens", "40", "--temperature", "3", "--seed", "1")
    text = json.loads(localspec(*words, "--json")[1])["text"]
    assert not text.isascii()
    assert in_ascii(*words).rstrip("\n") == text.encode("ascii", "replace").decode().rstrip("\n")
    assert json.loads(in_ascii(*words, "--json"))["text"] == text


def stopping(event: AnyEvent | None) -> Iterator[AnyEvent]:
    yield from [event] if event else []
    raise EngineError("It broke.")


@pytest.mark.parametrize(("text", "shown"), [("some words", "some words\n"), (None, "")])
def test_an_error_in_mid_answer_gets_a_line_of_its_own(text: str | None, shown: str, capsys):
    step = Step("plain", (Token(1, text, "plain"),)) if text else None
    with pytest.raises(EngineError):
        show(stopping(step), Output())  # type: ignore[arg-type]
    assert capsys.readouterr().out == shown
