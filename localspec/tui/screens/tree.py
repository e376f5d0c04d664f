"""The branches of a chat over the chat: every message a line, the branch that is shown marked; Enter goes to one.

Only lines in sight are drawn, so a chat of thousands opens at once. Knows utterances, and changes nothing.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from localspec.core.sanitize import one_line
from localspec.history.text.lists import count
from localspec.tui.chat.conversation import Conversation, Utterance
from localspec.tui.chat.tree_lines import TreeLine, tree_lines
from localspec.tui.keys.key_names import with_keys
from localspec.tui.keys.opener import ClosedByOpener
from localspec.tui.screens.dismissal import DismissedOnce
from localspec.tui.screens.size_notice import TooSmall

KEYS = "{tree.show} goes there · {tree.next} next fork · {tree.leave} closes"
SHOWN, ELSEWHERE, FOLDED = "●", "○", "⋯"
DEEPEST = 8  # levels that are drawn; deeper ones say how deep
INDENT = "│ "
BEGINNING = 200  # characters of a message that may be in sight
TREE_KEYS: list[BindingType] = [
    Binding("escape", "dismiss", "Close", key_display="Esc", priority=True, id="tree.leave"),
    Binding("enter", "show", "Go to the message, or unfold", id="tree.show"),
    Binding("right_square_bracket", "fork(1)", "Next fork", id="tree.next"),
    Binding("left_square_bracket", "fork(-1)", "Previous fork", id="tree.prev"),
]


class BranchTree(ScrollView, can_focus=True):
    """Lines of a tree with a cursor on one of them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "end(0)", show=False),
        Binding("end", "end(-1)", show=False),
        *TREE_KEYS[1:],
    ]

    class Chosen(Message):
        """The message to go to."""

        def __init__(self, message_id: int) -> None:
            super().__init__()
            self.message_id = message_id

    def __init__(self, conversation: Conversation, at: int | None) -> None:
        super().__init__()
        self._conversation, self._tree = conversation, conversation.tree
        self._shown = {utterance.id for utterance in conversation.branch}
        at = at if at in self._tree.nodes else conversation.head if self._shown else self._tree.newest
        self._unfolded = {at or 0}
        self._lines: list[TreeLine] = []
        self._cursor = 0
        self._lay_out(at or 0)

    def _lay_out(self, at: int) -> None:
        self._lines = tree_lines(self._tree, self._shown, self._unfolded)
        self._cursor = next((n for n, line in enumerate(self._lines) if line.message_id == at), 0)
        self.virtual_size = Size(0, len(self._lines))

    def on_mount(self) -> None:
        self.call_after_refresh(self._move_to, self._cursor)

    def render_line(self, y: int) -> Strip:
        index, width = y + round(self.scroll_y), self.scrollable_content_region.width
        content = self._content(index, width) if index < len(self._lines) else Content()
        return Visual.to_strips(self, content, width, 1, self.visual_style, pad=True)[0]

    def _content(self, index: int, width: int) -> Content:
        line = self._lines[index]
        content = folded(line) if line.hidden else self._message(line, width)
        content = content.truncate(width, ellipsis=True, pad=True)
        return content.stylize("reverse") if index == self._cursor else content

    def _message(self, line: TreeLine, width: int) -> Content:
        utterance = self._tree.nodes[line.message_id]
        shown = line.message_id in self._shown
        begin = Content.assemble(
            (indent(line.depth), "$foreground-muted"),
            (f"{SHOWN if shown else ELSEWHERE} ", "$text-accent" if shown else "$foreground-muted"),
            (f"{one_line(utterance.author)}: ", "bold" if shown else "$foreground-muted"),
            (beginning(utterance), "" if shown else "$foreground-muted"),
        )
        remarks = Content.styled(self._remarks(utterance), "$foreground-muted")
        return begin.truncate(max(0, width - remarks.cell_length), ellipsis=True, pad=True) + remarks

    def _remarks(self, utterance: Utterance) -> str:
        number, total = self._conversation.version(utterance)
        below = len(self._tree.children(utterance.id))
        version = f" ‹{number}/{total}›" if total > 1 else ""
        return f" {branches(below)}{version}" if below > 1 else version

    # --- the cursor

    def _move_to(self, index: int) -> None:
        self._cursor = max(0, min(index, len(self._lines) - 1))
        self.scroll_to_region(Region(0, self._cursor, 1, 1), animate=False, force=True)
        self.refresh()

    def action_move(self, lines: int) -> None:
        self._move_to(self._cursor + lines)

    def action_page(self, direction: int) -> None:
        self._move_to(self._cursor + direction * max(1, self.size.height - 1))

    def action_end(self, index: int) -> None:
        self._move_to(index if index >= 0 else len(self._lines) - 1)

    def action_fork(self, direction: int) -> None:
        """The next line, up or down, whose message has other versions."""
        beyond = range(self._cursor + direction, len(self._lines) if direction > 0 else -1, direction)
        self._move_to(next((index for index in beyond if self._forks(index)), self._cursor))

    def _forks(self, index: int) -> bool:
        line = self._lines[index]
        return not line.hidden and len(self._tree.siblings(line.message_id)) > 1

    def action_show(self) -> None:
        line = self._lines[self._cursor]
        if not line.hidden:
            self.post_message(self.Chosen(line.message_id))
            return
        self._unfolded.add(line.message_id)
        self._lay_out(line.message_id)
        self._move_to(self._cursor)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        index = event.y + round(self.scroll_y)
        if index < len(self._lines):
            self._move_to(index)
            self.action_show()


class TreeScreen(DismissedOnce, ClosedByOpener, ModalScreen[int | None]):
    """The id of the message to go to; None: leave all as it is."""

    OPENER = "tree"
    BINDINGS: ClassVar[list[BindingType]] = TREE_KEYS[:1]

    def __init__(self, conversation: Conversation, at: int | None) -> None:
        super().__init__()
        self._conversation, self._at = conversation, at

    def compose(self) -> ComposeResult:
        messages, ends = self._conversation.elsewhere()
        size = f"{count(messages, 'message')} on {branches(ends)}"
        with Vertical(classes="dialog") as dialog:
            dialog.border_title, dialog.border_subtitle = Content(size), Content(with_keys(self, KEYS))
            yield BranchTree(self._conversation, self._at)
        yield TooSmall()

    def on_branch_tree_chosen(self, message: BranchTree.Chosen) -> None:
        self.dismiss(message.message_id)

    async def action_dismiss(self, result: int | None = None) -> None:
        self.dismiss(result)


def branches(number: int) -> str:
    return f"{number:,} branch{'es' * (number > 1)}"


def indent(depth: int) -> str:
    return INDENT * depth if depth <= DEEPEST else f"{INDENT * DEEPEST}+{depth - DEEPEST} "


def folded(line: TreeLine) -> Content:
    text = f"{indent(line.depth)}{FOLDED} {count(line.hidden, 'message')}"
    return Content.styled(text, "$foreground-muted")


def beginning(utterance: Utterance) -> str:
    """The first words of a message; of one without text, what is attached."""
    words = one_line(utterance.text[:BEGINNING])
    return words or ", ".join(one_line(one.path or "pasted text") for one in utterance.attachments) or "(no text)"
