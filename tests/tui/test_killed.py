"""A chat that is killed leaves nothing on the terminal: what tracks its semaphores outlives it, and stays silent."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

KILLED = """
import multiprocessing, os, signal, sys
{start}
held = multiprocessing.get_context("spawn").Semaphore()  # as Textual and the engine hold some
os.kill(os.getpid(), signal.SIGKILL)
"""
OURS = "from localspec.tui.app import start_tracker; start_tracker(); assert not sys.warnoptions"


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signal")
@pytest.mark.parametrize(("start", "warns"), [(OURS, False), ("", True)], ids=["ours", "Python's own"])
def test_a_killed_chat_leaves_no_warning_of_python_s(start: str, warns: bool):
    """Python's own warns: else the other half would prove nothing. stderr ends with the tracker."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(start=start)], stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert (b"resource_tracker" in done.stderr) is warns
