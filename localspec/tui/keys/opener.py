"""A mixin for screens: the key that opened one closes it again, whichever key that is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar  # Any: the result of a screen

from textual import events

from localspec.tui.keys.key_names import keys_of

if TYPE_CHECKING:
    from textual.screen import Screen

    Mixin = Screen[Any]
else:
    Mixin = object


class ClosedByOpener(Mixin):
    """`OPENER`: the id of the key."""

    OPENER: ClassVar[str]

    async def on_key(self, event: events.Key) -> None:
        if event.key in keys_of(self, self.OPENER):
            event.stop()
            await self.run_action("dismiss")
