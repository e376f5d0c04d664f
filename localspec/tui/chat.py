"""The chat's one screen: where everything stands, and what each key does. A turn itself is `turn`'s."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual import events, work
from textual.actions import SkipAction
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import HelpPanel, Input, OptionList, Static

from localspec.errors import LocalspecError, UsageError
from localspec.events import Notice
from localspec.history import Format, OpenChat
from localspec.requests import SpecWish
from localspec.sanitize import one_line
from localspec.shelf import on_disk
from localspec.tui import speculation
from localspec.tui.branches import BranchScreen
from localspec.tui.commands import Command, nearest
from localspec.tui.compare import CompareScreen
from localspec.tui.conversation import Utterance
from localspec.tui.editor import chosen_editor, edited
from localspec.tui.find import FindBar
from localspec.tui.header import drafting
from localspec.tui.help_screen import HelpScreen, keys_of
from localspec.tui.keys_line import KeysLine
from localspec.tui.legend import Legend
from localspec.tui.licence import licences
from localspec.tui.message import Note
from localspec.tui.picker import Pick, Picker
from localspec.tui.report import answer_report, load_report
from localspec.tui.sampling_form import SamplingForm
from localspec.tui.scribe import SAVE_SECONDS, Kept, Told
from localspec.tui.shelf import Shelf
from localspec.tui.sidebar import Sidebar
from localspec.tui.speed_panel import LEAST_WIDTH
from localspec.tui.token_view import View
from localspec.tui.tuning import Choice
from localspec.worker import log_file

QUIT_SECONDS = 1.0
MIN_WIDTH, MIN_HEIGHT = 60, 16
QUIT_AGAIN = "Press Ctrl+C again to quit."
EXPORTS: tuple[Format, ...] = ("md", "json", "jsonl")
BUSY = "That must wait until the answer has ended."
ENDED = "The last answer ended by itself: there is nothing to continue."
FULL = "The context is full: this answer cannot go on."


class Chosen(Message):
    """A model that is there is to be loaded."""

    def __init__(self, choice: Choice) -> None:
        super().__init__()
        self.choice = choice


class ChatScreen(BranchScreen):
    """Header, transcript between the chats that were kept and the speed panel, state line, prompt."""

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
        Binding("shift+f3,f15", "rejects", "Rejected", show=False, priority=True, id="rejects"),  # F15 is xterm's
        Binding("f5", "spec", "Speculation", key_display="F5", show=False, priority=True, id="spec"),
        Binding("f6", "compare", "Compare", key_display="F6", show=False, priority=True, id="compare"),
        Binding("ctrl+c", "interrupt", "Interrupt", show=False, priority=True, id="interrupt"),
        Binding("ctrl+d", "leave", "Quit", show=False, priority=True, id="leave"),
        Binding("f1", "help", "Help", key_display="F1", priority=True, id="help"),
        Binding("ctrl+g", "editor", "Editor", show=False, priority=True, id="editor"),
        Binding("end", "end", "To the end", show=False, priority=True, id="end"),
        Binding("ctrl+o", "models", "Model", show=False, priority=True, id="models"),
        Binding("pageup", "page(-1)", "Page up", show=False, priority=True, id="page.up"),
        Binding("pagedown", "page(1)", "Page down", show=False, priority=True, id="page.down"),
        Binding("ctrl+b", "chats", "Chats", key_display="^B", show=False, priority=True, id="chats"),
        Binding("ctrl+f", "find", "Find", key_display="^F", show=False, priority=True, id="find"),
    ]

    def compose(self) -> ComposeResult:
        self.legend = Legend()
        self.too_small = Static(markup=False, id="too-small")
        self.shelf = Shelf(kept=self.scribe.keeps, tell=self.tell)
        self.sidebar, self.find = Sidebar(self.shelf), FindBar(self.texts)
        self.chat_id: str | None = None
        yield from (self.header, Horizontal(self.sidebar, self.transcript, self.speed, id="middle"), self.legend)
        yield from (self.status, self.find, self.prompt.completion, self.prompt)
        yield KeysLine()
        yield self.too_small

    async def on_mount(self) -> None:
        await self.show_chat()
        self.prompt.focus()
        self.view = self.tuning.config.ui.token_view
        self.scribe.start(self.tell)
        if self.past is not None:
            self.locate()
        self.set_interval(SAVE_SECONDS, lambda: self.scribe.save(self.tally.stats))
        self.load()

    def on_unmount(self) -> None:
        self.scribe.end(self.tally.stats, "cancelled")
        if self.feed is not None:
            self.feed.engine.close()
        self.shelf.close()

    def tell(self, notice: Notice) -> None:
        """Called from any thread."""
        self.post_message(Told(notice))

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        self.speed.settle(width)
        self.sidebar.settle(width)
        self.too_small.display = width < MIN_WIDTH or height < MIN_HEIGHT
        self.too_small.update(
            f"The terminal is {width}×{height}; localspec needs {MIN_WIDTH}×{MIN_HEIGHT}: enlarge it."
        )

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
        elif self.query(HelpPanel):
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

    def watch_view(self, view: View) -> None:
        self.legend.display = view != "markdown"
        self.transcript.view = view

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
        elif self.prompt.text:
            self.prompt.take()
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
        self.transcript.page(direction)

    # --- the message tree

    def action_retry(self) -> None:
        self.call_later(self.retry, self.at)

    def action_edit(self) -> None:
        self.call_later(self.edit, self.at)

    def action_point(self, direction: int) -> None:
        self.prompt.call_later(self.move, direction)  # behind the letters that were typed before it

    async def command_retry(self, _: str) -> None:
        await self.retry()

    def command_edit(self, _: str) -> None:
        self.edit()

    async def command_undo(self, _: str) -> None:
        await self.undo()

    async def command_branch(self, _: str) -> None:
        await self.branch()

    def command_copy(self, argument: str) -> None:
        self.copy(argument)

    def action_end(self) -> None:
        """The end of a line while one is being written, else the end of the chat, which is then followed again."""
        if self.prompt.text:
            raise SkipAction
        self.transcript.anchor()

    # --- speculation: switched, and compared with none

    def action_spec(self) -> None:
        self.steer(speculation.turned(self.wish), speculation.MODES)

    def command_spec(self, argument: str) -> None:
        self.steer(speculation.spelled(self.wish, argument), speculation.MODES)

    def command_k(self, argument: str) -> None:
        self.steer(speculation.of_length(argument), speculation.LENGTHS)

    def steer(self, wish: SpecWish | None, usage: str) -> None:
        """Tell the engine; it says when it does so, and the lines follow what it says."""
        if (lack := speculation.lack(self.spec)) or wish is None or self.feed is None:
            self.status.give_hint(lack or usage)
        else:
            self.wish = wish
            self.feed.steer(wish)

    def action_compare(self) -> None:
        self.call_later(self.command_compare, "")

    def command_compare(self, _: str) -> None:
        request, lack = self.last_question(), speculation.lack(self.spec)
        if lack or request is None or self.feed is None or self.spec is None:
            self.status.give_hint(lack or "There is no answered question to compare yet.")
        elif self.phase != "idle":
            self.status.give_hint(BUSY if self.phase != "gone" else self.status.state)
        else:
            self.enter("comparing", "comparing")
            self.comparison = CompareScreen(request, drafting(self.spec), self.feed.ask)
            self.app.push_screen(self.comparison, self.leave_comparison)

    def leave_comparison(self, _: None) -> None:
        if self.comparison is not None and self.feed is not None:
            self.enter("stopping", "stopping")
            self.feed.cancel()

    async def command_continue(self, _: str) -> None:
        """More of the last answer, in the same message."""
        said = self.conversation.last()
        if said is None or said.role != "assistant" or not said.text:
            self.status.give_hint("There is no answer to continue.")
        elif not said.may_go_on:
            self.status.give_hint(ENDED)
        elif self.model and said.made and said.made.stats.context_used >= self.model.context_max:
            self.status.give_hint(FULL)
        elif self.can_ask() and self.feed is not None:
            await self.resume(said, self.feed)

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

    def command_new(self, _: str) -> None:
        self.action_new()

    def command_tokens(self, _: str) -> None:
        self.action_tokens()

    async def command_bye(self, _: str) -> None:
        await self.app.action_quit()

    async def command_stats(self, _: str) -> None:
        stats = self.status.stats
        await self.note(answer_report(stats) if stats.predicted_n else "No answer has been measured yet.")

    async def command_show(self, _: str) -> None:
        if self.model is None or self.spec is None or self.phase in {"loading", "gone", "unloaded"}:
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
        if argument:
            self.conversation.own_system = "" if argument == "none" else argument
            self.scribe.instruct(self.conversation.instructions)
        now = self.conversation.instructions
        await self.note(f"System prompt: {now}" if now else "There is no system prompt. Set one: /system TEXT")

    async def command_theme(self, argument: str) -> None:
        names = tuple(sorted(self.app.available_themes))
        if not argument:
            await self.note(f"Theme {self.app.theme}. There are: {', '.join(names)}.")
        elif argument in names:
            self.app.theme = argument
        else:
            self.status.give_hint(f"There is no theme {argument}.{nearest(argument, names)} /theme lists them.")

    def command_help(self, _: str) -> None:
        self.action_help()

    def command_keys(self, _: str) -> None:
        if self.query(HelpPanel):
            self.app.action_hide_help_panel()
        else:
            self.app.action_show_help_panel()

    def action_help(self) -> None:
        self.app.push_screen(HelpScreen(keys_of(self)))

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

    # --- the chats that were kept

    def action_chats(self) -> None:
        self.sidebar.toggle()

    def command_chats(self, _: str) -> None:
        self.action_chats()

    def command_search(self, argument: str) -> None:
        self.sidebar.seek(argument)

    def on_kept(self, message: Kept) -> None:
        self.chat_id = message.chat_id
        self.sidebar.mark(message.chat_id)

    def on_sidebar_left(self) -> None:
        self.prompt.focus()

    async def on_sidebar_chosen(self, message: Sidebar.Chosen) -> None:
        if self.sidebar.covers:
            self.sidebar.hide()
        self.prompt.focus()
        if message.message_id is not None or message.chat_id != self.chat_id:
            await self.take_back()
            await self.break_off()
            self.fetch(message.chat_id, message.message_id)

    @work(group="opening", exclusive=True)
    async def fetch(self, chat_id: str, message_id: int | None) -> None:
        """Read the chat in a thread; the screen goes on in its own time."""
        try:
            if chat_id == self.chat_id:
                await asyncio.to_thread(self.scribe.settled)
            past = await asyncio.to_thread(self.shelf.open, chat_id, message_id)
        except LocalspecError as fault:
            self.tell(Notice("warning", fault.code, fault.message, fault.hint))
        else:
            self.call_later(self.open_at, past, message_id)

    async def open_at(self, past: OpenChat, message_id: int | None) -> None:
        await self.open_chat(past)
        if said := self.conversation.tree.nodes.get(message_id or 0):
            await self.reveal(said)

    async def on_sidebar_doomed(self, message: Sidebar.Doomed) -> None:
        """The running chat is left before it is deleted."""
        running = message.chat_id == self.chat_id
        if running:
            await self.begin_chat()

        def delete() -> None:
            if running:
                self.scribe.settled()
            self.shelf.delete(message.chat_id)

        self.sidebar.change(delete)

    # --- finding in this chat

    def action_find(self) -> None:
        self.find.open()

    async def on_find_bar_found(self, message: FindBar.Found) -> None:
        await self.reveal(self.spoken[message.place])

    def on_find_bar_left(self) -> None:
        self.query(".-found").remove_class("-found")
        self.prompt.focus()

    async def reveal(self, said: Utterance) -> None:
        """Bring the message into sight, and mark it."""
        message = await self.transcript.reach(said)
        self.query(".-found").remove_class("-found")
        if message is None:
            return
        message.add_class("-found")
        self.transcript.release_anchor()
        self.call_after_refresh(self.transcript.scroll_to_widget, message, top=True, animate=False)

    # --- exporting it

    def command_export(self, argument: str) -> None:
        typed, _, path = argument.partition(" ")
        kind = next((kind for kind in EXPORTS if kind == (typed.lower() or EXPORTS[0])), None)
        if kind is None:
            self.status.give_hint(f"Try: {', '.join(f'/export {each}' for each in EXPORTS)}")
        else:
            self.scribe.save(self.tally.stats)
            self.export(kind, path.strip())

    @work(group="export")
    async def export(self, kind: Format, path: str) -> None:
        def write() -> str:
            return f"This chat is now in {self.shelf.export(self.scribe.settled(), kind, path).absolute()}"

        try:
            self.tell(Notice("info", "exported", await asyncio.to_thread(write)))
        except LocalspecError as fault:
            self.tell(Notice("warning", fault.code, fault.message, fault.hint))

    # --- settings: sampling, presets, which model and who drafts

    def command_set(self, argument: str) -> None:
        if argument:
            self.tune(lambda: self.tuning.set(argument), f"/set {argument}")
        else:
            self.app.push_screen(SamplingForm(self.tuning), self.form_closed)

    def form_closed(self, applied: bool | None) -> None:
        if applied:
            self.tuned()

    def command_preset(self, argument: str) -> None:
        if argument:
            self.tune(lambda: self.tuning.use_preset(argument), f"/preset {argument}")
        else:
            self.status.give_hint(f"Presets: {one_line(', '.join(self.tuning.config.all_presets))}")

    def tune(self, change: Callable[[], None], typed: str) -> None:
        """A change of how tokens are chosen; what cannot be goes back into the prompt."""
        try:
            change()
        except UsageError as fault:
            self.prompt.give(typed)
            self.status.give_hint(one_line(str(fault)))
        else:
            self.tuned()

    def tuned(self) -> None:
        self.scribe.change(preset=self.tuning.preset)
        self.status.give_hint(f"From the next question on: {one_line(self.tuning.words)}")

    def command_model(self, argument: str) -> None:
        self.choose(argument) if argument else self.action_models()

    def command_draft(self, argument: str) -> None:
        self.choose(self.tuning.load.model, argument) if argument else self.action_models(drafts_first=True)

    def action_models(self, *, drafts_first: bool = False) -> None:
        stats, tuning = self.tally.stats, self.tuning
        held = stats.target_bytes + stats.drafter_bytes + stats.kv_bytes
        look = partial(on_disk, tuning.catalog, tuning.name, held_bytes=held)
        now = Pick(tuning.name, str(tuning.load.draft))
        self.app.push_screen(Picker(look, now, drafts_first=drafts_first), self.picked)

    def picked(self, pick: Pick | None) -> None:
        if pick is not None:
            self.choose(pick.model, pick.draft)

    def choose(self, model: str, draft: str | None = None) -> None:
        """Load another model, or another drafter, once it is known to be there."""
        self.run_worker(partial(self.look_up, model, draft), thread=True, exit_on_error=False, group="choose")

    def look_up(self, model: str, draft: str | None) -> None:
        try:
            choice = self.tuning.choice(model, draft)
        except LocalspecError as fault:
            self.post_message(Told(Notice("warning", fault.code, fault.message, fault.hint)))
        else:
            self.post_message(Chosen(choice))

    async def on_chosen(self, message: Chosen) -> None:
        await self.change_model(message.choice)
