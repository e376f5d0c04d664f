"""Check 26: everything that is asked of huggingface_hub holds with the oldest version that pyproject.toml admits, below
the command line and above it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CLONE = HERE.parents[1]
COMMANDS = CLONE / "tests" / "cli" / "test_pull_through.py"  # whose hub's process has this version too
OLDEST = "1.31.0"
UNCLOSED = (
    "ResourceWarning",
    "pytest.PytestUnraisableExceptionWarning",
    "pytest.PytestUnhandledThreadExceptionWarning",
)


def test_the_oldest_version_is_the_one_that_is_required():
    required = re.search(r'"huggingface-hub>=([\d.]+)', (CLONE / "pyproject.toml").read_text(encoding="utf-8"))
    assert required is not None
    assert OLDEST.startswith(required[1])


@pytest.mark.slow
def test_all_that_is_asked_of_the_library_holds_with_the_oldest(tmp_path: Path):
    """Its sockets are closed by the collector, which is not ours to mend."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(tmp_path)]
    subprocess.run([*pip, f"huggingface_hub=={OLDEST}"], check=True)
    tests = [str(file) for file in (*sorted(HERE.glob("test_*.py")), COMMANDS) if file != Path(__file__)]
    pytest_run = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests]
    for warning in UNCLOSED:
        pytest_run += ["-W", f"ignore::{warning}"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    version = [sys.executable, "-c", "import huggingface_hub; print(huggingface_hub.__version__)"]
    assert subprocess.check_output(version, env=environment, text=True).strip() == OLDEST
    done = subprocess.run(pytest_run, env=environment, cwd=CLONE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
