"""The chat's one screen: where everything stands, what each key does, and who hears what the engine says.

Composes the controllers of `tui/control`; what a command or a key does is theirs. Everything that changes a turn runs
in this screen's message queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Input, OptionList, TextArea

from localspec.core.events import AnyEvent, Done, Failure, Loading, Notice, Prefill, Ready, Steered, Step, Text, Waiting
from localspec.history import OpenChat
from localspec.tui.chat.recorder import SAVE_SECONDS, ChatSaved, HistoryRecorder, Noticed
from localspec.tui.chat.saved_chat import conversation
from localspec.tui.control.branches import Branches
from localspec.tui.control.chat_model import ChatModel
from localspec.tui.control.chats import Chats
from localspec.tui.control.command_line import CommandLine
from localspec.tui.control.copies import Copies
from localspec.tui.control.downloads import Changed
from localspec.tui.control.drafters import Drafters
from localspec.tui.control.edits import Edits
from localspec.tui.control.engine_link import EngineLink
from localspec.tui.control.external_programs import ExternalPrograms
from localspec.tui.control.failures import Failures
from localspec.tui.control.feed import Arrived, ChatEngine
from localspec.tui.control.feedback import Feedback
from localspec.tui.control.full_context import FullContext
from localspec.tui.control.interrupts import Interrupts
from localspec.tui.control.letters import Letters
from localspec.tui.control.library import Library
from localspec.tui.control.measurements import Measuring
from localspec.tui.control.models import Chosen, Models
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.picker import Picker
from localspec.tui.control.preloading import read_ahead
from localspec.tui.control.recovery import Recovery
from localspec.tui.control.reports import Reports
from localspec.tui.control.selection import Selection
from localspec.tui.control.settings import Settings
from localspec.tui.control.speculation import Speculation
from localspec.tui.control.state import ChatState, StatusLines
from localspec.tui.control.tuning import Tuning
from localspec.tui.control.turns import Turns
from localspec.tui.control.undo import Undo
from localspec.tui.control.unsent import Returned
from localspec.tui.control.views import Views
from localspec.tui.keys.chat_keys import CHAT_KEYS
from localspec.tui.markdown.painter import Painted
from localspec.tui.panels.find import FindBar
from localspec.tui.panels.header import Header
from localspec.tui.panels.keys_line import KeysLine
from localspec.tui.panels.pills import Chips
from localspec.tui.panels.prompt import Prompt
from localspec.tui.panels.sidebar import Sidebar
from localspec.tui.panels.speed_panel import FOLDS, LEAST_WIDTH, SpeedPanel
from localspec.tui.panels.stats_line import StatsLine, loading_words
from localspec.tui.screens.size_notice import TooSmall
from localspec.tui.terminal.collector import Collector
from localspec.tui.transcript.legend import Legend
from localspec.tui.transcript.transcript import Transcript

if TYPE_CHECKING:
    from textual.widgets import Markdown

RANKS = {one.id: rank for rank, one in enumerate(CHAT_KEYS) if isinstance(one, Binding)}  # in lists of keys


class ChatScreen(Painted, Screen[None]):
    """Header, transcript between the chats that were kept and the speed panel, state line, prompt."""

    AUTO_FOCUS = "#prompt"  # else the first field there is, that of the chats, has the first keys
    BINDINGS: ClassVar[list[BindingType]] = CHAT_KEYS

    def __init__(
        self,
        make_engine: Callable[[], ChatEngine],
        system: str | None,
        *,
        recorder: HistoryRecorder,
        past: OpenChat | None,
        tuning: Tuning,
    ) -> None:
        super().__init__()
        self.recorder, self.tuning, self.past = recorder, tuning, past
        self.conversation = conversation(past, system, tuning)
        self.collector = Collector(self, lambda: self.state.busy)
        self.make_widgets()
        self.state = ChatState(
            self,
            StatusLines(self.header, self.status, self.speed, self.prompt),
            self.conversation,
            tuning,
            unload=lambda: self.models.unload(),  # noqa: PLW0108 - made later
        )
        self.state.title = past.chat.title if past else ""
        self.feedback = Feedback(self, self.state, self.transcript)
        self.engine = EngineLink(self, self.state, make_engine, self)
        self.make_controllers()

    def make_widgets(self) -> None:
        ui = self.tuning.config.ui
        self.header, self.status, self.legend = Header(), StatsLine(), Legend()
        self.prompt = Prompt(lambda key: self.letters.claims(key), lambda: self.command_line.known())  # noqa: PLW0108 - made later
        self.transcript = Transcript(
            busy=lambda: self.state.busy,
            let_go=self.collector.request,
            version=self.conversation.version,
            elsewhere=self.conversation.elsewhere,
            rounds=self.recorder.rounds,
            window=ui.window_messages,
        )
        self.transcript.server = self.tuning.server
        self.speed = SpeedPanel(lambda: self.state.reading())  # noqa: PLW0108 - made later
        self.speed.chosen = FOLDS[ui.speed_panel]

    def make_controllers(self) -> None:
        """Makes the controllers; those that the table of commands calls are annotated, for mypy."""
        parts = ChatParts(
            screen=self,
            state=self.state,
            feedback=self.feedback,
            engine=self.engine,
            conversation=self.conversation,
            transcript=self.transcript,
            recorder=self.recorder,
            tuning=self.tuning,
        )
        self.turns: Turns = Turns(
            parts,
            collect=self.collector.request,
            leave_bench=lambda: self.measuring.leave_bench(),  # noqa: PLW0108 - made later
            kept=lambda: self.chats.kept(),  # noqa: PLW0108 - made later
        )
        self.failures = Failures(parts, self.turns)
        self.copies: Copies = Copies(parts)
        self.reports: Reports = Reports(parts)
        self.settings: Settings = Settings(parts)
        self.programs = ExternalPrograms(parts, self.copies)
        self.selection = Selection(parts)
        self.edits: Edits = Edits(parts, self.selection, self.turns)
        self.branches: Branches = Branches(parts, self.selection, self.edits, self.turns)
        self.letters = Letters(parts, self.selection, self.branches, self.edits, copies=self.copies)
        self.undo: Undo = Undo(parts, self.turns, self.branches, self.edits)
        self.speculation: Speculation = Speculation(parts)
        self.chats: Chats = Chats(parts, self.turns, self.edits, opened=lambda: self.chat_model.ask())  # noqa: PLW0108 - made later
        self.sidebar, self.find = self.chats.sidebar, self.chats.finding.bar
        self.library = Library(parts, self.programs)
        self.models: Models = Models(parts, self.turns, self.speculation)
        self.picker: Picker = Picker(parts, self.models, self.library)
        self.chat_model = ChatModel(parts, self.models)
        self.full_context = FullContext(parts, self.turns, self.failures, self.chat_model, begin_chat=self.chats.begin)
        self.recovery = Recovery(parts, self.models, self.picker)
        self.drafters: Drafters = Drafters(parts, self.models, self.picker, self.speculation)
        self.measuring: Measuring = Measuring(parts, self.models)
        self.views: Views = Views(parts, self.legend)
        self.interrupts = Interrupts(parts, self.turns, self.edits, self.chats, copies=self.copies, views=self.views)
        self.command_line: CommandLine = CommandLine(
            parts, self.turns, self.edits, run=lambda command, argument: command.run(self, argument)
        )

    def compose(self) -> ComposeResult:
        column = Vertical(self.transcript, self.legend)
        yield from (self.header, Horizontal(self.sidebar, column, self.speed, id="middle"))
        yield from (self.status, self.find, self.prompt.pills, self.prompt.completion, self.prompt)
        yield from (KeysLine(self.interrupts.word, self.letters.keys), TooSmall())

    async def on_mount(self) -> None:
        await self.chats.show(self.past)
        self.chat_model.start()
        self.prompt.focus()
        self.views.show(self.tuning.config.ui.token_view)
        self.set_interval(SAVE_SECONDS, self.save)
        self.watch(self.status, "hint", self.refresh_bindings, init=False)  # a key may be asked for again
        self.call_after_refresh(self.begin)

    def begin(self) -> None:
        """Starts all that the first frame does without, once it is on the screen."""
        self.recorder.start(self.feedback.tell)
        if self.past is not None:
            self.turns.locate()
        self.chats.unsent.seek()
        self.engine.load()
        self.run_worker(partial(read_ahead, self.command_line), thread=True, exit_on_error=False, group="import")

    def save(self) -> None:
        """Called every few seconds: what would be lost if the program were killed."""
        self.recorder.save(self.state.tally.stats)
        self.chats.unsent.look()

    async def on_unmount(self) -> None:
        self.recorder.end(self.state.tally.stats, "cancelled")
        self.chats.unsent.close()
        self.engine.close()
        self.library.downloads.close()
        self.chats.store.close()
        await self.measuring.stop_bench()

    def on_resize(self, event: events.Resize) -> None:
        width = min(event.size.width, LEAST_WIDTH - 1) if self.app.is_inline else event.size.width
        self.speed.settle(width)
        self.sidebar.settle(width)

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
                self.speculation.follow(event.spec)
                self.state.show_spec(event.spec)
            case Notice():
                await self.feedback.remark(event)
                self.failures.lose_drafter(event)
            case Waiting() | Prefill():
                self.turns.read(event)
            case Step() | Text():
                self.turns.write(event)
            case Done():
                await self.turns.finish(event)
            case Failure() if self.full_context.concerns(event):
                await self.full_context.meet(event)
            case Failure():
                await self.failures.meet(event)
            case None:
                await self.failures.lose_engine()
                self.recovery.offer()

    async def welcome(self, ready: Ready) -> None:
        """A model is loaded; what waits is asked."""
        await self.settings.welcome(ready)
        self.engine.welcome(ready)
        self.speculation.welcome(ready)
        self.state.welcome(ready)
        self.recorder.meet(ready)
        await self.models.welcome()
        self.state.enter("idle", "idle")
        self.speculation.restore(ready)
        await self.chat_model.welcome()
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
        self.chats.lose_title(message.notice)
        await self.feedback.inform(message.notice, answers=message.answers)

    def on_returned(self, message: Returned) -> None:
        self.chats.unsent.put_back(message)

    def on_chat_saved(self, message: ChatSaved) -> None:
        self.chats.mark(message.chat_id)

    async def on_chosen(self, message: Chosen) -> None:
        await self.models.take(message)

    def on_changed(self, message: Changed) -> None:
        self.picker.follow(message.item)

    async def on_prompt_sent(self, message: Prompt.Sent) -> None:
        await self.command_line.send(message)

    def on_prompt_refused(self, message: Prompt.Refused) -> None:
        self.command_line.refuse(message)

    def on_prompt_renewed(self, message: Prompt.Renewed) -> None:
        self.command_line.tell_renewed(message)

    def on_prompt_doubted(self, message: Prompt.Doubted) -> None:
        self.command_line.doubt(message)

    def on_chips_opened(self, message: Chips.Opened) -> None:
        self.views.attached(message, self.chats.finding.words)

    @on(TextArea.Changed, "#prompt")
    def on_typed(self) -> None:
        self.edits.follow_typing()

    def on_sidebar_left(self) -> None:
        self.prompt.focus()

    async def on_sidebar_chosen(self, message: Sidebar.Chosen) -> None:
        await self.chats.choose(message.chat_id, message.message_id, message.words)

    async def on_sidebar_delete_requested(self, message: Sidebar.DeleteRequested) -> None:
        await self.chats.delete(*message.chat_ids)

    def on_find_bar_sought(self, message: FindBar.Sought) -> None:
        self.chats.finding.seek(message.words)

    async def on_find_bar_reached(self, message: FindBar.Reached) -> None:
        await self.chats.finding.show(message.hit)

    def on_find_bar_opened(self, message: FindBar.Opened) -> None:
        self.chats.finding.open_file(message.hit)

    def on_find_bar_left(self) -> None:
        self.chats.finding.leave()

    # --- keys

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """The chat's own keys first, in their order: lists of keys follow it, and a prompt has dozens."""
        found = super().active_bindings
        return dict(sorted(found.items(), key=lambda item: RANKS.get(item[1].binding.id, len(RANKS))))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if isinstance(self.focused, {"page": OptionList, "leave": Input}.get(action, ())):
            return False  # its own pages, its own Ctrl+D
        return self.state.can_reload if action == "reload" else super().check_action(action, parameters)

    def action_stop(self) -> None:
        self.interrupts.stop()

    def action_interrupt(self) -> None:
        self.interrupts.interrupt()

    async def action_leave(self) -> None:
        await self.interrupts.leave()

    def action_speed(self) -> None:
        self.views.toggle_speed()

    def action_tokens(self) -> None:
        self.views.toggle_tokens()

    def action_rejects(self) -> None:
        self.views.toggle_rejects()

    def action_thoughts(self) -> None:
        self.views.toggle_thoughts()

    def action_help(self) -> None:
        self.views.help()

    def action_new(self) -> None:
        self.call_later(self.chats.begin)

    def action_reload(self) -> None:
        self.call_later(self.engine.load)

    def action_page(self, direction: int) -> None:
        self.transcript.page(direction)

    def action_end(self) -> None:
        """The end of a line while one is being written, else the end of the chat, which is then followed again."""
        if self.prompt.text or not self.prompt.has_focus:
            raise SkipAction
        self.transcript.anchor()

    @on(Prompt.Recalled)
    def action_edit(self) -> None:
        self.call_later(self.edits.edit, self.selection.at)

    def action_undo(self) -> None:
        self.call_later(self.undo.take_back)

    def action_redo(self) -> None:
        self.call_later(self.undo.bring_back)

    def action_tree(self) -> None:
        self.branches.show_tree()

    def action_retry(self) -> None:
        self.call_later(self.branches.retry, self.selection.at)

    def action_go_on(self) -> None:
        self.call_later(self.turns.go_on)

    def action_point(self, direction: int) -> None:
        self.prompt.call_later(self.letters.move, direction)  # after the letters that were typed before it

    def action_spec(self) -> None:
        self.drafters.switch()

    def action_compare(self) -> None:
        self.call_later(self.speculation.compare, "")

    def action_chats(self) -> None:
        self.chats.toggle_list()

    def action_find(self) -> None:
        self.find.open()

    def action_models(self) -> None:
        self.picker.pick()

    def action_editor(self) -> None:
        self.programs.edit()

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        self.programs.ask_about(event.href)
