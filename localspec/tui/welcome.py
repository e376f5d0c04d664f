"""What an empty chat says. Gone with the first message."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

KEYS = (
    ("Enter", "send"),
    ("Ctrl+J", "new line (also Shift+Enter, Alt+Enter, or \\ then Enter)"),
    ("Esc", "stop the answer and keep what was written"),
    ("↑", "your last message again"),
    ("PgUp PgDn", "scroll"),
    ("Ctrl+Q", "quit"),
)


class Welcome(Static):
    """What to ask, and the keys."""

    def __init__(self) -> None:
        lines = [
            Content.styled("Ask anything.", "bold $text-accent"),
            Content("The model runs on this computer; nothing you write leaves it."),
            Content("Try: How does speculative decoding work?"),
            Content(""),
            *(Content.assemble((f"{key:<10}", "bold"), (what, "$foreground-muted")) for key, what in KEYS),
        ]
        super().__init__(Content("\n").join(lines), markup=False)
