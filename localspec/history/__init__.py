"""Chats that outlive the program: one SQLite file, read and written by as many programs as like to."""

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
    StoredMessage,
    Totals,
    first_line,
)
from localspec.history.store import History
from localspec.history.tree import Tree

__all__ = [
    "FORMATS",
    "Answer",
    "Attachment",
    "Chat",
    "Format",
    "Generation",
    "History",
    "Hit",
    "ModelTotals",
    "NewChat",
    "NewMessage",
    "OpenChat",
    "StoredMessage",
    "Totals",
    "Tree",
    "export",
    "first_line",
]
