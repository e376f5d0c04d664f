"""Covers a screen that the terminal is too small for. The program passes the terminal's size."""

from __future__ import annotations

from textual.geometry import Size
from textual.widgets import Static

MIN_WIDTH, MIN_HEIGHT = 60, 16


class TooSmall(Static):
    """Covers its screen, on the topmost layer."""

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.display = False

    def on_mount(self) -> None:
        self.fit(self.app.size)

    def fit(self, size: Size) -> None:
        self.display = size.width < MIN_WIDTH or size.height < MIN_HEIGHT
        self.update(f"Enlarge the terminal to {MIN_WIDTH}×{MIN_HEIGHT}: it is {size.width}×{size.height}.")
