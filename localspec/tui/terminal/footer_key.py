"""A key of the footer that can change what it shows. Textual's own widget for one is in a private module, and is made
anew for every change."""

from __future__ import annotations

from textual.widgets._footer import FooterKey


class ChangingKey(FooterKey):
    """A key of the footer; `set_off` dims it, and a click then rings the bell."""

    def set_off(self, is_off: bool) -> None:
        self._disabled = is_off
        self.set_class(is_off, "-disabled")
