"""Copies to the clipboard: the last answer, its last block of code, the whole branch. Knows no engine."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from localspec.core.errors import UsageError
from localspec.core.sanitize import clean, one_line
from localspec.tui.chat.conversation import Utterance
from localspec.tui.control.parts import ChatParts
from localspec.tui.terminal import clipboard

COPIED = "Copied."


class Copies:
    """Copies text to the clipboard. Writes no file in a chat that is not saved."""

    def __init__(self, parts: ChatParts) -> None:
        self.screen, self.feedback = parts.screen, parts.feedback
        self.conversation, self.recorder = parts.conversation, parts.recorder

    def copy(self, what: str) -> None:
        """`what` is nothing for the last answer, `code` for its last block of code, `all` for the whole branch."""
        answer = self.conversation.last("assistant")
        if what not in {"", "code", "all"}:
            self.feedback.refuse("Use /copy, /copy code or /copy all.")
        elif what == "all" and self.conversation.branch:
            self.take(
                "\n\n".join(f"{utterance.speaker}:\n{utterance.for_model}" for utterance in self.conversation.branch)
            )
        elif answer is None:
            self.feedback.hint("There is nothing to copy.")
        elif what == "code":
            self.copy_code(answer)
        else:
            self.take(answer.text)

    def copy_code(self, utterance: Utterance) -> None:
        from localspec.tui.markdown.parser import code_blocks  # imports Markdown's parser

        if blocks := code_blocks(utterance.text):
            self.take(blocks[-1], f"Copied the last of {len(blocks)} code blocks." if len(blocks) > 1 else COPIED)
        else:
            self.feedback.hint("There is no code block in it.")

    def take(self, text: str, says: str = COPIED) -> None:
        """Copies to the clipboard, cleaned: a control byte would act where it is pasted."""
        text = clean(text)
        self.screen.app.copy_to_clipboard(text)
        self.feedback.hint(says)
        self.screen.run_worker(partial(self._put, text, says), thread=True, exit_on_error=False, group="clipboard")

    def _put(self, text: str, says: str) -> None:
        """Runs in a thread: puts the text on the clipboard, and into a file where the terminal may not have taken
        it."""
        if not clipboard.put(text) and self.recorder.keeps:
            with suppress(OSError, UsageError):
                self.screen.call_later(self.feedback.hint, one_line(f"{says} {clipboard.keep(text)}"))
