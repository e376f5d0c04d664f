"""Programs outside of the chat: the browser for a link in an answer, the editor for a long message."""

from __future__ import annotations

from functools import partial

from textual.app import SuspendNotSupported

from localspec.core.errors import LocalspecError
from localspec.tui.control.copies import Copies
from localspec.tui.control.parts import ChatParts
from localspec.tui.screens.link import NO_BROWSER, NOT_WEB, LinkAction, LinkScreen, browse, host
from localspec.tui.terminal.editor import chosen_editor, edited


class ExternalPrograms:
    """A link is opened only when the user says so."""

    def __init__(self, parts: ChatParts, copies: Copies) -> None:
        self.screen, self.state, self.feedback, self.copies = parts.screen, parts.state, parts.feedback, copies

    # --- links

    def ask_about(self, address: str) -> None:
        if host(address):
            self.screen.app.push_screen(LinkScreen(address), partial(self.follow, address))
        else:
            self.feedback.hint(NOT_WEB)

    def follow(self, address: str, action: LinkAction | None) -> None:
        if action == "copy":
            self.copies.take(address)
        elif action == "open":
            browse_to = partial(self.hand_to_browser, address)
            self.screen.run_worker(browse_to, thread=True, exit_on_error=False, group="links")

    def hand_to_browser(self, address: str) -> None:
        """Runs in a thread."""
        if not browse(address):
            self.screen.call_later(self.copies.take, address, NO_BROWSER)

    # --- the editor

    def edit(self) -> None:
        """The terminal is the editor's meanwhile, so nothing of an answer could be shown or saved."""
        if self.state.answering:
            self.feedback.hint("The editor opens when the answer has ended.")
            return
        prompt = self.state.prompt
        try:
            command = chosen_editor()
            with self.screen.app.suspend():
                edit = edited(prompt.text, command)
        except SuspendNotSupported:
            self.feedback.hint("Cannot open an editor in this terminal.")
        except LocalspecError as fault:
            self.feedback.hint(str(fault))
        else:
            prompt.clear()
            prompt.give(edit.text)
            self.feedback.hint(edit.trouble)
