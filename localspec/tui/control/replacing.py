"""Another chat, another model, or none: what there was comes to its end first, and nothing of it is lost."""

from __future__ import annotations

import asyncio

from localspec.history import OpenChat
from localspec.tui.chat.past import remembered, title
from localspec.tui.control.obeying import ObeyScreen
from localspec.tui.control.tuning import Choice
from localspec.tui.keys.key_names import with_keys

STOP_FIRST = "Stop the answer first: press {stop}."
UNLOADED = "unloaded: the next question loads it again"


class ReplaceScreen(ObeyScreen):
    """An answer that is being written is stopped and saved; a question that waits goes back to the prompt."""

    # --- the chat

    async def show_chat(self) -> None:
        """The chat that is gone on with, or how to begin one."""
        await self.transcript.begin(title(self.past) if self.past else "", self.conversation.branch)
        self.transcript.anchor()

    async def begin_chat(self) -> None:
        await self.take_back()
        await self.break_off()
        self.scribe.leave()
        self.conversation.forget()
        await self.begin_with(None)

    async def open_chat(self, past: OpenChat) -> None:
        """Go on in a chat that was kept; what waits to be asked in this one goes back to the prompt."""
        await self.take_back()
        await self.break_off()
        self.scribe.open(past.chat)
        self.conversation.recall(past.chat, remembered(past))
        await self.begin_with(past)

    async def begin_with(self, past: OpenChat | None) -> None:
        """The screen as it is at the start, whatever was said in another chat."""
        self.past, self.rounds = past, ()
        self.title = past.chat.title if past else ""
        self.name_terminal()
        self.show_figures()
        self.locate()
        await self.show_chat()

    # --- the model

    async def change_model(self, choice: Choice) -> None:
        """Load what was chosen; an answer that is being written ends here. The conversation goes on."""
        await self.break_off()
        self.tuning.take(choice)
        self.wished = None
        self.scribe.change(model_key=choice.name, preset=self.tuning.preset)
        self.header.clear()
        self.load()

    async def unload(self) -> None:
        """Free what the engine holds. Nothing is lost: what was said is told to the next one."""
        if self.feed is None or self.phase == "gone":
            self.status.give_hint("Nothing is loaded.")
        elif self.phase not in {"idle", "loading"}:
            self.refuse(with_keys(self, STOP_FIRST) if self.answering else f"Not now: {self.status.state}")
        else:
            feed, self.feed = self.feed, None
            await self.take_back()
            self.enter("unloaded", UNLOADED)
            await asyncio.to_thread(feed.engine.close)
