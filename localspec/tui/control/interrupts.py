"""What Esc, Ctrl+C and Ctrl+D end or close, the nearest first."""

from __future__ import annotations

from localspec.tui.control.branches import Branches
from localspec.tui.control.chats import Chats
from localspec.tui.control.copies import Copies
from localspec.tui.control.parts import Parts
from localspec.tui.control.turns import Turns
from localspec.tui.control.views import Views

QUIT_SECONDS = 1.0
QUIT_AGAIN = "Press {interrupt} again to quit."


class Interrupts:
    """Decides the order; what ends or closes is another controller's, or a panel's."""

    def __init__(
        self, parts: Parts, turns: Turns, branches: Branches, chats: Chats, *, copies: Copies, views: Views
    ) -> None:
        self.screen, self.state, self.feedback = parts.screen, parts.state, parts.feedback
        self.prompt = parts.state.prompt
        self.turns, self.branches, self.copies, self.views = turns, branches, copies, views
        self.find, self.sidebar = chats.finding.bar, chats.sidebar

    def stop(self) -> None:
        """Esc: close the list of commands, else leave where the cursor is beside the chat, else stop the answer, else
        leave an edit, a turn that was taken back, a message, what lies over the chat, else take back the message that
        waits."""
        if self.prompt.completion.close():
            return
        if self.prompt.pills.has_focus:
            self.prompt.focus()
        elif beside := next((panel for panel in (self.find, self.sidebar) if panel.has_focus_within), None):
            beside.leave()
        elif self.state.answering:
            self.turns.stop()
        elif self.branches.edited is not None:
            self.branches.end_edit()
        elif self.branches.lent.is_untouched:
            self.branches.lent.end()
        elif self.branches.cursor is not None:
            self.branches.leave_message()
        elif self.views.has_keys:
            self.views.toggle_keys()
        elif self.state.speed.covers:
            self.views.toggle_speed()
        elif self.sidebar.covers:
            self.sidebar.hide()
        elif self.find.display:
            self.find.leave()
        elif self.state.queued is not None and not self.prompt.text:
            self.screen.call_later(self.turns.take_back)

    def interrupt(self) -> None:
        """Ctrl+C with nothing over the chat: copy, else stop, else clear, else quit at the second time."""
        if selected := self.prompt.selected_text or self.screen.get_selected_text():
            self.copies.take(selected)
            self.screen.clear_selection()
            self.prompt.move_cursor(self.prompt.cursor_location)
        elif self.state.answering:
            self.turns.stop()
        elif self.prompt.text or self.prompt.pills.attachments:
            self.prompt.clear()  # an edit, which the text area's undo takes back
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
