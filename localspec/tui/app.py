"""The chat as a program: one screen, an engine made on demand, an exit code. Knows neither events nor widgets."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from multiprocessing import resource_tracker
from typing import ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver

from localspec.catalog import Catalog
from localspec.errors import UsageError
from localspec.history import NewChat, OpenChat, Writer
from localspec.requests import LoadRequest
from localspec.sanitize import clean
from localspec.tui.chat import ChatScreen
from localspec.tui.feed import Engine
from localspec.tui.overflow import Policy
from localspec.tui.scribe import Scribe

NO_SCREENS = ("", "dumb", "unknown")


class ChatApp(App[None]):
    """`make_engine` is called at the start and again for every reload."""

    TITLE = "localspec"
    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", key_display="^Q", priority=True, id="quit")
    ]

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        system: str | None = None,
        *,
        scribe: Scribe | None = None,
        past: OpenChat | None = None,
        overflow: Policy = "ask",
    ) -> None:
        resource_tracker.ensure_running()  # it inherits stderr, no file any more once Textual has the terminal
        super().__init__()
        self.theme = "tokyo-night"
        self.chat = ChatScreen(make_engine, system, scribe=scribe or Scribe(), past=past, overflow=overflow)

    def get_default_screen(self) -> ChatScreen:
        return self.chat

    def get_driver_class(self) -> type[Driver]:
        chosen = super().get_driver_class()
        if chosen.__name__ != "LinuxDriver":  # Windows, or one that TEXTUAL_DRIVER names
            return chosen
        from localspec.tui.terminal import TerminalDriver  # imports termios

        return TerminalDriver

    async def on_event(self, event: events.Event) -> None:
        """The door of what is pasted, wherever it goes; terminals paste line ends as CR."""
        if isinstance(event, events.Paste):
            event.text = clean(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        await super().on_event(event)

    async def action_quit(self) -> None:
        self.exit(return_code=self.chat.exit_code)


def run(request: LoadRequest, system: str | None = None, past: OpenChat | None = None, *, history: bool = True) -> int:
    """Chat until the user leaves, going on with `past` if there is one. The exit code is a failed start's, else 0."""
    from localspec.worker import EngineProcess

    if lack := no_screen():
        raise UsageError(lack, hint=f'Try: localspec run {request.model} "your question"')
    paper = Writer(chat=past.chat if past else None) if history else None
    scribe = Scribe(paper, NewChat(Catalog.load().lasting_name(request.model), system=system))
    app = ChatApp(lambda: EngineProcess(request), system, scribe=scribe, past=past)
    gc.freeze()  # what is loaded by now stays: each full collection would walk it, in the middle of a frame
    try:
        app.run()
    finally:
        if paper is not None and (notice := paper.close()):
            print(clean(f"{notice.level}: {notice.message} {notice.hint}".rstrip()), file=sys.stderr)
    return app.return_code or 0


def no_screen() -> str:
    """Why there is no full screen to draw on, if there is none."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return "The chat needs a terminal."
    if sys.platform != "win32" and (term := os.environ.get("TERM", "")) in NO_SCREENS:
        return f"The chat draws a full screen, and this terminal has none (TERM is {term or 'not set'})."
    return ""
