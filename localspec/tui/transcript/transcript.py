"""The branch of the chat that is shown, as widgets: a window of it, so that a long chat costs no more than a short one.

Messages that leave the window are removed, not hidden, and a note goes with the message before it. Knows utterances;
no engine and no history.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import ClassVar

from textual.reactive import reactive
from textual.widget import Widget

from localspec.core.events import Step
from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.starters import OF_GUIDE
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.markers import Elsewhere, More, Note, OutOfContext, Welcome
from localspec.tui.transcript.question import Question
from localspec.tui.transcript.scroll import StillScroll
from localspec.tui.transcript.token_view import View

SHOWN = 20  # of a chat that is opened: a screen or two
FIRST = 4  # of those, to be read while the others come
MORE = 10
MOST = 60


class Transcript(StillScroll):
    """`version` says which of how many an utterance is; `elsewhere` how many messages there are on how many branches;
    `rounds` finds those of an answer from before, in a thread.

    While `busy` the end of the branch stays in the window: an answer is being written there.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"found--hit", "found--chosen"}
    view: reactive[View] = reactive("markdown", init=False)
    starter = OF_GUIDE  # a first message to try
    server = ""  # that answers; "" for a model on this machine

    def __init__(
        self,
        *,
        busy: Callable[[], bool],
        let_go: Callable[[], object],
        version: Callable[[Utterance], tuple[int, int]],
        elsewhere: Callable[[], tuple[int, int]],
        rounds: Callable[[int], Sequence[Step]],
        window: int = SHOWN,
    ) -> None:
        super().__init__(id="transcript", can_focus=False)
        self._window, self._most = window, window * MOST // SHOWN
        self._busy, self._collect_garbage, self._version, self._rounds = busy, let_go, version, rounds
        self._elsewhere = elsewhere
        self._changing = Lock()
        self._branch: list[Utterance] = []
        self._start = self._end = 0  # of the window in the branch
        self._gone = 0  # messages that left the window since the last collection
        self._shown: dict[int, Question | Answer] = {}  # by utterance
        self._pointed: int | None = None
        self._left_out: tuple[int, ...] = ()  # ids of messages that are no longer in the context

    # --- what is shown

    def suggest(self, starter: str) -> None:
        """An empty chat suggests this message from now on."""
        self.starter = starter
        for welcome in self.query_children(Welcome):
            welcome.suggest(starter)

    async def begin(self, title: str, branch: Sequence[Utterance]) -> None:
        """Shows another chat: its last messages, below a line that says which chat it is; the very last ones first."""
        async with self._changing:
            await self.remove_children()
            self._branch, self._start, self._end, self._pointed = [], 0, 0, None
            self._left_out = ()
            self._shown.clear()
            if title:
                await self.mount(Note(title, level="title"))
        await self.show(branch, window=FIRST)
        self.call_after_refresh(self.fill)

    async def fill(self) -> None:
        """Mount the messages that fit into the window above."""
        await self._back_to(self._end - self._window)

    async def show(
        self, branch: Sequence[Utterance], *, near: Utterance | None = None, window: int | None = None
    ) -> None:
        """This branch, to its end or some way past a message. What it shares with the one before stays as it is."""
        async with self._changing:
            shown, window = list(branch), window or self._window
            index = shown.index(near) if near in shown else None
            end = len(shown) if index is None else min(len(shown), index + MORE)
            same = next(
                (n for n, pair in enumerate(zip(self._branch, shown, strict=False)) if pair[0] is not pair[1]), -1
            )
            same = same if same >= 0 else min(len(shown), len(self._branch))
            left = same - self._start  # of the window
            adjoins = self._start <= same <= self._end and left >= min(MORE, same) and end - same <= window
            if adjoins and (index is None or index >= self._start):
                await self._cut(same)
            else:
                await self._cut(self._start, everything=True)
                self._start = self._end = max(0, end - window)
            self._branch = shown
            await self.query_children("Welcome, Elsewhere").remove()
            await self._extend(end)
            if not shown:
                messages, branches = self._elsewhere()
                await self.mount(Elsewhere(messages, branches) if messages else Welcome(self.starter, self.server))

    async def reach(self, utterance: Utterance) -> Question | Answer | None:
        """Its widget, when the window has been moved so far that it is mounted, with what follows it: the last one of a
        window could not be scrolled to the top. None if the branch has it not."""
        index = self._branch.index(utterance) if utterance in self._branch else None
        if index is None:
            return None
        while self._start > index and (self._busy() or self._start - index <= MORE):
            await self.earlier()
        while self._start <= index < self._end + MORE and self._end < min(len(self._branch), index + MORE):
            await self.later()
        if utterance.id not in self._shown:
            await self.show(self._branch, near=utterance)
        return self._shown.get(utterance.id)

    async def point(self, utterance: Utterance | None) -> None:
        """Mark this message alone, and bring it into sight."""
        if (before := self._shown.get(self._pointed or 0)) is not None:
            before.speaker.point(False)
        self._pointed = utterance.id if utterance else None
        if utterance is not None and (widget := await self.reach(utterance)) is not None:
            widget.speaker.point(True)
            self.call_after_refresh(self.scroll_to_widget, widget, animate=False)

    async def grey(self, left_out: Sequence[Utterance]) -> None:
        """Greys the messages that are no longer in the model's context, with a line below the last of them."""
        self._left_out = tuple(utterance.id for utterance in left_out)
        for id, widget in self._shown.items():
            widget.set_class(id in self._left_out, "-left-out")
        await self.query_children(OutOfContext).remove()
        await self._draw_line()

    async def _draw_line(self) -> None:
        last = self._shown.get(self._left_out[-1]) if self._left_out else None
        if last is not None and not self.query_children(OutOfContext):
            await self.mount(OutOfContext(), after=last)

    def widget(self, utterance: Utterance) -> Question | Answer:
        """The message's widget, made if it is not shown yet."""
        if utterance.id not in self._shown:
            self._shown[utterance.id] = self._made(utterance)
        return self._shown[utterance.id]

    def question(self, utterance: Utterance) -> Question:
        widget = self.widget(utterance)
        assert isinstance(widget, Question)
        return widget

    def answer(self, utterance: Utterance) -> Answer:
        widget = self.widget(utterance)
        assert isinstance(widget, Answer)
        return widget

    def page(self, direction: int) -> None:
        """Scroll by what is in sight. Where nothing scrolls, the messages beyond that end come."""
        if self.scroll_y <= 0 if direction < 0 else self.scroll_y >= self.max_scroll_y:
            self.post_message(More.Pressed(direction))
        scroll = self.scroll_page_up if direction < 0 else self.scroll_page_down
        scroll(animate=False)

    def watch_view(self, view: View) -> None:
        for answer in self.query(Answer):
            answer.view = view

    # --- the window

    async def on_more_pressed(self, message: More.Pressed) -> None:
        await (self.earlier() if message.direction < 0 else self.later())

    def moved(self, old_y: float, new_y: float) -> None:
        if not self.follows and (new_y <= 0 if new_y < old_y else new_y >= self.max_scroll_y):
            self.post_message(More.Pressed(-1 if new_y < old_y else 1))

    def may_follow(self) -> bool:
        """The end of the window is not to be followed as if it were the chat's."""
        return self._end == len(self._branch)

    def landmarks(self) -> Collection[Widget]:
        return self._shown.values()

    async def earlier(self) -> None:
        await self._back_to(self._start - MORE)

    async def _back_to(self, index: int) -> None:
        async with self._changing:
            added = self._branch[max(0, index) : self._start]
            if added:
                await self.mount(*map(self.widget, added), before=self._shown[self._branch[self._start].id])
                self._start -= len(added)
                self._recall(added)
                await self._draw_line()
                if not self._busy():
                    await self._cut(self._start + self._most)
                await self._count()

    async def later(self) -> None:
        async with self._changing:
            if self._end < len(self._branch):
                await self._extend(min(len(self._branch), self._end + MORE))

    async def _extend(self, end: int) -> None:
        """Mount what follows the window, up to this index of the branch."""
        added = self._branch[self._end : end]
        line = next((child for child in self.query_children(More) if child.direction > 0), None)
        if added:
            await self.mount(*map(self.widget, added), before=line)
            self._end = end
            self._recall(added)
        if line is not None or self.follows:
            await self._drop(self._end - self._most)
        await self._count()

    async def _cut(self, index: int, *, everything: bool = False) -> None:
        """Removes the window's messages from this index of the branch on."""
        gone = [self._shown.pop(utterance.id) for utterance in self._branch[index : self._end]]
        self._let_go(len(gone))
        if everything:
            await self.remove_children("Question, Answer, More, Note.-info, Note.-warning, Note.-error")
        elif gone:
            await self.remove_children(self.children[self.children.index(gone[0]) :])
        self._end = min(self._end, index)

    async def _drop(self, index: int) -> None:
        """Removes the window's messages before this index of the branch."""
        gone = [self._shown.pop(utterance.id) for utterance in self._branch[self._start : max(0, index)]]
        if gone:
            self._start = index
            first, last = gone[0], self._shown[self._branch[index].id]
            await self.remove_children(self.children[self.children.index(first) : self.children.index(last)])
            self._let_go(len(gone))

    def _let_go(self, count: int) -> None:
        """Widgets refer to each other in circles: without a collection now and then, the one after the next answer
        would find all that the user has paged through, and hold the screen for a second."""
        self._gone += count
        if self._gone >= self._most:
            self._gone = 0
            self._collect_garbage()

    async def _count(self) -> None:
        """Say what is beyond either end."""
        await self.query_children(More).remove()
        if self._start and self._start < self._end:
            await self.mount(More(self._start, -1), before=self._shown[self._branch[self._start].id])
        if self._end < len(self._branch):
            await self.mount(More(len(self._branch) - self._end, 1), after=self._shown[self._branch[self._end - 1].id])

    def _made(self, utterance: Utterance) -> Question | Answer:
        version = self._version(utterance)
        if utterance.role == "user":
            made: Question | Answer = Question(
                utterance.text, attachments=utterance.attachments, version=version, at=utterance.at
            )
        else:
            rounds = None if utterance.is_kept else utterance.rounds
            made = Answer(utterance.author, utterance.text, rounds=rounds, version=version, by_user=utterance.by_user)
            made.view = self.view
            if utterance.line:
                made.close(utterance.line, utterance.how)
        made.speaker.point(utterance.id == self._pointed)
        made.set_class(utterance.id in self._left_out, "-left-out")
        return made

    # --- rounds of answers from before

    def _recall(self, utterances: Sequence[Utterance]) -> None:
        kept = [each.id for each in reversed(utterances) if each.is_kept]
        if kept:
            self.run_worker(partial(self._find, kept), thread=True, exit_on_error=False, group="rounds")

    def _find(self, ids: Sequence[int]) -> None:
        """Reads the rounds of these messages. Runs in a thread."""
        for message_id in ids:
            if rounds := self._rounds(message_id):
                self.call_later(self._found, message_id, rounds)

    def _found(self, message_id: int, rounds: Sequence[Step]) -> None:
        answer = self._shown.get(message_id)
        if isinstance(answer, Answer) and not answer.rounds:
            answer.recall(rounds)
