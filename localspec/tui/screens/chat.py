"""The chat's one screen: where everything stands, and what each key does. A turn itself is `turn`'s."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, OptionList

from localspec.core.errors import LocalspecError
from localspec.runtime.worker import log_file
from localspec.tui.chat.licence import licences
from localspec.tui.chat.recorder import SAVE_SECONDS
from localspec.tui.chat.report import answer_report, load_report
from localspec.tui.control.commands import Command, nearest
from localspec.tui.control.measuring import MeasuringScreen
from localspec.tui.control.state import AWAY
from localspec.tui.keys.key_names import with_keys
from localspec.tui.panels.keys_line import KeysLine
from localspec.tui.panels.speed_panel import LEAST_WIDTH
from localspec.tui.screens.link import NO_BROWSER, NOT_WEB, LinkScreen, Wish, browse, host
from localspec.tui.screens.too_small import TooSmall
from localspec.tui.terminal.editor import chosen_editor, edited
from localspec.tui.transcript.legend import Legend
from localspec.tui.transcript.markers import Note
from localspec.tui.transcript.thought import Thought
from localspec.tui.transcript.token_view import View

if TYPE_CHECKING:
    from textual.widgets import Markdown

BODY = "localspec.tui.transcript.body"  # the first answer needs it, and by then it is there
QUIT_SECONDS = 1.0
QUIT_AGAIN = "Press {interrupt} again to quit."
HELP_PANEL = "HelpPanel"  # by name: its module imports all of Markdown


class ChatScreen(MeasuringScreen):
    """Header, transcript between the chats that were kept and the speed panel, state line, prompt."""

    AUTO_FOCUS = "#prompt"  # else the first field there is, that of the chats, has the first keys
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "Stop", key_display="Esc", priority=True, id="stop"),
        Binding("ctrl+n", "new", "New", key_display="^N", priority=True, id="new"),
        Binding("ctrl+r", "reload", "Reload", key_display="^R", priority=True, id="reload"),
        Binding("ctrl+r", "retry", "Retry", show=False, priority=True, id="retry"),
        Binding("alt+e", "edit", "Edit", show=False, priority=True, id="edit"),
        Binding("alt+up", "point(-1)", "Earlier message", show=False, priority=True, id="msg.prev"),
        Binding("alt+down", "point(1)", "Later message", show=False, priority=True, id="msg.next"),
        Binding("f2", "speed", "Speed", key_display="F2", priority=True, id="speed"),
        Binding("f3", "tokens", "Tokens", key_display="F3", priority=True, id="tokens"),
        Binding("shift+f3,f13,f15", "rejects", "Rejected", show=False, priority=True, id="rejects"),  # or so it is sent
        Binding("f5", "spec", "Speculation", key_display="F5", priority=True, id="spec"),
        Binding("f6", "compare", "Compare", key_display="F6", show=False, priority=True, id="compare"),
        Binding("ctrl+t", "thoughts", "Thoughts", show=False, priority=True, id="thoughts"),
        Binding("ctrl+d", "leave", "Quit", show=False, priority=True, id="leave"),
        Binding("f1", "help", "Help", key_display="F1", priority=True, id="help"),
        Binding("ctrl+g", "editor", "Editor", show=False, priority=True, id="editor"),
        Binding("end", "end", "To the end", show=False, priority=True, id="end"),
        Binding("ctrl+o", "models", "Model", show=False, priority=True, id="models"),
        Binding("pageup", "page(-1)", "Page up", show=False, priority=True, id="page.up"),
        Binding("pagedown", "page(1)", "Page down", show=False, priority=True, id="page.down"),
        Binding("ctrl+b", "chats", "Chats", key_display="^B", priority=True, id="chats"),
        Binding("ctrl+f", "find", "Find", key_display="^F", show=False, priority=True, id="find"),
    ]

    def compose(self) -> ComposeResult:
        self.legend = Legend()
        yield from (self.header, Horizontal(self.sidebar, self.transcript, self.speed, id="middle"), self.legend)
        yield from (self.status, self.find, self.prompt.pills, self.prompt.completion, self.prompt)
        yield KeysLine()
        yield TooSmall()

    async def on_mount(self) -> None:
        await self.show_chat()
        self.prompt.focus()
        self.view = self.tuning.config.ui.token_view
        self.set_interval(SAVE_SECONDS, lambda: self.scribe.save(self.tally.stats))
        self.call_after_refresh(self.begin)

    def begin(self) -> None:
        """Once the first frame is on the screen: all that it does without."""
        self.scribe.start(self.tell)
        if self.past is not None:
            self.locate()
        self.load()
        self.run_worker(self.prepare, thread=True, exit_on_error=False, group="import")

    def prepare(self) -> None:
        """What is needed in a while, in a thread."""
        from localspec.runtime.local_models import names

        import_module(BODY)
        self.others = names()

    async def on_unmount(self) -> None:
        self.scribe.end(self.tally.stats, "cancelled")
        if self.feed is not None:
            self.feed.engine.close()
        self.shelf.close()
        await self.stop_bench()

    def on_resize(self, event: events.Resize) -> None:
        width = min(event.size.width, LEAST_WIDTH - 1) if self.app.is_inline else event.size.width
        self.speed.settle(width)
        self.sidebar.settle(width)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if isinstance(self.focused, {"page": OptionList, "leave": Input}.get(action, ())):
            return False  # its own pages, its own Ctrl+D
        return self.can_reload if action == "reload" else super().check_action(action, parameters)

    def action_stop(self) -> None:
        """Esc: close the list of commands, else leave where the cursor is beside the chat, else stop the answer, else
        leave an edit, a message, what lies over the chat, else take back the message that waits."""
        if self.prompt.completion.close():
            return
        if beside := next((panel for panel in (self.find, self.sidebar) if panel.has_focus_within), None):
            beside.leave()
        elif self.answering:
            self.stop_answer()
        elif self.edited is not None:
            self.end_edit()
        elif self.cursor is not None:
            self.leave_message()
        elif self.query(HELP_PANEL):
            self.app.action_hide_help_panel()
        elif self.speed.covers:
            self.action_speed()
        elif self.sidebar.covers:
            self.sidebar.hide()
        elif self.find.display:
            self.find.leave()
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
        rejected = [proposal for step in self.rounds for proposal in step.rejected]
        if self.view == "rejects" and rejected and rejected[-1].p_target is None:
            self.status.give_hint("Answers from now on say how probable each was.")

    def watch_view(self, view: View) -> None:
        self.legend.follow(view)
        self.transcript.view = view

    def action_new(self) -> None:
        self.call_later(self.begin_chat)

    def action_reload(self) -> None:
        self.call_later(self.load)

    def action_interrupt(self) -> None:
        """Ctrl+C with nothing over the chat: copy, else stop, else clear, else quit at the second time."""
        if selected := self.prompt.selected_text or self.get_selected_text():
            self.take(selected)
            self.clear_selection()
            self.prompt.move_cursor(self.prompt.cursor_location)
        elif self.answering:
            self.stop_answer()
        elif self.prompt.text or self.prompt.pills.attachments:
            self.prompt.clear()  # an edit, which the text area's undo takes back
            self.prompt.pills.take()
        elif self.status.hint == (again := with_keys(self, QUIT_AGAIN)):
            self.call_later(self.app.action_quit)
        else:
            self.status.give_hint(again, QUIT_SECONDS)

    async def action_leave(self) -> None:
        """Ctrl+D: quits on an empty prompt, deletes to the right otherwise."""
        if self.prompt.text:
            self.prompt.action_delete_right()
        else:
            await self.app.action_quit()

    def action_page(self, direction: int) -> None:
        self.transcript.page(direction)

    def action_end(self) -> None:
        """The end of a line while one is being written, else the end of the chat, which is then followed again."""
        if self.prompt.text or not self.prompt.has_focus:
            raise SkipAction
        self.transcript.anchor()

    # --- long content

    def action_thoughts(self) -> None:
        """Open all thoughts, or shut them if the last one is open."""
        thoughts = list(self.query(Thought))
        for thought, is_open in [(thought, not thoughts[-1].is_open) for thought in thoughts]:
            thought.is_open = is_open

    def command_attach(self, argument: str) -> None:
        self.prompt.attach(argument.strip('"'), typed=self.obeyed)

    # --- links in answers

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        if host(event.href):
            self.app.push_screen(LinkScreen(event.href), partial(self.follow, event.href))
        else:
            self.status.give_hint(NOT_WEB)

    def follow(self, address: str, wish: Wish | None) -> None:
        if wish == "copy":
            self.take(address)
        elif wish == "open":
            self.run_worker(partial(self.hand_to_browser, address), thread=True, exit_on_error=False, group="links")

    def hand_to_browser(self, address: str) -> None:
        """In a thread."""
        if not browse(address):
            self.call_later(self.take, address, NO_BROWSER)

    # --- commands

    def pick(self, command: Command) -> None:
        """Chosen by name: it runs, or waits in the prompt for its argument."""
        if command.needs_argument:
            self.prompt.clear()
            self.prompt.give(f"/{command.name} ")
            self.prompt.focus()
        else:
            self.call_later(getattr(self, command.method), "")

    async def note(self, text: str) -> None:
        await self.show(Note(text))

    async def command_new(self, _: str) -> None:
        await self.begin_chat()

    def command_tokens(self, argument: str) -> None:
        if argument == "rejected":
            self.action_rejects()
        elif argument:
            self.refuse("/tokens shows who wrote each token; /tokens rejected what was rejected, too.")
        else:
            self.action_tokens()

    async def command_bye(self, _: str) -> None:
        await self.app.action_quit()

    async def command_stats(self, _: str) -> None:
        measured = self.status.stats.predicted_n
        await self.note(answer_report(self.tally.stats) if measured else "No answer has been measured yet.")

    async def command_show(self, _: str) -> None:
        if self.model is None or self.spec is None or self.phase in AWAY:
            self.status.give_hint("Nothing is loaded.")
        else:
            await self.note(load_report(self.model, self.spec, self.tally.stats))

    async def command_license(self, _: str) -> None:
        await self.note(await asyncio.to_thread(licences, self.scribe.model_key))

    async def command_log(self, _: str) -> None:
        log = await asyncio.to_thread(log_file)
        none = "There is no log: its folder cannot be written. Set LOCALSPEC_STATE_DIR to another."
        await self.note(none if log == os.devnull else f"The engine's log: {log}")

    async def command_unload(self, _: str) -> None:
        await self.unload()

    async def command_system(self, argument: str) -> None:
        """What is set goes for this chat alone, from the next question on."""
        before = self.conversation.instructions
        if argument:
            self.conversation.own_system = "" if argument == "none" else argument
            self.scribe.instruct(self.conversation.instructions)
        now = self.conversation.instructions
        gone = "The system prompt is removed, from the next question on."
        none = gone if before else "There is no system prompt. Set one: /system TEXT"
        await self.note(f"System prompt: {now}" if now else none)

    async def command_theme(self, argument: str) -> None:
        names = tuple(sorted(self.app.available_themes))
        if not argument:
            await self.note(f"Theme {self.app.theme}. There are: {', '.join(names)}.")
        elif argument in names:
            self.app.theme = argument
        else:
            self.refuse(f"There is no theme {argument}.{nearest(argument, names)} /theme lists them.")

    def command_help(self, _: str) -> None:
        self.action_help()

    def command_keys(self, _: str) -> None:
        if self.query(HELP_PANEL):
            self.app.action_hide_help_panel()
        else:
            self.app.action_show_help_panel()

    def action_help(self) -> None:
        from localspec.tui.screens.help import HelpScreen, active_keys

        self.app.push_screen(HelpScreen(active_keys(self)))

    async def action_editor(self) -> None:
        """The terminal is the editor's meanwhile, so nothing of an answer could be shown or saved."""
        if self.answering:
            self.status.give_hint("The editor opens when the answer has ended.")
            return
        try:
            command = chosen_editor()
            with self.app.suspend():
                edit = edited(self.prompt.text, command)
        except SuspendNotSupported:
            self.status.give_hint("This terminal cannot be lent to an editor.")
        except LocalspecError as fault:
            self.status.give_hint(str(fault))
        else:
            self.prompt.clear()
            self.prompt.give(edit.text)
            self.status.give_hint(edit.trouble)
