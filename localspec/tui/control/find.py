"""Finding in the open chat: words are marked wherever they are in sight, and a hit is brought there. Knows no keys."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from textual.geometry import Region
from textual.widget import Widget

from localspec.core.sanitize import clean
from localspec.tui.chat.conversation import Utterance
from localspec.tui.chat.word_matches import SearchedMessage, WordHit, folded, pattern, spans
from localspec.tui.control.parts import ChatParts
from localspec.tui.markdown.marks import Marks
from localspec.tui.markdown.painter import Painted
from localspec.tui.panels.find import FindBar
from localspec.tui.panels.pills import Chips, name
from localspec.tui.transcript.answer import Answer
from localspec.tui.transcript.question import Question
from localspec.tui.transcript.texts import reads, texts

TRIES = 6  # layouts until what comes into sight has its position
ABOVE = 3  # of the transcript's height, a third is above the hit


class WordSearch:
    """`marks` are drawn over the chat while words are looked for."""

    marks: Marks | None = None
    words = ""

    def __init__(self, parts: ChatParts) -> None:
        self.screen, self.state = parts.screen, parts.state
        self.conversation, self.transcript = parts.conversation, parts.transcript
        self.bar = FindBar(self.sources)

    def sources(self) -> list[SearchedMessage]:
        """The branch's texts with their files: a long paste belongs to what the user wrote."""
        return [
            SearchedMessage(
                utterance.text,
                utterance.role == "assistant",
                tuple((name(one), one.text or "") for one in utterance.attachments),
            )
            for utterance in self.conversation.branch
        ]

    # --- marks

    def seek(self, words: str) -> None:
        """Marks these words, or none."""
        if words != self.words:
            self.words, sought = words, pattern(words)
            self.draw(None if sought is None else self.made(sought))

    def made(self, sought: re.Pattern[str]) -> Marks:
        style = partial(self.transcript.get_component_rich_style, partial=True)
        return Marks(partial(spans, sought=sought), reads, style("found--hit"), style("found--chosen"))

    def draw(self, marks: Marks | None) -> None:
        assert isinstance(self.screen, Painted)
        self.marks = marks
        self.screen.mark(marks)

    def leave(self) -> None:
        self.close()
        self.state.prompt.focus()

    def close(self) -> None:
        """Ends the search, with all its marks."""
        self.bar.close()
        self.seek("")
        self.unmark_message()

    def unmark_message(self) -> None:
        self.transcript.query(".-found").remove_class("-found")

    # --- a hit

    async def open_at(self, utterance: Utterance, query: str) -> None:
        """Shows the first hit of a search in this message, and goes on finding from there."""
        if utterance in self.conversation.branch:
            words = sought_in(utterance, query)
            await self.bar.open_at(words, self.conversation.branch.index(utterance))
            if self.bar.index < 0:
                await self.reveal(utterance)

    async def show(self, hit: WordHit) -> None:
        """Bring the hit into sight; of one in a file its message."""
        branch = self.conversation.branch
        if hit.message < len(branch):
            await self.reveal(branch[hit.message], None if hit.file else hit.number)

    def open_file(self, hit: WordHit) -> None:
        """Shows the file with the hit, at the words."""
        sought, branch = pattern(self.words), self.conversation.branch
        if sought is None or hit.message >= len(branch):
            return
        attached = branch[hit.message].attachments
        found = [each for each, one in enumerate(attached) if sought.search(folded(clean(one.text or "")))]
        if hit.number < len(found):
            self.screen.post_message(Chips.Opened(attached, found[hit.number]))

    async def reveal(self, utterance: Utterance, number: int | None = None) -> None:
        """Bring the message into sight, and mark it; or the hit with this number in it."""
        message = await self.transcript.reach(utterance)
        self.unmark_message()
        if message is None:
            return
        message.add_class("-found")
        self.transcript.release_anchor()
        chosen = await self.text_with(message, number) if number is not None else None
        if self.marks is not None:
            self.draw(replace(self.marks, chosen=chosen))
        self.screen.call_after_refresh(self.bring, message, TRIES)

    async def text_with(self, message: Question | Answer, number: int) -> tuple[Widget, int] | None:
        """The widget with the hit of this number in the message, and the hit's number there. Opens a thought."""
        if self.marks is None:
            return None
        last: tuple[Widget, int] | None = None
        for widget, thought, text in texts(message):
            hits = len(self.marks.find(text))
            if number < hits and thought is not None:
                thought.is_open = True
                await thought.follow()
                return await self.text_with(message, number)
            if hits:
                last = widget, min(number, hits - 1)
            if number < hits:
                break
            number -= hits
        return last

    def bring(self, message: Widget, tries: int) -> None:
        """Scrolls to the chosen hit, or to the message. What was out of sight is laid out on the way there, so it takes
        some steps."""
        transcript, chosen = self.transcript, self.marks.chosen if self.marks is not None else None
        if not transcript.is_attached or not message.is_attached:
            return
        height = transcript.content_region.height
        row = self.row(message, *chosen) if chosen is not None else None
        if chosen is None:
            transcript.scroll_to(y=message.virtual_region.y, animate=False, immediate=True)
        elif row is None:
            near = next((one for one in chosen[0].ancestors if isinstance(one, Widget) and one.region), message)
            transcript.scroll_to_widget(near, top=True, animate=False, immediate=True)
        elif not 0 <= row - transcript.scroll_y < height:
            transcript.scroll_to(y=row - height // ABOVE, animate=False, immediate=True)
        if tries:
            self.screen.call_after_refresh(self.bring, message, tries - 1)

    def row(self, message: Widget, widget: Widget, number: int) -> int | None:
        """The row of the transcript on which the hit begins, however it is scrolled; None before it is laid out."""
        region = widget.region
        if self.marks is None or not widget.is_attached or not region:
            return None
        hits = self.marks.hits(widget.render_lines(Region(0, 0, region.width, region.height)))
        line = hits[min(number, len(hits) - 1)][0][0] if hits else 0
        return message.virtual_region.y + region.y - message.region.y + line


def sought_in(utterance: Utterance, query: str) -> str:
    """What of a query for all chats is looked for in this message: all of it if it stands there as it is, else the
    longest of its words that does."""
    text = "\n".join([clean(utterance.text), *(one.text or "" for one in utterance.attachments)])
    words = query.replace('"', " ").split()
    candidates = [" ".join(words), *sorted(words, key=len, reverse=True)]
    short = folded(text)
    return next((one for one in candidates if (sought := pattern(one)) and sought.search(short)), candidates[0])
