"""An answer as it stands in the transcript, and as it grows. The door where its text is cleaned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from localspec.core.events import Stats, Step, Text
from localspec.core.sanitize import clean, one_line
from localspec.history.provenance import edited_steps
from localspec.tui.chat.explained import UNDER_AN_ANSWER
from localspec.tui.markdown.layout import Pile
from localspec.tui.markdown.passages import Passages
from localspec.tui.panels.stats_line import summary
from localspec.tui.transcript.ribbon import Ribbon
from localspec.tui.transcript.speaker import Speaker
from localspec.tui.transcript.token_view import TokenView, View

if TYPE_CHECKING:
    from localspec.tui.transcript.body import Body

EMPTY = "(empty answer)\n"


class Answer(Pile, Vertical):
    """An answer. `text` is as written, all of it or the beginning; what is shown of it is clean.

    `rounds` wrote it, after what is `by_user`. An answer whose rounds are not known stays Markdown whatever the view.
    """

    view: reactive[View] = reactive("markdown", init=False)

    def __init__(
        self,
        speaker: str,
        text: str = "",
        *,
        rounds: list[Step] | None = None,
        version: tuple[int, int] = (1, 1),
        by_user: str = "",
    ) -> None:
        super().__init__()
        self.text = text
        self.rounds = [] if rounds is None else rounds
        self.ending = ("", "")
        self.passages = Passages(text)
        self.speaker = Speaker(one_line(speaker), version)
        self._body = body(self.passages)
        self._edited = edited_steps(by_user)
        self._tokens, self._ribbon = TokenView(self.rounds, self._edited), Ribbon(self.rounds)
        self._tokens.display = False
        self._figures = Static(markup=False, classes="figures")
        self._figures.tooltip = Content(UNDER_AN_ANSWER)

    def compose(self) -> ComposeResult:
        yield self.speaker
        yield self._body
        yield self._tokens
        yield self._ribbon
        yield self._figures

    def on_mount(self) -> None:
        self.show_view()

    def recall(self, rounds: Iterable[Step]) -> None:
        """The rounds that wrote it, found later than its text."""
        self.rounds.extend(rounds)
        self.show_view()
        self._ribbon.follow()

    def add(self, step: Step | Text) -> None:
        self.text += step.text
        if isinstance(step, Text):
            self.passages.add(step.text)
            return
        self.rounds.append(step)
        for token in step.tokens:
            self.passages.add(token.text, num_tokens=1)

    def watch_view(self) -> None:
        self.show_view()

    def toggle_view(self) -> None:
        """Its tokens instead of its text, or the other way round."""
        self.view = "tokens" if self.view == "markdown" else "markdown"

    def on_speaker_switched(self, message: Speaker.Switched) -> None:
        message.stop()
        self.toggle_view()

    def show_view(self) -> None:
        """Markdown or tokens in sight; tokens once there are some."""
        by_token = self.view != "markdown" and self.has_tokens
        self._tokens.view = self.view
        self._tokens.display, self._body.display = by_token, not by_token
        self._tokens.follow()
        self.speaker.offer(self.view if self.has_tokens else None)

    @property
    def has_tokens(self) -> bool:
        """Whether it is known who wrote all of it: of an edited answer that went on, not before its rounds come."""
        return bool(self.rounds) or (bool(self._edited) and self._edited[0].text == self.text)

    async def flush(self) -> None:
        """Show what was added; the rounds' own line is no text and follows when the rounds arrive."""
        self.show_view()
        await self._body.follow()

    def follow_rounds(self) -> None:
        self._ribbon.follow()

    async def finish(self, stats: Stats, band: float | None = None) -> None:
        """`band` is the speed-up's."""
        await self.end()
        self.close(summary(stats, band), "-stopped" if stats.finish_reason == "cancelled" else "-done")

    async def fail(self, sentence: str) -> None:
        """Ends a failed answer: its text stays, and the reason is shown below it."""
        await self.end()
        self.close(clean(sentence), "-failed")

    async def resume(self) -> None:
        """Continues an answer; the paragraph it was cut in goes on."""
        self.passages, before = Passages(), self._body
        self.passages.add(self.text)
        self._body = body(self.passages)
        await self.mount(self._body, after=before)
        await before.remove()
        await self._body.follow()
        self.show_view()
        self._figures.remove_class("-ended", "-stopped", "-failed", "-done")

    def close(self, line: str, how: str) -> None:
        """Sets the line below the answer. The class is the line's own: on the whole answer it would style every
        block again."""
        self.ending = (line, how)
        is_empty = how == "-done" and not clean(self.text).strip()
        self._figures.update(Content.assemble((EMPTY, "dim"), line) if is_empty else line)
        self._figures.add_class("-ended", how)

    async def end(self) -> None:
        self.passages.end()
        await self.flush()
        self.follow_rounds()


def body(passages: Passages) -> Body:
    """Imported with the first answer: all of Markdown comes with it, which an empty chat does without."""
    from localspec.tui.transcript.body import Body

    return Body(passages)
