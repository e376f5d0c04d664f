"""Saved chats: one SQLite file, which any number of programs may read and write.

The modules that open the file are imported at first use, since the chat's first frame does not need them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any  # Any: a module's attributes

from localspec.history.attachments import with_attachments
from localspec.history.export import FORMATS, Format, export
from localspec.history.records import (
    Attachment,
    Generation,
    HistoryTotals,
    ModelTotals,
    NewChat,
    OpenChat,
    SavedAnswer,
    SearchHit,
    SettingValue,
    Status,
    StoredChat,
    StoredMessage,
    Unsent,
    WhenFull,
    first_line,
)
from localspec.history.titles import title_of
from localspec.history.tree import Tree
from localspec.history.turns import (
    ANEW,
    NEXT_ANEW,
    OWN,
    Answered,
    Asked,
    Edited,
    Instructed,
    Left,
    Located,
    Moved,
    Opened,
    Removed,
    Shortened,
    Sought,
    Titled,
    Unanswered,
    Update,
    Written,
)

if TYPE_CHECKING:
    from localspec.history.listing import peek
    from localspec.history.recall import recall
    from localspec.history.store import History
    from localspec.history.writer import Writer

DOORS = {"History": "store", "Writer": "writer", "peek": "listing", "recall": "recall"}

__all__ = [
    "ANEW",
    "FORMATS",
    "NEXT_ANEW",
    "OWN",
    "Answered",
    "Asked",
    "Attachment",
    "Edited",
    "Format",
    "Generation",
    "History",
    "HistoryTotals",
    "Instructed",
    "Left",
    "Located",
    "ModelTotals",
    "Moved",
    "NewChat",
    "OpenChat",
    "Opened",
    "Removed",
    "SavedAnswer",
    "SearchHit",
    "SettingValue",
    "Shortened",
    "Sought",
    "Status",
    "StoredChat",
    "StoredMessage",
    "Titled",
    "Tree",
    "Unanswered",
    "Unsent",
    "Update",
    "WhenFull",
    "Writer",
    "Written",
    "export",
    "first_line",
    "peek",
    "recall",
    "title_of",
    "with_attachments",
]


def __getattr__(name: str) -> Any:
    """Imports a lazy name at its first use (PEP 562)."""
    if name not in DOORS:
        raise AttributeError(f"module 'localspec.history' has no attribute '{name}'")
    found = getattr(import_module(f"localspec.history.{DOORS[name]}"), name)
    globals()[name] = found  # else `recall` would name the module from now on
    return found
