"""What an empty chat says. Gone with the first message."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from localspec.tui.keys.key_names import shown, with_keys

COLUMN = 10  # of the keys
KEYS = (
    ("{stop}", "stop the answer and keep what was written"),
    ("{up}", "your last message again"),
    ("{page.up} {page.down}", "scroll"),
    ("/", "commands: /help lists them, and all keys"),
)


class Welcome(Static):
    """What to ask, and the keys that the footer does not name, as the user has them. All of it fits in 60×16."""

    def __init__(self) -> None:
        super().__init__(markup=False)

    def on_mount(self) -> None:
        keys = [self.newline, *((with_keys(self, key), what) for key, what in KEYS)]
        lines = [
            Content.styled("Ask anything.", "bold $text-accent"),
            Content("It runs on this computer; nothing you write leaves it."),
            Content("Try: How does speculative decoding work?"),
            *(Content.assemble((f"{key:<{COLUMN}}", "bold"), (what, "$foreground-muted")) for key, what in keys),
        ]
        self.update(Content("\n").join(lines))

    @property
    def newline(self) -> tuple[str, str]:
        key, *others = shown(self, "newline").split()
        send = with_keys(self, "{send}")
        ways = ", ".join([*others, f"\\ {send}"])
        return key, f"new line (or {ways})" if send == "Enter" else f"new line; {send} sends"
