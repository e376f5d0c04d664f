"""The field for the words that are looked for in a chat."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from localspec.tui.panels.field import Field


class Words(Field):
    """Enter goes on to the next."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "submit", "Next", show=False, id="find.submit")]
