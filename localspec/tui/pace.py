"""When to draw next: as often as the eye sees, and less often when drawing is late. Knows no screen."""

from __future__ import annotations

from time import monotonic

FRAME_SECONDS = 0.05  # the eye sees no more, and drawing per token would make the screen the bottleneck
CODE_SECONDS = 0.25  # inside a code block, which is coloured again with every line
SLOWEST_FRAME = 0.4
PATIENCE = 3  # a frame that came late makes the next one wait so many times longer: the model needs the processor too


class Pace:
    """The frames of one burst of events."""

    def __init__(self) -> None:
        self._due = 0.0  # when the next frame was meant to be
        self._drawn = 0.0  # when text was drawn last

    def start(self) -> None:
        self._due = monotonic()

    def next_frame(self) -> float:
        """Seconds to the next look."""
        late = max(0.0, monotonic() - self._due)
        wait = min(FRAME_SECONDS + PATIENCE * late, SLOWEST_FRAME)
        self._due = monotonic() + wait
        return wait

    def draws(self, *, in_code: bool) -> bool:
        """Whether this frame draws text."""
        now = monotonic()
        if in_code and now - self._drawn < CODE_SECONDS:
            return False
        self._drawn = now
        return True
