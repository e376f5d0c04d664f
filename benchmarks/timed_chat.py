"""The chat with its frames timed. Knows nothing of what is asked and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any  # Any: asyncio's selector, and what Textual draws
from unittest.mock import patch

from localspec.tui import app
from localspec.tui.app import ChatApp
from localspec.tui.chat.repetition import Repetition
from localspec.tui.control import turns
from localspec.tui.control.feed import ChatEngine


@dataclass(slots=True)
class Frames:
    """Milliseconds of the stretches in which the screen's thread did not look for keys: of those in which it drew, on
    the clock and of a processor, and of all others."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)

    @property
    def longest(self) -> float:
        return max((*self.wall, *self.idle), default=0.0)


class Watched(Repetition):
    """Looks for repetition as the chat does, and finds none: texts for measuring repeat themselves, and are written to
    their end."""

    def add(self, text: str, *, in_code: bool) -> bool:
        super().add(text, in_code=in_code)
        return False


class TimedChat(ChatApp):
    """A frame is what the screen's thread does between two looks for keys, if it draws."""

    CSS_PATH = str(Path(app.__file__).with_name("chat.tcss"))  # Textual looks beside the class

    def __init__(self, make_engine: Callable[[], ChatEngine], **kept: Any) -> None:
        super().__init__(make_engine, **kept)
        self.frames, self.drawn = Frames(), False
        self.looking = patch.object(turns, "Repetition", Watched)

    def on_mount(self) -> None:
        self.looking.start()
        loop: Any = asyncio.get_running_loop()
        loop._selector.select = self.watching(loop._selector.select)

    def on_unmount(self) -> None:
        self.looking.stop()

    def take_frames(self) -> Frames:
        """Takes the frames since the last call."""
        taken, self.frames = self.frames, Frames()
        return taken

    def _display(self, screen: Any, renderable: Any) -> None:
        self.drawn = True
        super()._display(screen, renderable)

    def watching(self, select: Callable[[float | None], Any]) -> Callable[[float | None], Any]:
        """The same call, which takes the time that went by since the last one."""
        began = perf_counter(), thread_time()

        def watched(timeout: float | None = None) -> Any:
            nonlocal began
            wall, cpu = 1000 * (perf_counter() - began[0]), 1000 * (thread_time() - began[1])
            if self.drawn:
                self.frames.wall.append(wall)
                self.frames.cpu.append(cpu)
            else:
                self.frames.idle.append(wall)
            found = select(timeout)
            self.drawn, began = False, (perf_counter(), thread_time())
            return found

        return watched
