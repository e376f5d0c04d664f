"""The prompt: Enter sends, several keys break the line, a slash opens the completion list.

Knows nothing about chats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from functools import partial
from typing import ClassVar

from textual import events, on
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from localspec.core.errors import UsageError
from localspec.history import Attachment
from localspec.tui.chat.attachments import (
    PASTE_CHARACTERS,
    doubtful,
    exists,
    file_named,
    from_file,
    from_paste,
    is_among,
    just_mentioned,
    left_out,
    mentioned,
    no_file,
    path_there,
    paths_mentioned,
    paths_of,
)
from localspec.tui.chat.daemon import in_daemon
from localspec.tui.control.commands import UserNames
from localspec.tui.control.typed_commands import CommandCompletion, parse
from localspec.tui.panels.completion import Completion
from localspec.tui.panels.pills import Pills, name, newest
from localspec.tui.terminal.bound_keys import runs_binding
from localspec.tui.terminal.written import unprintable

PLACEHOLDER = "Ask anything… (/ for commands, @ for files)"
COLLIDING = {"up", "pageup", "pagedown", "f6", "f7", "ctrl+c,super+c", "ctrl+z,super+z"}


class Prompt(TextArea, inherit_bindings=False):
    """A text area that grows from one line to ten."""

    ALLOW_MAXIMIZE = False  # the palette would offer it
    text_only = False  # neither files nor long pastes are attached: an answer is edited
    BINDINGS: ClassVar[list[BindingType]] = [
        *(b for b in TextArea.BINDINGS if not (isinstance(b, Binding) and b.key in COLLIDING)),
        Binding("enter", "send", "Send", key_display="Enter", priority=True, id="send"),
        Binding("ctrl+j,alt+enter,shift+enter", "newline", "New line", key_display="^J", priority=True, id="newline"),
        Binding("tab", "complete", "Complete", show=False, id="complete"),
        Binding(  # as in a shell
            "ctrl+underscore,ctrl+slash,super+z", "undo", "Undo what was typed", show=False, id="typing.undo"
        ),
        Binding("shift+tab", "stay", "Previous panel; does nothing while you write", show=False, id="stay"),
        Binding(
            "up",
            "cursor_up",
            "Up, and to what is attached; with nothing typed: edit your last message",
            show=False,
            id="up",
        ),
    ]

    class Sent(Message):
        """Enter was pressed. The text has left the prompt; a screen that cannot take it gives it back."""

        def __init__(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
            super().__init__()
            self.text, self.attachments = text, attachments

    class Recalled(Message):
        """Sent when Up is pressed in an empty prompt: the last message is to be edited."""

    class Refused(Message):
        """Sent when a file cannot be attached: why, in one sentence, and the command that asked for it, if one did."""

        def __init__(self, sentence: str, typed: str) -> None:
            super().__init__()
            self.sentence, self.typed = sentence, typed

    class Doubted(Message):
        """Sent when a message names files that do not exist: it is not sent before the user says so."""

        def __init__(self, sentences: tuple[str, ...]) -> None:
            super().__init__()
            self.sentences = sentences

    class Renewed(Message):
        """Sent when these files were sent in another version than the one that was shown."""

        def __init__(self, names: Sequence[str]) -> None:
            super().__init__()
            self.names = names

    def __init__(self, claims: Callable[[events.Key], bool], known: Callable[[], UserNames]) -> None:
        """claims: asked for each key on an empty prompt; True: it is not typed. known: the names a command may need."""
        super().__init__(compact=True, highlight_cursor_line=False, placeholder=PLACEHOLDER, id="prompt")
        self.claims = claims
        self.completion = Completion(known)  # the screen decides where it stands
        self.pills = Pills(self.write_on)  # what is attached to the next message; it stands above
        self.under_way = 0  # messages that were sent and have not arrived
        self.back: list[str] = []  # texts that were given back, until none is under way
        self._left_out: set[str] = set()  # the paths that those mention, and that were not sent with them
        self._mentioned: set[str] = set()  # the paths that are mentioned here
        self._dropped: dict[str, Attachment] = {}  # what was detached with its mention: undo brings back both

    def on_text_area_changed(self) -> None:
        self.follow()
        self.follow_mentions()

    def follow(self) -> None:
        """The completion list follows what stands here."""
        row, column = self.cursor_location
        self.completion.follow(self.text, "" if self.text_only else self.document.get_line(row)[:column])

    async def on_key(self, event: events.Key) -> None:
        """Runs before the text area's own."""
        if (not self.text and self.claims(event)) or (not event.is_printable and await runs_binding(self, event.key)):
            event.stop()
            event.prevent_default()
        elif typed := unprintable(event):
            event.stop()
            event.prevent_default()
            self.replace(typed, *self.selection, maintain_selection_offset=False)

    def write_on(self, letter: str) -> None:
        """The focus comes back from the attachments, with the letter that was typed there."""
        self.focus()
        self.insert(letter)

    def take(self) -> str:
        """The text, which leaves the prompt."""
        text, self.text = self.text.strip(), ""
        self.forget_mentions()
        return text

    def lay(self, text: str, *, can_be_undone: bool = False) -> None:
        """Puts a text in place of what is there, with the cursor after it; nothing is offered to complete it."""
        if can_be_undone:
            self.replace(text, self.document.start, self.document.end)
        else:
            self.text = text
        self.forget_mentions()
        self.move_cursor(self.document.end)
        row, column = self.cursor_location
        self.completion.pass_over(text, "" if self.text_only else self.document.get_line(row)[:column])

    def give(self, text: str, attachments: tuple[Attachment, ...] = (), *, was_sent: bool = False) -> None:
        """Put a text back, before what has been written since. Of lines that were sent in a burst, as a paste is where
        the terminal does not say that it is one, those that come back stay in their order. `was_sent`: a file that it
        mentions and does not have stays away."""
        self.pills.attachments = newest((*attachments, *self.pills.attachments))  # what was attached since is newer
        if was_sent:
            self._left_out |= left_out(text, attachments)
        self.back.append(text)
        self.put_back()

    def put_back(self) -> None:
        """Puts text that was given back into the prompt, once nothing else can be given back after it."""
        if self.back and not self.under_way:
            text = "\n".join(filter(None, (*self.back, self.text)))
            self.back.clear()
            self.lay(text)
            self.leave_out(self._left_out)
            self._left_out = set()

    # A priority binding runs ahead of letters that were typed before it and still wait in this widget's queue.
    # call_later puts the key back in line, so that a burst of typing arrives in the order it was typed.

    def action_send(self) -> None:
        self.call_later(self.send)

    def action_newline(self) -> None:
        self.call_later(self.break_line)

    def send(self) -> None:
        """The text, or the chosen completion instead, once nothing is missing in it."""
        self.follow()  # what was typed last may not have been noticed yet
        if (chosen := self.completion.chosen) is not None and not chosen.is_typed:
            self.put(chosen)
            if not chosen.runs:
                return
        if self.text.endswith("\\") and self.cursor_location == self.document.end:
            self.action_delete_left()
            self.break_line()
        elif names := [*mentioned(self.text)] if parse(self.text) is None and not self.text_only else []:
            self.attach(*names, sends=True)
        else:
            self.post_sent()

    def post_sent(self) -> None:
        if self.text.strip() or self.pills.attachments:
            self.under_way += 1
            self.post_message(self.Sent(self.take(), self.pills.take()))

    def break_line(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    def put(self, offer: CommandCompletion) -> None:
        if offer.replaces is None:
            self.replace(offer.text, self.document.start, self.document.end)
            self.move_cursor(self.document.end)
        else:
            row, column = self.cursor_location
            self.replace(offer.text, (row, column - offer.replaces), (row, column))

    def action_complete(self) -> None:
        """Completes what is typed, if it can be; only from an empty prompt the focus goes on."""
        self.follow()
        if (offer := self.completion.best) is not None:
            self.put(offer)
        else:
            self.action_stay()

    def action_stay(self) -> None:
        if not self.text:
            raise SkipAction

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and self.completion.move(-1):
            return
        if self.pills.attachments and not select and self.cursor_at_first_line:
            self.pills.focus()
        elif self.text or select:
            super().action_cursor_up(select)
        else:
            self.post_message(self.Recalled())

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self.completion.move(1):
            super().action_cursor_down(select)

    # --- attachments

    async def on_paste(self, event: events.Paste) -> None:
        if self.attaches(event.text):
            event.prevent_default()

    def action_paste(self) -> None:
        if not self.attaches(self.app.clipboard):
            super().action_paste()

    def attaches(self, pasted: str) -> bool:
        """A long paste is attached, so that it takes no time to show and does not bury what is typed."""
        if is_long := len(pasted) > PASTE_CHARACTERS and not self.text_only:
            self.pills.add(from_paste(pasted))
        return is_long

    def action_delete_left(self) -> None:
        if self.selection.is_empty and self.cursor_location == (0, 0):
            self.pills.take_away()
        super().action_delete_left()

    def follow_mentions(self) -> None:
        """A file is detached with its mention, and attached again with it."""
        before, self._mentioned = self._mentioned, paths_mentioned(self.text)
        for one in self.pills.attachments:
            if one.path in before - self._mentioned and not is_among(one.path, self._mentioned):
                self.pills.detach(one)
                self._dropped[one.path or ""] = one
        for path in self._mentioned & self._dropped.keys():
            self.pills.add(self._dropped.pop(path))
        self._forget_removed()

    def forget_mentions(self) -> None:
        """The text is another: what is attached belongs to it."""
        self._mentioned = paths_mentioned(self.text)
        self._forget_removed()
        self._dropped.clear()

    def _forget_removed(self) -> None:
        """What the text does not mention any more, under no name, may come again."""
        unnamed = {path for path in self.pills.removed - self._mentioned if not is_among(path, self._mentioned)}
        self.pills.removed -= unnamed

    def leave_out(self, paths: Set[str]) -> None:
        """Keeps these files away, though the text mentions them."""
        self.pills.removed |= (paths & self._mentioned) - {one.path for one in self.pills.attachments}

    @on(TextArea.Changed)
    def look_for_mention(self) -> None:
        """A blank after @name: if that is a file, it is attached now, and not only when the message is sent."""
        row, column = self.cursor_location
        if self.text_only:
            return
        if name := just_mentioned(self.document.get_line(row)[:column]):
            self.attach(name)

    def attach(self, *names: str, typed: str = "", sends: bool = False) -> None:
        """Read the files, then send the message if none was refused. Names are `typed` in a command or mentioned in a
        message; a mention of no file is only a word, or one that the user is asked about."""
        self.run_worker(self._read(names, typed, sends), group="files", exclusive=True)

    async def _read(self, names: Sequence[str], typed: str, sends: bool) -> None:
        shown = {one.path or "": one.sha256 for one in self.pills.attachments}
        try:
            for each in names:
                file = each if typed else await in_daemon(partial(file_named, each))
                removed = tuple(self.pills.removed) if not typed else ()
                if file is None or (removed and await in_daemon(partial(is_removed, file, removed))):
                    continue
                found = await in_daemon(partial(from_file, file))
                if typed or found.path in paths_mentioned(self.text):
                    self.pills.add(found)
        except UsageError as fault:
            self.post_message(self.Refused(str(fault), typed))
            return
        if not sends:
            return
        attached = self.pills.attachments
        if doubted := await in_daemon(partial(doubts, self.text, {one.path for one in attached})):
            self.post_message(self.Doubted(doubted))
            return
        self.post_sent()
        if changed := [name(one) for one in attached if one.path and shown.get(one.path, one.sha256) != one.sha256]:
            self.post_message(self.Renewed(changed))


def is_removed(name: str, removed: Collection[str]) -> bool:
    """Whether the user took away what this names. Waits for the disk."""
    return is_among(path_there(name), removed)


def doubts(text: str, attached: Set[str | None]) -> tuple[str, ...]:
    """A sentence for each mention that looks like a file, or is there, and is none, nor was one when it was attached.
    Waits for the disk."""
    named = dict.fromkeys(each for each in doubtful(text, exists) if attached.isdisjoint(paths_of(each)))
    return tuple(no_file(each) for each in named if file_named(each) is None)
