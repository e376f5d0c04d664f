"""An app that reads the terminal through our drivers. Textual builds an app's driver, and keeps it, under private
names only."""

from __future__ import annotations

from typing import Any  # a screen's result

from rich.console import RenderableType
from textual._compositor import InlineUpdate
from textual.app import App
from textual.driver import Driver
from textual.geometry import Size
from textual.screen import Screen

ANEW = "\x1b[2J\x1b[H"  # what is drawn next begins in the first row


class TerminalApp(App[None]):
    """Its drivers read pastes and old terminals' keys as they are meant, and give the terminal a title."""

    _drawn_size: Size | None = None

    def get_driver_class(self) -> type[Driver]:
        chosen = super().get_driver_class()
        if chosen.__name__ != "LinuxDriver":  # Windows, or one that TEXTUAL_DRIVER names
            return chosen
        from localspec.tui.terminal.driver import TerminalDriver  # imports termios

        return TerminalDriver

    def _build_driver(self, headless: bool, inline: bool, mouse: bool, size: tuple[int, int] | None) -> Driver:
        """Textual's inline driver reads pastes as its full one does."""
        if headless or not inline:
            return super()._build_driver(headless, inline, mouse, size)
        from localspec.tui.terminal.driver import InlineDriver  # imports termios

        self._driver = InlineDriver(self, debug=False, mouse=mouse, size=size)
        return self._driver

    @property
    def can_suspend(self) -> bool:
        return self._driver is not None and self._driver.can_suspend

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Draws. Inline, a terminal of another size has wrapped what was drawn: the screen is cleared first. What is
        still laid out for the width before is not drawn, as it would be wrapped too."""
        if isinstance(renderable, InlineUpdate):
            if any(strip.cell_length > self.size.width for strip in renderable.strips):
                return
            if self._drawn_size not in (None, self.size) and self._driver is not None:
                self._driver.write(ANEW)
            self._drawn_size = self.size
        super()._display(screen, renderable)

    def show_title(self, title: str) -> None:
        """`title` is clean. Drivers that are not ours leave the terminal its title."""
        if show := getattr(self._driver, "show_title", None):
            show(title)
