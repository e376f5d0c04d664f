"""What an empty chat says. Gone with the first message."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from localspec.config.tables import SendKey

NEWLINE = {
    "enter": ("Ctrl+J", "new line (or Shift+Enter, Alt+Enter, \\ Enter)"),
    "ctrl+j": ("Enter", "new line; Ctrl+J sends"),
}
KEYS = (
    ("Esc", "stop the answer and keep what was written"),
    ("↑", "your last message again"),
    ("PgUp PgDn", "scroll"),
    ("/", "commands: /help lists them, and all keys"),
)


class Welcome(Static):
    """What to ask, and the keys that the footer does not name. All of it fits in 60×16."""

    def __init__(self, send_key: SendKey = "enter") -> None:
        keys = (NEWLINE[send_key], *KEYS)
        lines = [
            Content.styled("Ask anything.", "bold $text-accent"),
            Content("It runs on this computer; nothing you write leaves it."),
            Content("Try: How does speculative decoding work?"),
            *(Content.assemble((f"{key:<10}", "bold"), (what, "$foreground-muted")) for key, what in keys),
        ]
        super().__init__(Content("\n").join(lines), markup=False)
