"""Chats that outlive the program: one SQLite file, read and written by as many programs as like to.

What opens the file is imported with its first use: the chat's first frame does without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any  # Any: a module's attributes

from localspec.history.attached import told
from localspec.history.export import FORMATS, Format, export
from localspec.history.records import (
    Answer,
    Attachment,
    Chat,
    Generation,
    Hit,
    ModelTotals,
    NewChat,
    NewMessage,
    OpenChat,
    Setting,
    Status,
    StoredMessage,
    Totals,
    WhenFull,
    first_line,
)
from localspec.history.tree import Tree
from localspec.history.turns import (
    OWN,
    Answered,
    Asked,
    Instructed,
    Left,
    Located,
    Moved,
    Opened,
    Removed,
    Said,
    Shortened,
)

if TYPE_CHECKING:
    from localspec.history.peek import peek
    from localspec.history.recall import recall
    from localspec.history.store import History
    from localspec.history.writer import Writer

DOORS = {"History": "store", "Writer": "writer", "peek": "peek", "recall": "recall"}

__all__ = [
    "FORMATS",
    "OWN",
    "Answer",
    "Answered",
    "Asked",
    "Attachment",
    "Chat",
    "Format",
    "Generation",
    "History",
    "Hit",
    "Instructed",
    "Left",
    "Located",
    "ModelTotals",
    "Moved",
    "NewChat",
    "NewMessage",
    "OpenChat",
    "Opened",
    "Removed",
    "Said",
    "Setting",
    "Shortened",
    "Status",
    "StoredMessage",
    "Totals",
    "Tree",
    "WhenFull",
    "Writer",
    "export",
    "first_line",
    "peek",
    "recall",
    "told",
]


def __getattr__(name: str) -> Any:
    """PEP 562."""
    if name not in DOORS:
        raise AttributeError(f"module 'localspec.history' has no attribute '{name}'")
    found = getattr(import_module(f"localspec.history.{DOORS[name]}"), name)
    globals()[name] = found  # else two of them would from now on be the modules of that name
    return found
