"""What stands in the transcript: a question, an answer that grows, a note. The door where their text is cleaned."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.reactive import reactive
from textual.widgets import Static

from localspec.events import Stats, Step
from localspec.history import Attachment
from localspec.sanitize import clean, one_line
from localspec.tui.body import Body
from localspec.tui.passages import Passages
from localspec.tui.pills import pills
from localspec.tui.ribbon import Ribbon
from localspec.tui.stats_line import summary
from localspec.tui.tall import Tall
from localspec.tui.token_view import TokenView, View


class Question(Vertical):
    """What the user said, exactly. Queued while the model cannot be asked yet."""

    def __init__(self, text: str, *, queued: bool, attachments: tuple[Attachment, ...] = ()) -> None:
        super().__init__(classes="-queued" if queued else "")
        self.text, self.attachments = text, attachments
        self._label = Static("You · queued" if queued else "You", markup=False, classes="speaker")

    def compose(self) -> ComposeResult:
        yield self._label
        if self.attachments:
            yield Static(pills(self.attachments), markup=False, classes="pills")
        if self.text:
            yield Static(clean(self.text), markup=False, classes="body")

    def asked(self) -> None:
        """It is no longer waiting."""
        self._label.update("You")
        self.remove_class("-queued")


class Answer(Tall, Vertical):
    """What the model says. `text` is as written, all of it or to begin with; what is shown of it is clean.

    `rounds` wrote it. An answer whose rounds are not known stays Markdown whatever the view.
    """

    view: reactive[View] = reactive("markdown", init=False)

    def __init__(self, speaker: str, text: str = "") -> None:
        super().__init__()
        self.text = text
        self.rounds: list[Step] = []
        self.passages = Passages(text)
        self._speaker = Static(one_line(speaker), markup=False, classes="speaker")
        self._body = Body(self.passages)
        self._tokens, self._ribbon = TokenView(self.rounds), Ribbon(self.rounds)
        self._tokens.display = False
        self._figures = Static(markup=False, classes="figures")

    def compose(self) -> ComposeResult:
        yield self._speaker
        yield self._body
        yield self._tokens
        yield self._ribbon
        yield self._figures

    def add(self, step: Step) -> None:
        self.rounds.append(step)
        self.text += step.text
        for token in step.tokens:
            self.passages.add(token.text, num_tokens=1)

    def watch_view(self) -> None:
        self.show_view()

    def show_view(self) -> None:
        """Markdown or tokens in sight; tokens once there are some."""
        by_token = self.view != "markdown" and bool(self.rounds)
        self._tokens.view = self.view
        self._tokens.display, self._body.display = by_token, not by_token
        self._tokens.follow()

    async def flush(self) -> None:
        """Show what was added."""
        self.show_view()
        self._ribbon.follow()
        await self._body.follow()

    async def finish(self, stats: Stats) -> None:
        await self.end()
        self.close(summary(stats), "-stopped" if stats.finish_reason == "cancelled" else "-done")

    async def fail(self, sentence: str) -> None:
        """What was written stays; why it ended stands beneath."""
        await self.end()
        self.close(clean(sentence), "-failed")

    def close(self, line: str, how: str) -> None:
        """What stands beneath. The class is its own: one on the whole answer would style every block of it again."""
        self._figures.update(line)
        self._figures.add_class("-ended", how)

    async def end(self) -> None:
        self.passages.end()
        await self.flush()


class Note(Static):
    """A line from the program itself, not from anyone in the conversation."""

    def __init__(self, text: str, *, level: str = "info") -> None:
        super().__init__(clean(text), markup=False, classes=f"-{level}")
