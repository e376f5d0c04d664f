"""What is let go between two answers, since a full collection takes longer than a frame may. Knows no widget."""

from __future__ import annotations

import gc

from textual._styles_cache import StylesCache


def collect() -> None:
    """Textual remembers backgrounds by the widget they are of, and so keeps the last thousand that were drawn, with
    every line: messages that are far from the window, chats that were left. A collection walks through all of it."""
    StylesCache.get_inner_outer.cache_clear()
    gc.collect()
