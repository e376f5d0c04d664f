"""How the chat is shown: its text or who wrote each token, thoughts, the speed panel, keys and help."""

from __future__ import annotations

from localspec.tui.control.parts import ChatParts
from localspec.tui.panels.pills import Chips
from localspec.tui.panels.speed_panel import LEAST_WIDTH
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.legend import Legend
from localspec.tui.transcript.thought import Thought
from localspec.tui.transcript.token_view import View

UNKNOWN = "The server does not say who wrote which token."
HELP_PANEL = "HelpPanel"  # by name: its module imports all of Markdown


class Views:
    """Changes what is shown, and no message. The transcript has the view; the legend explains it."""

    def __init__(self, parts: ChatParts, legend: Legend) -> None:
        self.screen, self.state, self.feedback = parts.screen, parts.state, parts.feedback
        self.transcript, self.legend = parts.transcript, legend

    # --- tokens

    def show(self, view: View) -> None:
        if view != self.transcript.view:
            self.legend.follow(view)
            self.transcript.view = view
            self.screen.refresh_bindings()

    @property
    def has_tokens(self) -> bool:
        """Whether there is an answer whose tokens could be shown, or they are the view that can be left."""
        answers = (each for each in self.transcript.children if isinstance(each, Answer))
        is_known = any(each.has_tokens or not self.state.tuning.server for each in answers)
        return self.transcript.view != "markdown" or is_known

    def toggle_tokens(self) -> None:
        if self.state.tuning.server and not self.state.rounds and self.transcript.view == "markdown":
            self.feedback.hint(UNKNOWN)
            return
        self.show("tokens" if self.transcript.view == "markdown" else "markdown")

    def toggle_rejects(self) -> None:
        self.show("tokens" if self.transcript.view == "rejects" else "rejects")
        rejected = [proposal for step in self.state.rounds for proposal in step.rejected]
        if self.transcript.view == "rejects" and rejected and rejected[-1].p_target is None:
            self.feedback.hint("Token probabilities are recorded from the next answer on.")

    def tokens(self, argument: str) -> None:
        """/tokens"""
        if argument == "rejected":
            self.toggle_rejects()
        elif argument:
            self.feedback.refuse("Use /tokens, or /tokens rejected for the rejected ones, too.")
        else:
            self.toggle_tokens()

    # --- what else there is to see

    def toggle_thoughts(self) -> None:
        """Open all thoughts, or shut them if the last one is open."""
        thoughts = list(self.screen.query(Thought))
        for thought, is_open in [(thought, not thoughts[-1].is_open) for thought in thoughts]:
            thought.is_open = is_open

    def toggle_speed(self) -> None:
        width = self.screen.size.width
        self.state.speed.cycle(width)
        self.screen.refresh_bindings()
        if width < LEAST_WIDTH:
            self.feedback.hint(f"The speed panel needs {LEAST_WIDTH} columns.")

    def hide_speed(self) -> None:
        self.state.speed.hide(self.screen.size.width)
        self.screen.refresh_bindings()

    @property
    def has_keys(self) -> bool:
        """Whether the list of keys is shown."""
        return bool(self.screen.query(HELP_PANEL))

    def toggle_keys(self) -> None:
        if self.has_keys:
            self.screen.app.action_hide_help_panel()
        else:
            self.screen.app.action_show_help_panel()

    def help(self) -> None:
        from localspec.tui.screens.help import HelpScreen, active_keys

        self.screen.app.push_screen(HelpScreen(active_keys(self.screen), is_chats=True))

    def attached(self, message: Chips.Opened, words: str) -> None:
        """An attachment, at the first of these words that are looked for, if any are."""
        from localspec.tui.screens.attachment import AttachedScreen

        self.screen.app.push_screen(AttachedScreen(message.attachments, message.number, words))
