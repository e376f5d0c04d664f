"""The keys of the chat screen: each with its action there and the id by which config.toml may give it another key.

Lists of keys show them in this order, the most useful first.
"""

from __future__ import annotations

from textual.binding import Binding, BindingType


def key(keys: str, action: str, does: str, *, name: str, word: str = "") -> Binding:
    """`does` stands in the lists of keys, and `word`, if there is one, in the footer; `name` is the id."""
    return Binding(keys, action, word or does, show=bool(word), priority=True, id=name, tooltip=does if word else "")


SPEC = "Speculation on, auto or off, also while an answer is written"
CHAT_KEYS: list[BindingType] = [
    key("f1", "help", "What you see, all keys and commands", name="help", word="Help"),
    key("f2", "speed", "An answer's main figures, all, or none", name="speed", word="Speed"),
    key("f3", "tokens", "Colour each token by who wrote it", name="tokens", word="Tokens"),
    key("shift+f3,f13,f15", "rejects", "The same with wrong guesses", name="rejects"),  # or so it is sent
    key("f5", "spec", SPEC, name="spec", word="Speculation"),
    key("f6", "compare", "Answer the last question plain and drafted, side by side", name="compare"),
    key("f7", "tree", "The branches of this chat", name="tree"),
    key("escape", "stop", "Stop, and keep what was written", name="stop", word="Stop"),
    key("ctrl+n", "new", "Begin a new chat", name="new", word="New"),
    key("ctrl+r", "reload", "Load the model again", name="reload", word="Reload"),
    key("ctrl+r", "retry", "Regenerate the last answer, keeping the old one", name="retry"),
    key("alt+c", "go_on", "Continue an answer that was stopped or cut", name="continue"),
    key("alt+e", "edit", "Write another version of your last message", name="edit"),
    key("alt+z", "undo", "Take the last turn back", name="undo"),
    key("alt+y", "redo", "Bring the turn back", name="redo"),
    key("alt+up", "point(-1)", "To an earlier message", name="msg.prev"),
    key("alt+down", "point(1)", "To a later message", name="msg.next"),
    key("ctrl+t", "thoughts", "Unfold the model's thoughts, or fold them", name="thoughts"),
    key("ctrl+d", "leave", "Quit, with an empty prompt", name="leave"),
    key("ctrl+g", "editor", "Write your message in your editor", name="editor"),
    key("end", "end", "To the end", name="end"),
    key("ctrl+o", "models", "Find, download and load models and drafters", name="models"),
    key("pageup", "page(-1)", "Page up", name="page.up"),
    key("pagedown", "page(1)", "Page down", name="page.down"),
    key("ctrl+b", "chats", "Your chats", name="chats", word="Chats"),
    key("ctrl+f", "find", "Find words in this chat", name="find"),
]
