"""The chat's one screen: where everything stands, what each key does, and who hears what the engine says.

Composes the controllers of `tui/control`; what a command or a key does is theirs. Everything that changes a turn runs
in this screen's message queue.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Input, OptionList, TextArea

from localspec.core.events import AnyEvent, Done, Failure, Loading, Notice, Prefill, Ready, Steered, Step
from localspec.history import OpenChat
from localspec.tui.chat.past import conversation
from localspec.tui.chat.recorder import SAVE_SECONDS, HistoryRecorder, Kept, Noticed
from localspec.tui.control.branches import Branches
from localspec.tui.control.chats import Chats
from localspec.tui.control.command_line import CommandLine
from localspec.tui.control.commands import Command, Known
from localspec.tui.control.copies import Copies
from localspec.tui.control.engine_link import EngineLink
from localspec.tui.control.feed import Arrived, Engine
from localspec.tui.control.feedback import Feedback
from localspec.tui.control.full_context import FullContext
from localspec.tui.control.measuring import Measuring
from localspec.tui.control.models import Chosen, Models
from localspec.tui.control.outside import Outside
from localspec.tui.control.parts import Parts
from localspec.tui.control.reports import Reports
from localspec.tui.control.settings import Settings
from localspec.tui.control.speculation import Speculation
from localspec.tui.control.state import ChatState, Lines
from localspec.tui.control.tuning import Tuning
from localspec.tui.control.turns import Turns
from localspec.tui.keys.key_names import with_keys
from localspec.tui.markdown.painter import Painter
from localspec.tui.panels.find import FindBar
from localspec.tui.panels.header import Header
from localspec.tui.panels.keys_line import KeysLine
from localspec.tui.panels.prompt import Prompt
from localspec.tui.panels.sidebar import Sidebar
from localspec.tui.panels.speed_panel import LEAST_WIDTH, Reading, SpeedPanel
from localspec.tui.panels.stats_line import StatsLine, loading_words
from localspec.tui.screens.too_small import TooSmall
from localspec.tui.terminal.collector import Collector
from localspec.tui.transcript.legend import Legend
from localspec.tui.transcript.thought import Thought
from localspec.tui.transcript.token_view import View
from localspec.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from textual.widgets import Markdown

BODY = "localspec.tui.transcript.body"  # the first answer needs it, and by then it is there
QUIT_SECONDS = 1.0
QUIT_AGAIN = "Press {interrupt} again to quit."
HELP_PANEL = "HelpPanel"  # by name: its module imports all of Markdown


class ChatScreen(Screen[None]):
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

    view: reactive[View] = reactive("markdown", init=False)

    turns: Turns
    branches: Branches
    speculation: Speculation
    chats: Chats
    settings: Settings
    models: Models
    measuring: Measuring
    copies: Copies
    reports: Reports

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        system: str | None,
        *,
        recorder: HistoryRecorder,
        past: OpenChat | None,
        tuning: Tuning,
    ) -> None:
        super().__init__()
        self._compositor = Painter()
        self.recorder, self.tuning, self.past = recorder, tuning, past
        self.conversation = conversation(past, system, tuning)
        self.others: tuple[str, ...] = ()  # models that the catalogue does not have, as they were at the start
        self.collector = Collector(self, lambda: self.state.busy)
        self.make_widgets()
        self.state = ChatState(
            self,
            Lines(self.header, self.status, self.speed, self.prompt),
            self.conversation,
            tuning,
            unload=self.unload,
        )
        self.state.title = past.chat.title if past else ""
        self.feedback = Feedback(self, self.state, self.transcript)
        self.engine = EngineLink(self, self.state, make_engine, self)
        self.make_controllers()

    def make_widgets(self) -> None:
        ui = self.tuning.config.ui
        self.header, self.status, self.legend = Header(), StatsLine(), Legend()
        self.prompt = Prompt(self.claims, self.known)
        self.transcript = Transcript(
            busy=lambda: self.state.busy,
            let_go=self.collector.wish,
            version=self.conversation.version,
            rounds=self.recorder.rounds,
            window=ui.window_messages,
        )
        self.speed = SpeedPanel(self.reading)
        self.speed.wish = {"auto": None, "on": True, "off": False}[ui.speed_panel]

    def make_controllers(self) -> None:
        parts = Parts(
            screen=self,
            state=self.state,
            feedback=self.feedback,
            engine=self.engine,
            conversation=self.conversation,
            transcript=self.transcript,
            recorder=self.recorder,
            tuning=self.tuning,
        )
        self.turns = Turns(parts, collect=self.collector.wish, leave_bench=self.leave_bench)
        self.copies, self.reports, self.settings = Copies(parts), Reports(parts), Settings(parts)
        self.outside = Outside(parts, self.copies)
        self.branches = Branches(parts, self.turns, self.copies)
        self.speculation = Speculation(parts)
        self.chats = Chats(parts, self.turns, self.branches)
        self.sidebar, self.find = self.chats.sidebar, self.chats.find
        self.full_context = FullContext(parts, self.turns, begin_chat=self.chats.begin)
        self.models = Models(parts, self.turns, self.speculation)
        self.measuring = Measuring(parts, self.models)
        self.command_line = CommandLine(self.feedback, self.turns, self.branches, self.run)

    def compose(self) -> ComposeResult:
        yield from (self.header, Horizontal(self.sidebar, self.transcript, self.speed, id="middle"), self.legend)
        yield from (self.status, self.find, self.prompt.pills, self.prompt.completion, self.prompt)
        yield KeysLine()
        yield TooSmall()

    async def on_mount(self) -> None:
        await self.chats.show(self.past)
        self.prompt.focus()
        self.view = self.tuning.config.ui.token_view
        self.set_interval(SAVE_SECONDS, lambda: self.recorder.save(self.state.tally.stats))
        self.call_after_refresh(self.begin)

    def begin(self) -> None:
        """Starts all that the first frame does without, once it is on the screen."""
        self.recorder.start(self.feedback.tell)
        if self.past is not None:
            self.turns.locate()
        self.engine.load()
        self.run_worker(self.prepare, thread=True, exit_on_error=False, group="import")

    def prepare(self) -> None:
        """Imports, in a thread, what is needed soon."""
        from localspec.runtime.local_models import names

        import_module(BODY)
        self.others = names()

    async def on_unmount(self) -> None:
        self.recorder.end(self.state.tally.stats, "cancelled")
        self.engine.close()
        self.chats.store.close()
        await self.measuring.stop_bench()

    def on_resize(self, event: events.Resize) -> None:
        width = min(event.size.width, LEAST_WIDTH - 1) if self.app.is_inline else event.size.width
        self.speed.settle(width)
        self.sidebar.settle(width)

    # What widgets and controllers need of one that is made after them.

    def claims(self, event: events.Key) -> bool:
        """Whether a key pressed on the empty prompt is a command here instead."""
        return self.branches.claims(event)

    def reading(self) -> Reading:
        return self.state.reading()

    async def unload(self) -> None:
        await self.models.unload()

    async def leave_bench(self) -> None:
        await self.measuring.leave_bench()

    def watch__selecting(self) -> None:
        """Lays out again when a selection begins or ends, as its ends may be out of sight."""
        self.refresh(layout=True)

    # --- what the engine says

    async def receive(self, event: AnyEvent | None) -> None:
        """One event, to whom it concerns; None when the engine is gone."""
        if self.speculation.takes(event):
            return
        if event is not None:
            self.state.count(event)
        match event:
            case Loading():
                self.state.enter("loading", loading_words(event))
            case Ready():
                await self.welcome(event)
            case Steered():
                self.state.show_spec(event.spec)
            case Notice():
                await self.feedback.inform(event)
                self.turns.lose_drafter(event)
            case Prefill():
                self.turns.read(event)
            case Step():
                self.turns.write(event)
            case Done():
                await self.turns.finish(event)
            case Failure() if self.full_context.concerns(event):
                await self.full_context.meet(event)
            case Failure():
                await self.turns.fail(event)
            case None:
                await self.turns.lose_engine()

    async def welcome(self, ready: Ready) -> None:
        """A model is loaded; what waits is asked."""
        await self.settings.welcome(ready)
        self.engine.welcome(ready)
        self.speculation.welcome(ready)
        self.state.welcome(ready)
        self.recorder.meet(ready)
        self.state.enter("idle", "idle")
        self.speculation.restore(ready)
        await self.turns.ask_next()

    async def draw(self) -> bool:
        """Show what was written and how fast; whether some of it has to wait for a later frame."""
        comparison = self.speculation.comparison
        return await self.turns.draw() if comparison is None else self.speculation.draw(comparison)

    def engine_replaced(self) -> None:
        self.speculation.end_comparison()

    # --- messages, to whom they concern

    async def on_arrived(self, message: Arrived) -> None:
        await self.engine.drain(message.feed)

    async def on_noticed(self, message: Noticed) -> None:
        await self.feedback.inform(message.notice)

    def on_kept(self, message: Kept) -> None:
        self.chats.mark(message.chat_id)

    async def on_chosen(self, message: Chosen) -> None:
        await self.models.change(message.choice)

    async def on_prompt_sent(self, message: Prompt.Sent) -> None:
        await self.command_line.send(message)

    def on_prompt_refused(self, message: Prompt.Refused) -> None:
        self.command_line.refuse(message)

    @on(TextArea.Changed, "#prompt")
    def on_typed(self) -> None:
        self.branches.type_instead()

    def on_sidebar_left(self) -> None:
        self.prompt.focus()

    async def on_sidebar_chosen(self, message: Sidebar.Chosen) -> None:
        await self.chats.choose(message.chat_id, message.message_id)

    async def on_sidebar_delete_requested(self, message: Sidebar.DeleteRequested) -> None:
        await self.chats.delete(message.chat_id)

    async def on_find_bar_found(self, message: FindBar.Found) -> None:
        await self.chats.reveal_at(message.place)

    def on_find_bar_left(self) -> None:
        self.chats.leave_find()

    # --- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if isinstance(self.focused, {"page": OptionList, "leave": Input}.get(action, ())):
            return False  # its own pages, its own Ctrl+D
        return self.state.can_reload if action == "reload" else super().check_action(action, parameters)

    def action_stop(self) -> None:
        """Esc: close the list of commands, else leave where the cursor is beside the chat, else stop the answer, else
        leave an edit, a message, what lies over the chat, else take back the message that waits."""
        if self.prompt.completion.close():
            return
        if beside := next((panel for panel in (self.find, self.sidebar) if panel.has_focus_within), None):
            beside.leave()
        elif self.state.answering:
            self.turns.stop()
        elif self.branches.edited is not None:
            self.branches.end_edit()
        elif self.branches.cursor is not None:
            self.branches.leave_message()
        elif self.query(HELP_PANEL):
            self.app.action_hide_help_panel()
        elif self.speed.covers:
            self.action_speed()
        elif self.sidebar.covers:
            self.sidebar.hide()
        elif self.find.display:
            self.find.leave()
        elif self.state.queued is not None and not self.prompt.text:
            self.call_later(self.turns.take_back)

    def action_speed(self) -> None:
        self.speed.toggle(self.size.width)
        if self.size.width < LEAST_WIDTH:
            self.feedback.hint(f"The speed panel needs {LEAST_WIDTH} columns.")

    def action_tokens(self) -> None:
        self.view = "tokens" if self.view == "markdown" else "markdown"

    def action_rejects(self) -> None:
        self.view = "tokens" if self.view == "rejects" else "rejects"
        rejected = [proposal for step in self.state.rounds for proposal in step.rejected]
        if self.view == "rejects" and rejected and rejected[-1].p_target is None:
            self.feedback.hint("Token probabilities are recorded from the next answer on.")

    def watch_view(self, view: View) -> None:
        self.legend.follow(view)
        self.transcript.view = view

    def action_new(self) -> None:
        self.call_later(self.chats.begin)

    def action_reload(self) -> None:
        self.call_later(self.engine.load)

    def action_interrupt(self) -> None:
        """Ctrl+C with nothing over the chat: copy, else stop, else clear, else quit at the second time."""
        if selected := self.prompt.selected_text or self.get_selected_text():
            self.copies.take(selected)
            self.clear_selection()
            self.prompt.move_cursor(self.prompt.cursor_location)
        elif self.state.answering:
            self.turns.stop()
        elif self.prompt.text or self.prompt.pills.attachments:
            self.prompt.clear()  # an edit, which the text area's undo takes back
            self.prompt.pills.take()
        elif self.status.hint == (again := with_keys(self, QUIT_AGAIN)):
            self.call_later(self.app.action_quit)
        else:
            self.feedback.hint(again, QUIT_SECONDS)

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

    def action_edit(self) -> None:
        self.call_later(self.branches.edit, self.branches.at)

    @on(Prompt.Recalled)
    def edit_last(self) -> None:
        self.action_edit()

    def action_retry(self) -> None:
        self.call_later(self.branches.retry, self.branches.at)

    def action_point(self, direction: int) -> None:
        self.prompt.call_later(self.branches.move, direction)  # behind the letters that were typed before it

    def action_spec(self) -> None:
        self.speculation.toggle()

    def action_compare(self) -> None:
        self.call_later(self.speculation.compare, "")

    def action_chats(self) -> None:
        self.chats.toggle_list()

    def action_find(self) -> None:
        self.find.open()

    def action_models(self) -> None:
        self.models.pick()

    def action_keys(self) -> None:
        """Show or hide the list of keys."""
        if self.query(HELP_PANEL):
            self.app.action_hide_help_panel()
        else:
            self.app.action_show_help_panel()

    def action_help(self) -> None:
        from localspec.tui.screens.help import HelpScreen, active_keys

        self.app.push_screen(HelpScreen(active_keys(self)))

    # --- long content

    def action_thoughts(self) -> None:
        """Open all thoughts, or shut them if the last one is open."""
        thoughts = list(self.query(Thought))
        for thought, is_open in [(thought, not thoughts[-1].is_open) for thought in thoughts]:
            thought.is_open = is_open

    def action_editor(self) -> None:
        self.outside.edit()

    # --- commands

    def known(self) -> Known:
        """Names that are known without another look at the disk."""
        tuning = self.tuning
        return Known(
            presets=tuple(tuning.config.all_presets),
            themes=tuple(sorted(self.app.available_themes)),
            models=tuple(dict.fromkeys((*tuning.catalog.models, *self.others))),
            drafts=tuple(dict(tuning.entry.drafts)) if tuning.entry else (),
        )

    def run(self, command: Command, argument: str) -> object:
        return command.run(self, argument)

    def pick(self, command: Command) -> None:
        """Chosen by name: it runs, or waits in the prompt for its argument."""
        if command.needs_argument:
            self.prompt.clear()
            self.prompt.give(f"/{command.name} ")
            self.prompt.focus()
        else:
            self.call_later(self.run, command, "")

    def attach(self, argument: str) -> None:
        """/attach"""
        self.prompt.attach(argument.strip('"'), typed=self.feedback.command)

    def show_tokens(self, argument: str) -> None:
        """/tokens"""
        if argument == "rejected":
            self.action_rejects()
        elif argument:
            self.feedback.refuse("/tokens shows who wrote each token; /tokens rejected what was rejected, too.")
        else:
            self.action_tokens()

    # --- links in answers

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        self.outside.ask_about(event.href)
