"""What Esc, Ctrl+C and Ctrl+D end or close, the nearest first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from localspec.tui.control.chats import Chats
from localspec.tui.control.copies import Copies
from localspec.tui.control.edits import Edits
from localspec.tui.control.parts import ChatParts
from localspec.tui.control.turns import Turns
from localspec.tui.control.views import Views
from localspec.tui.panels.speed_panel import LEAST_WIDTH

QUIT_SECONDS = 1.0
BACK = "Back"
QUIT_AGAIN = "Press {interrupt} again to quit."


class Interrupts:
    """Decides the order; what ends or closes is another controller's, or a panel's."""

    def __init__(
        self, parts: ChatParts, turns: Turns, edits: Edits, chats: Chats, *, copies: Copies, views: Views
    ) -> None:
        self.screen, self.state, self.feedback = parts.screen, parts.state, parts.feedback
        self.prompt = parts.state.prompt
        self.turns, self.edits, self.selection = turns, edits, edits.selection
        self.copies, self.views = copies, views
        self.find, self.sidebar = chats.finding.bar, chats.sidebar

    def stop(self) -> None:
        """Esc: close the list of commands, or do what is nearest."""
        if not self.prompt.completion.close() and (step := self.nearest()):
            step()

    def nearest(self) -> Callable[[], object] | None:
        """Returns what Esc does: leave what is attached, or where the cursor is beside the chat, else stop the answer,
        else leave an edit, a turn that was taken back, a message, what lies over the chat, else take back the message
        that waits; None if there is nothing."""
        if self.prompt.pills.has_focus:
            return self.prompt.focus
        if beside := next((panel for panel in (self.find, self.sidebar) if panel.has_focus_within), None):
            return beside.leave
        if self.state.answering:
            return self.turns.stop
        if self.edits.edited is not None:
            return self.edits.cancel
        if self.edits.message_edit.is_untouched:
            return self.edits.message_edit.end
        if self.selection.cursor is not None:
            return self.selection.leave
        if self.views.has_keys:
            return self.views.toggle_keys
        if self.state.speed.covers:
            return self.views.hide_speed
        if self.sidebar.covers:
            return self.sidebar.hide
        if self.find.display:
            return self.find.leave
        if self.state.queued is not None and not self.prompt.text:
            return partial(self.screen.call_later, self.turns.take_back)
        return None

    def word(self, action: str, usual: str) -> str | None:
        """What a key of the last line does now; "" for nothing, None for nothing on a screen of this width."""
        match action:
            case "speed":
                return usual if self.screen.size.width >= LEAST_WIDTH else None
            case "tokens":
                return usual if self.views.has_tokens else ""
            case "spec":
                return usual if self.state.can_draft else ""
            case "stop" if not self.state.answering:
                return BACK if self.nearest() else ""
        return usual

    def interrupt(self) -> None:
        """Ctrl+C with nothing over the chat: copy, else stop, else clear, else quit at the second time."""
        if selected := self.prompt.selected_text or self.screen.get_selected_text():
            self.copies.take(selected)
            self.screen.clear_selection()
            self.prompt.move_cursor(self.prompt.cursor_location)
        elif self.state.answering:
            self.turns.stop()
        elif self.prompt.text or self.prompt.pills.attachments:
            self.prompt.clear()  # an edit, which the text area's undo takes back, with the files that it mentions
            self.prompt.follow_mentions()
            self.prompt.pills.take()
        elif self.state.status.hint == (again := self.feedback.with_keys(QUIT_AGAIN)):
            self.screen.call_later(self.screen.app.action_quit)
        else:
            self.feedback.hint(again, QUIT_SECONDS)

    async def leave(self) -> None:
        """Ctrl+D: quits on an empty prompt, deletes to the right otherwise."""
        if self.prompt.text:
            self.prompt.action_delete_right()
        else:
            await self.screen.app.action_quit()
