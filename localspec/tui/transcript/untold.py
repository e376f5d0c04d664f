"""The line in the transcript above which the model is not told anything any more."""

from __future__ import annotations

from localspec.tui.transcript.note import Note


class Untold(Note):
    """Stands between what the model is not told any more and what it is."""

    def __init__(self) -> None:
        super().__init__("Above: not told to the model any more.")
