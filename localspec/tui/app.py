"""The chat as a program: one screen, an engine made on demand, an exit code. Knows neither events nor widgets."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from threading import Lock
from typing import ClassVar

from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from localspec.config.writing import store
from localspec.core import paths
from localspec.core.errors import UsageError
from localspec.core.events import Notice
from localspec.core.sanitize import clean, one_line
from localspec.core.whole_file import write_whole
from localspec.history import NewChat, OpenChat
from localspec.tui.chat.recorder import HistoryRecorder, Noticed
from localspec.tui.contrast import legible
from localspec.tui.control.feed import ChatEngine
from localspec.tui.control.tuning import Tuning
from localspec.tui.keys.ids import known_ids
from localspec.tui.keys.key_names import KeyedApp
from localspec.tui.keys.keymap import SEND_KEYS, spelled
from localspec.tui.keys.palette import ChatProvider, CommandProvider, ModelProvider
from localspec.tui.screens.chat import ChatScreen
from localspec.tui.screens.dismissal import Palette
from localspec.tui.screens.size_notice import TooSmall
from localspec.tui.screens.theme_picker import ThemePicker
from localspec.tui.terminal.collector import collect_at_rest
from localspec.tui.terminal.terminal_app import TerminalApp
from localspec.tui.themes import ThemeChoice, colours, look, unknown

NO_SCREENS = ("", "dumb", "unknown")
NO_LOOK = ThemeChoice()
NO_SUSPENDING = "The chat cannot be suspended here."
ENDS = [number for number in signal.Signals if number.name in {"SIGTERM", "SIGHUP"}]  # Windows has no SIGHUP
NO_WARNINGS = "ignore::UserWarning"
PALETTE_CLOSES = 0.1  # seconds, before a picture is taken of what is below


class ChatApp(TerminalApp, KeyedApp):
    """`make_engine` is called at the start and again for every reload."""

    TITLE = "localspec"
    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", key_display="^Q", priority=True, id="quit"),
        Binding(
            "ctrl+p",
            "command_palette",
            "Menu",
            key_display="^P",
            priority=True,
            id="palette",
            tooltip="Find a command by what it does, a chat by its name",
        ),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, priority=True, id="suspend"),
        Binding("ctrl+c", "interrupt", "Interrupt", show=False, priority=True, id="interrupt"),
    ]
    COMMANDS = KeyedApp.COMMANDS | {CommandProvider, ChatProvider, ModelProvider}

    def __init__(
        self,
        make_engine: Callable[[], ChatEngine],
        system: str | None = None,
        *,
        recorder: HistoryRecorder | None = None,
        past: OpenChat | None = None,
        tuning: Tuning | None = None,
        looks: ThemeChoice = NO_LOOK,
    ) -> None:
        start_tracker()
        self.tuning = tuning or Tuning()  # its colours are asked for below
        super().__init__()
        for theme in looks.themes:
            self.register_theme(theme)
        self.theme = self.kept_theme = looks.theme
        self.looks, self.keeping = looks, Lock()
        config = self.tuning.config
        if "TEXTUAL_ANIMATIONS" not in os.environ:
            self.animation_level = config.ui.animations
        self.wrong_keys = self.map_keys(known_ids(self.BINDINGS), {**SEND_KEYS[config.chat.send_key], **config.keymap})
        self.chat = ChatScreen(
            make_engine, system, recorder=recorder or HistoryRecorder(), past=past, tuning=self.tuning
        )

    def on_mount(self) -> None:
        with suppress(RuntimeError, ValueError):  # Windows, or a thread that is not the first
            for number in ENDS:
                asyncio.get_running_loop().add_signal_handler(number, self.end, number)
        self.theme_changed_signal.subscribe(self, self.remember)
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))  # the shell wrote over the screen
        wrong = unknown(self.tuning.config.ui.provenance, self.theme_variables)
        for notice in (
            *self.looks.notices,
            *self.wrong_keys,
            *(Notice("warning", "colour", sentence) for sentence in wrong),
        ):
            self.chat.post_message(Noticed(notice))

    def get_css_variables(self) -> dict[str, str]:
        variables = super().get_css_variables()
        variables |= legible(variables)
        self.theme_variables = variables | colours(self.tuning.config.ui.provenance, variables)
        return self.theme_variables

    def on_resize(self, event: events.Resize) -> None:
        """Resizes the screens below others too: Textual does not."""
        for screen in self.screen_stack:
            for cover in screen.query(TooSmall):
                cover.fit(event.size)

    def remember(self, theme: Theme) -> None:
        """The theme that the user chose is there at the next start; one that is only being tried is not."""
        if theme.name != self.kept_theme and not isinstance(self.screen, ThemePicker):
            self.kept_theme = theme.name
            self.run_worker(self.keep_theme, thread=True, exit_on_error=False, group="config")

    def keep_theme(self) -> None:
        """Runs in a thread; of several the last one writes what was chosen last."""
        with self.keeping:
            try:
                store("ui.theme", self.kept_theme)
            except UsageError as fault:
                self.chat.feedback.warn(fault)

    def get_default_screen(self) -> ChatScreen:
        return self.chat

    def get_key_display(self, binding: Binding) -> str:
        return binding.key_display or spelled(binding.key).replace("Ctrl+", "^")

    def deliver_screenshot(
        self, filename: str | None = None, path: str | None = None, time_format: str | None = None
    ) -> None:
        """Saves a screenshot in our folder. Textual's own names it after the state and the title, which says nothing
        later, reports it as markup, and never says why it cannot be kept."""
        name = filename or f"localspec-{datetime.now().strftime(time_format or '%Y-%m-%d-%H%M%S')}.svg"
        keep = partial(self.keep_screenshot, self.export_screenshot(), name, path)
        self.run_worker(keep, thread=True, exit_on_error=False, group="screenshot")

    def keep_screenshot(self, picture: str, name: str, folder: str | None) -> None:
        """Runs in a thread."""
        file = Path(folder or paths.pictures_dir()) / name
        try:
            write_whole(file, picture.encode())
            notice = Notice("info", "screenshot", f"The screenshot is in {file.absolute()}")
        except OSError as fault:
            reason = fault.strerror or type(fault).__name__
            sentence = f"The screenshot '{file}' cannot be written ({reason})."
            notice = Notice("warning", "screenshot", sentence, "For the text: /export md PATH")
        self.chat.feedback.answer(notice)

    def search_themes(self) -> None:
        self.chat.call_later(self.chat.settings.theme, "")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002 - any screen will do
        """What no command of the chat does; Textual's other entries are commands of ours."""
        keep = partial(self.set_timer, PALETTE_CLOSES, self.deliver_screenshot)
        yield SystemCommand("Screenshot", "save a picture of the screen (SVG)", keep)

    def watch_title(self, title: str) -> None:
        self.show_title(one_line(title))

    async def on_event(self, event: events.Event) -> None:
        """The door of what is pasted, wherever it goes; terminals paste line ends as CR."""
        if isinstance(event, events.InputEvent):
            self.chat.collector.put_off()
        if isinstance(event, events.Paste):
            event.text = clean(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        await super().on_event(event)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    async def action_interrupt(self) -> None:
        """Acts on Ctrl+C over the chat: copies what is selected, else closes the screen as Esc does, whichever key
        that is now."""
        screen = self.screen
        if isinstance(screen, ChatScreen):
            screen.action_interrupt()
        elif selected := screen.get_selected_text():
            self.chat.copies.take(selected)
            screen.clear_selection()
        else:
            closing = (one for one in screen.BINDINGS if isinstance(one, Binding) and "escape" in one.key.split(","))
            for binding in closing:
                await self.run_action(binding.action, screen)

    def action_suspend_process(self) -> None:
        """Suspends the chat as shells do with other programs; an answer is still being written meanwhile."""
        if self.can_suspend:
            super().action_suspend_process()
        else:
            self.chat.feedback.hint(NO_SUSPENDING)

    def end(self, number: int) -> None:
        """Quits as the user would when the system ends the program, or the terminal is closed: what was not sent is
        kept, and the terminal is left as it was."""
        self.exit(return_code=128 + number)

    async def action_quit(self) -> None:
        self.exit(return_code=self.chat.state.exit_code)


def start_tracker() -> None:
    """Starts multiprocessing's tracker while stderr is a file, which it inherits: Textual takes the terminal. Without
    its warnings, which a chat that was killed would leave on the shell's prompt."""
    sys.warnoptions.append(NO_WARNINGS)
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(NO_WARNINGS)


def run(  # noqa: PLR0913 - what the command line says of a screen
    tuning: Tuning,
    system: str | None = None,
    past: OpenChat | None = None,
    *,
    history: bool = True,
    theme: str | None = None,
    inline: bool = False,
    notices: tuple[Notice, ...] = (),
    make_engine: Callable[[], ChatEngine] | None = None,
) -> int:
    """Chat until the user leaves, going on with `past` if there is one. The exit code is a failed start's, else 0.
    `inline`: below the shell's last line, where the end of the chat stays. `make_engine`: of a server; None for the
    engine on this machine."""
    from localspec.history import Writer
    from localspec.runtime.worker import EngineProcess

    if inline and sys.platform == "win32":
        raise UsageError("--inline does not work on Windows.", hint="Leave it out.")
    if lack := no_screen():
        hint = "" if tuning.server else f'Try: localspec run {tuning.load.model} "your question"'
        raise UsageError(lack, hint=hint)
    looks = look(tuning.config, theme, paths.themes_dir())
    looks = replace(looks, notices=(*notices, *looks.notices))
    sink = Writer(chat=past.chat if past else None) if history else None
    begun = NewChat(tuning.name, preset=tuning.preset, system=system)
    recorder = HistoryRecorder(sink, begun, titled=tuning.config.chat.title == "first-line")
    if past is not None:
        recorder.called(past.chat.title)
    engine = make_engine or (lambda: EngineProcess(tuning.load))
    app = ChatApp(engine, system, recorder=recorder, past=past, tuning=tuning, looks=looks)
    collect_at_rest()
    try:
        app.run(inline=inline, inline_no_clear=inline)
    finally:
        if sink is not None and (notice := sink.close()):
            print(clean(f"{notice.level}: {notice.message} {notice.hint}".rstrip()), file=sys.stderr)
    return app.return_code or 0


def no_screen() -> str:
    """Why there is no full screen to draw on, if there is none."""
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return "The chat needs a terminal."
    if sys.platform != "win32" and (term := os.environ.get("TERM", "")) in NO_SCREENS:
        return f"The chat draws a full screen, and this terminal has none (TERM is {term or 'not set'})."
    return ""
