"""Chats that outlive the program: one SQLite file, read and written by as many programs as like to."""

from localspec.history.attached import told
from localspec.history.export import FORMATS, Format, export
from localspec.history.peek import peek
from localspec.history.recall import recall
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
from localspec.history.store import History
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
from localspec.history.writer import Writer

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
