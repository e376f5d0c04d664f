"""The chat's one screen: where everything stands, and what each key does. A turn itself is `turn`'s."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Footer, HelpPanel, Static

from localspec.tui.legend import Legend
from localspec.tui.message import Answer
from localspec.tui.scribe import SAVE_SECONDS, Told
from localspec.tui.speed_panel import LEAST_WIDTH
from localspec.tui.thought import Thought
from localspec.tui.token_view import View
from localspec.tui.turn import TurnScreen

QUIT_SECONDS = 1.0
MIN_WIDTH, MIN_HEIGHT = 60, 16
QUIT_AGAIN = "Press Ctrl+C again to quit."


class ChatScreen(TurnScreen):
    """Header, transcript beside the speed panel, state line, prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", key_display="Esc", priority=True, id="stop"),
        Binding("ctrl+n", "new", "New chat", key_display="^N", priority=True, id="new"),
        Binding("ctrl+r", "reload", "Reload", key_display="^R", priority=True, id="reload"),
        Binding("f2", "speed", "Speed", key_display="F2", priority=True, id="speed"),
        Binding("f3", "tokens", "Tokens", key_display="F3", priority=True, id="tokens"),
        Binding("shift+f3,f15", "rejects", "Rejected", show=False, priority=True, id="rejects"),  # F15 is xterm's
        Binding("ctrl+t", "thoughts", "Thoughts", show=False, priority=True, id="thoughts"),
        Binding("ctrl+c", "interrupt", "Interrupt", show=False, priority=True, id="interrupt"),
        Binding("ctrl+d", "leave", "Quit", show=False, priority=True, id="leave"),
        Binding("pageup", "page(-1)", "Page up", show=False, priority=True, id="page.up"),
        Binding("pagedown", "page(1)", "Page down", show=False, priority=True, id="page.down"),
    ]

    def compose(self) -> ComposeResult:
        self.legend = Legend()
        self.too_small = Static(markup=False, id="too-small")
        yield from (self.header, Horizontal(self.transcript, self.speed, id="middle"), self.legend)
        yield from (self.status, self.prompt.pills, self.prompt)
        yield Footer(show_command_palette=False)
        yield self.too_small

    def on_mount(self) -> None:
        self.transcript.anchor()
        self.prompt.focus()
        self.scribe.start(lambda notice: self.post_message(Told(notice)))
        self.set_interval(SAVE_SECONDS, lambda: self.scribe.save(self.tally.stats))
        self.load()

    def on_unmount(self) -> None:
        self.scribe.end(self.tally.stats, "cancelled")
        if self.feed is not None:
            self.feed.engine.close()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        self.speed.settle(width)
        self.too_small.display = width < MIN_WIDTH or height < MIN_HEIGHT
        self.too_small.update(
            f"The terminal is {width}×{height}; localspec needs {MIN_WIDTH}×{MIN_HEIGHT}: enlarge it."
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.can_reload if action == "reload" else super().check_action(action, parameters)

    def action_stop(self) -> None:
        """Esc: stop the answer, else close what lies over the chat, else take back the message that waits."""
        if self.answering:
            self.stop_answer()
        elif self.query(HelpPanel):
            self.app.action_hide_help_panel()
        elif self.speed.covers:
            self.action_speed()
        elif self.queued is not None and not self.prompt.text:
            self.call_later(self.take_back)

    def action_speed(self) -> None:
        self.speed.toggle(self.size.width)
        if self.size.width < LEAST_WIDTH:
            self.status.give_hint(f"The speed panel needs {LEAST_WIDTH} columns.")

    def action_tokens(self) -> None:
        self.view = "tokens" if self.view == "markdown" else "markdown"

    def action_rejects(self) -> None:
        self.view = "tokens" if self.view == "rejects" else "rejects"

    def watch_view(self, view: View) -> None:
        self.legend.display = view != "markdown"
        for answer in self.query(Answer):
            answer.view = view

    def action_new(self) -> None:
        self.call_later(self.begin_chat)

    def action_reload(self) -> None:
        self.call_later(self.load)

    def action_interrupt(self) -> None:
        """Ctrl+C: copy, else stop, else clear, else quit at the second time."""
        if selected := self.prompt.selected_text or self.get_selected_text():
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
            self.prompt.move_cursor(self.prompt.cursor_location)
            self.status.give_hint("Copied.", QUIT_SECONDS)
        elif self.answering:
            self.stop_answer()
        elif self.prompt.text or self.prompt.pills.attachments:
            self.prompt.take()
            self.prompt.pills.take()
        elif self.status.hint == QUIT_AGAIN:
            self.call_later(self.app.action_quit)
        else:
            self.status.give_hint(QUIT_AGAIN, QUIT_SECONDS)

    async def action_leave(self) -> None:
        """Ctrl+D: quits on an empty prompt, deletes to the right otherwise."""
        if self.prompt.text:
            self.prompt.action_delete_right()
        else:
            await self.app.action_quit()

    def action_page(self, direction: int) -> None:
        scroll = self.transcript.scroll_page_up if direction < 0 else self.transcript.scroll_page_down
        scroll(animate=False)

    # --- long and hostile content

    def action_thoughts(self) -> None:
        """Open all thoughts, or shut them if the last one is open."""
        thoughts = list(self.query(Thought))
        for thought, is_open in [(thought, not thoughts[-1].is_open) for thought in thoughts]:
            thought.is_open = is_open

    def command_attach(self, argument: str) -> None:
        if argument:
            self.prompt.attach(argument.strip('"'))
        else:
            self.status.give_hint("Name a text file: /attach PATH")

    # --- slash commands

    def command_new(self, _: str) -> None:
        self.action_new()

    def command_tokens(self, _: str) -> None:
        self.action_tokens()

    async def command_bye(self, _: str) -> None:
        await self.app.action_quit()
