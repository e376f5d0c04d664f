"""Lines in the transcript that are no messages: a note, the welcome, what is beyond the window or the context."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from localspec.core.sanitize import clean, one_line
from localspec.tui.keys.key_names import shown, with_keys

SIGNS = {"warning": "! ", "error": "✗ "}  # colour alone would say nothing in monochrome


class Note(Static):
    """A line from the program itself, not from anyone in the conversation."""

    def __init__(self, text: str, *, level: str = "info") -> None:
        self.text = f"{SIGNS.get(level, '')}{clean(text)}"
        super().__init__(self.text, markup=False, classes=f"-{level}")


class OutOfContext(Note):
    """Separates the messages that are no longer in the model's context from those that are."""

    def __init__(self) -> None:
        super().__init__("Messages above are no longer in the context.")


class Elsewhere(Note):
    """Stands where the branch is empty and the chat is not: its messages are on other branches."""

    def __init__(self, messages: int, branches: int) -> None:
        are = "message is" if messages == 1 else "messages are"
        where = "another branch" if branches == 1 else "other branches"
        super().__init__(f"{messages:,} {are} on {where}: /redo, or {{tree}} shows the tree.")

    def on_mount(self) -> None:
        self.text = with_keys(self, self.text)
        self.update(self.text)


class More(Static):
    """How many messages are beyond an end of the window. Pressed, it brings the next ones."""

    class Pressed(Message):
        """`direction` is -1 for earlier ones."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    def __init__(self, count: int, direction: int) -> None:
        arrow, when = ("▲", "earlier") if direction < 0 else ("▼", "later")
        super().__init__(f"{arrow} {count:,} {when} message{'s' if count > 1 else ''}", markup=False)
        self.direction = direction

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Pressed(self.direction))


OFFER = " {models}: find and download models."
COLUMN = 10  # of the keys
KEYS = (
    ("{stop}", "stop the answer and keep what was written"),
    ("{up}", "edit your last message"),
    ("{page.up} {page.down}", "scroll"),
    ("{help}", "what you see, all keys and commands (or /help)"),
)


PRIVATE = "It runs on this computer; nothing you write leaves it."
ASKED = "What you write is sent to {server}, which answers."


class Welcome(Static):
    """Suggestions for a first message, and the keys that the footer does not name, as mapped. All of it fits in
    60×16."""

    def __init__(self, starter: str, server: str = "") -> None:
        """`starter`: a message to try; `server`: what answers, where that is not a model on this machine."""
        super().__init__(markup=False)
        self._starter = starter
        self._offer = "" if server else OFFER
        self._privacy = ASKED.format(server=one_line(server)[:60]) if server else PRIVATE

    def suggest(self, starter: str) -> None:
        """Suggests another message, for another model."""
        self._starter = starter
        self.show_lines()

    def on_mount(self) -> None:
        self.show_lines()

    def show_lines(self) -> None:
        keys = [self.newline, *((with_keys(self, key), what) for key, what in KEYS)]
        lines = [
            Content.assemble(("Ask anything.", "bold $text-accent"), with_keys(self, self._offer)),
            Content(self._privacy),
            Content(f"Try: {self._starter}"),
            *(Content.assemble((f"{key:<{COLUMN}}", "bold"), (what, "$foreground-muted")) for key, what in keys),
        ]
        self.update(Content("\n").join(lines))

    @property
    def newline(self) -> tuple[str, str]:
        key, *others = shown(self, "newline").split()
        send = with_keys(self, "{send}")
        ways = ", ".join([*others, f"\\ {send}"])
        return key, f"new line (or {ways})" if send == "Enter" else f"new line; {send} sends"
