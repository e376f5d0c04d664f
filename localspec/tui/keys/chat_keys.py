"""The keys of the chat screen: each with its action there and the id by which config.toml may give it another key."""

from __future__ import annotations

from textual.binding import Binding, BindingType

CHAT_KEYS: list[BindingType] = [
    Binding("escape", "stop", "Stop", key_display="Esc", priority=True, id="stop"),
    Binding("ctrl+n", "new", "New", key_display="^N", priority=True, id="new"),
    Binding("ctrl+r", "reload", "Reload", key_display="^R", priority=True, id="reload"),
    Binding("ctrl+r", "retry", "Retry", show=False, priority=True, id="retry"),
    Binding("alt+e", "edit", "Edit", show=False, priority=True, id="edit"),
    Binding("alt+z", "undo", "Take the last turn back", show=False, priority=True, id="undo"),
    Binding("alt+y", "redo", "Bring the turn back", show=False, priority=True, id="redo"),
    Binding("f7", "tree", "Branches", key_display="F7", show=False, priority=True, id="tree"),
    Binding("alt+up", "point(-1)", "Earlier message", show=False, priority=True, id="msg.prev"),
    Binding("alt+down", "point(1)", "Later message", show=False, priority=True, id="msg.next"),
    Binding("f2", "speed", "Speed", key_display="F2", priority=True, id="speed"),
    Binding("f3", "tokens", "Tokens", key_display="F3", priority=True, id="tokens"),
    Binding("shift+f3,f13,f15", "rejects", "Rejected", show=False, priority=True, id="rejects"),  # or so it is sent
    Binding("f5", "spec", "Speculation", key_display="F5", priority=True, id="spec"),
    Binding("f6", "compare", "Compare", key_display="F6", show=False, priority=True, id="compare"),
    Binding("ctrl+t", "thoughts", "Thoughts", show=False, priority=True, id="thoughts"),
    Binding("ctrl+d", "leave", "Quit", show=False, priority=True, id="leave"),
    Binding("f1", "help", "Help", key_display="F1", priority=True, id="help"),
    Binding("ctrl+g", "editor", "Editor", show=False, priority=True, id="editor"),
    Binding("end", "end", "To the end", show=False, priority=True, id="end"),
    Binding("ctrl+o", "models", "Model", show=False, priority=True, id="models"),
    Binding("pageup", "page(-1)", "Page up", show=False, priority=True, id="page.up"),
    Binding("pagedown", "page(1)", "Page down", show=False, priority=True, id="page.down"),
    Binding("ctrl+b", "chats", "Chats", key_display="^B", priority=True, id="chats"),
    Binding("ctrl+f", "find", "Find", key_display="^F", show=False, priority=True, id="find"),
]
