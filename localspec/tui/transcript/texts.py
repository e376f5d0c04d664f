"""The texts of a message as its widgets have them."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget
from textual.widgets import Static

from localspec.core.sanitize import clean
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.question import Question
from localspec.tui.transcript.thought import Thought


def reads(widget: Widget) -> bool:
    """Whether the widget has text of the conversation: of a question, an answer's Markdown, or an open thought."""
    if not isinstance(widget, Static) or widget.children:
        return False
    if isinstance(widget.parent, Question):
        return widget.has_class("body")
    for above in widget.ancestors:
        if isinstance(above, Thought):
            return above.is_open and widget.parent is not above
        if isinstance(above, Answer):
            return widget.parent is not above
    return False


def texts(message: Question | Answer) -> Iterator[tuple[Widget, Thought | None, str]]:
    """Each text in order with its widget; of a thought that is shut the thought as well."""
    for widget in message.walk_children(with_self=False):
        if isinstance(widget, Thought) and not widget.is_open:
            yield widget, widget, clean(widget.passage.text)
        elif isinstance(widget, Static) and reads(widget):
            yield widget, None, str(widget.visual)
