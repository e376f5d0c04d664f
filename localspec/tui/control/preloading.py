"""What is read ahead, once the first frame is on the screen: modules that are needed soon, and the names of models.

Runs in a thread; knows no screen.
"""

from __future__ import annotations

from importlib import import_module

from localspec.tui.control.command_line import CommandLine

SOON = "transcript.body", "screens.models"  # the first answer and Ctrl+O need them, and by then they are there


def read_ahead(command_line: CommandLine) -> None:
    """Imports these, and gives the command line the names that the catalogue does not have."""
    from localspec.runtime.local_models import names

    for name in SOON:
        import_module(f"localspec.tui.{name}")
    command_line.others = names()
