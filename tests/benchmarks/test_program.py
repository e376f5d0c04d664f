"""Every program of benchmarks/ says what it does, and numbers out of range are refused before anything is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest

from benchmarks.program import at_least, read_lengths, read_shares, run
from localspec.core.errors import Cancelled, UsageError

PROGRAMS = {
    "batch": "batch",
    "bookkeeping": "bookkeeping",
    "chat": "chat.__main__",
    "copies": "copies",
    "exam": "exam.__main__",
    "exam.speed": "exam.speed",
    "levels": "levels",
    "lookup_scan": "lookup_scan",
    "offload": "offload",
    "pieces": "pieces.__main__",
    "quality": "quality",
    "real_model": "real_model",
    "shapes": "shapes.__main__",
    "shots": "shots",
    "startup": "startup",
    "survey": "survey.__main__",
    "ui": "ui.__main__",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_explains_itself(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as left:
        import_module(f"benchmarks.{PROGRAMS[name]}").main(["--help"])
    said = capsys.readouterr().out
    assert left.value.code == 0
    assert said.startswith(f"usage: python -m benchmarks.{name} [-h]")
    assert "SUPPRESS" not in said
    assert "None" not in said


def test_what_other_programs_are_measured_with_says_nothing_about_their_threads():
    """A server that a benchmark starts inherits its environment. Where OpenMP's threads sleep, llama-server writes
    at a third of its speed."""
    modules = ", ".join(f"benchmarks.{name}" for name in PROGRAMS.values())
    found = subprocess.run(
        [sys.executable, "-c", f"import json, os, {modules}; print(json.dumps(dict(os.environ)))"],
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not [name for name in json.loads(found.stdout) if name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_"))]


@pytest.mark.parametrize("name", ["exam", "offload", "pieces", "shapes", "startup", "ui"])
def test_a_number_that_is_too_small_is_refused(name: str, capsys: pytest.CaptureFixture[str]):
    flag = ["-n", "7"] if name == "exam" else ["-r", "0"]
    with pytest.raises(SystemExit) as left:
        import_module(f"benchmarks.{PROGRAMS[name]}").main(flag)
    assert left.value.code == 2
    assert "is not a number from" in capsys.readouterr().err


def test_what_is_read_from_a_command_line():
    assert at_least(1)("3") == 3
    assert read_shares("0.8,1") == (0.8, 1.0)
    assert read_shares(None) == ()
    assert read_lengths("8,auto") == ("8", "auto")
    for read, word in ((read_shares, "often"), (read_shares, "1.5"), (read_lengths, "8,99"), (read_lengths, ",")):
        with pytest.raises(UsageError, match="it takes"):
            read(word)


def test_an_error_is_one_sentence_and_its_exit_code(capsys: pytest.CaptureFixture[str]):
    def refuse(_: object) -> None:
        raise UsageError("This cannot be.", hint="Try another.")

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    assert run(refuse) == 2
    assert capsys.readouterr().err == "error: This cannot be. Try another.\n"
    assert run(interrupt) == Cancelled.exit_code
