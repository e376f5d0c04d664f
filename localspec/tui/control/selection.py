"""The message that is pointed at, on which the letters act.

Knows the transcript, and nothing of what may be done to the message.
"""

from __future__ import annotations

from localspec.tui.chat.conversation import Utterance
from localspec.tui.control.parts import ChatParts


class Selection:
    """`cursor` is the message's id; None while there is none."""

    _cursor: int | None = None

    def __init__(self, parts: ChatParts) -> None:
        self.screen, self.status = parts.screen, parts.state.status
        self.conversation, self.transcript = parts.conversation, parts.transcript

    @property
    def cursor(self) -> int | None:
        return self._cursor

    @cursor.setter
    def cursor(self, message_id: int | None) -> None:
        if message_id != self._cursor:
            self._cursor = message_id
            self.screen.refresh_bindings()
            self.screen.call_later(self.point)

    @property
    def at(self) -> Utterance | None:
        return self.conversation.tree.nodes.get(self.cursor or 0)

    async def point(self) -> None:
        await self.transcript.point(self.at)

    def leave(self) -> None:
        self.cursor = None
        self.status.end_hint()
