"""Decides when to draw next: as often as the eye sees, and less often where drawing takes more than its share of a
processor, which the model needs too. Knows no screen. What each rule saves is in
docs/textual.md.
"""

from __future__ import annotations

from time import monotonic, thread_time

FRAME_SECONDS = 0.05  # the eye sees no more, and drawing per token would make the screen the bottleneck
SLOWEST_FRAME = 0.5
SHARE = 0.03  # of a core on which the model computes too, for all that the screen's thread does: so much speed is lost
SPARE_SHARE = 0.2  # of one on which it does not
CODE_SECONDS = 0.25  # inside a code block, which is coloured again with every line
FIGURES_SECONDS = 1.0  # figures that change faster cannot be read


class Pace:
    """The frames of an answer. What they take of the processor's time is a debt, which is waited off, but never longer
    than the slowest frame, whatever else the thread is doing.
    """

    def __init__(self, frame_seconds: float = FRAME_SECONDS) -> None:
        self._frame, self.share = frame_seconds, SHARE
        self.start()

    def start(self) -> None:
        """Starts anew for another answer: its first words are drawn at once."""
        self._debt = 0.0  # in seconds of the processor
        self._counted = monotonic(), thread_time()  # until when
        self._drawn = self._figured = 0.0  # when text and figures were drawn last
        self._due = 0.0  # when text is drawn next

    def wait(self) -> float:
        """Seconds to the next frame. What one took is known after it: then, and not later, the next one is fixed."""
        now = monotonic()
        if self._due <= self._drawn:
            self._due = now + self._owed()
        return max(self._frame, self._due - now)

    def draws(self, *, in_code: bool) -> bool:
        """Whether this frame draws text."""
        now = monotonic()
        if self._due - now > self._frame or (in_code and now - self._drawn < CODE_SECONDS):
            return False
        self._drawn = self._due = now
        return True

    def draws_figures(self) -> bool:
        """Whether this frame draws how fast it goes."""
        now = monotonic()
        if now - self._figured < FIGURES_SECONDS:
            return False
        self._figured = now
        return True

    def _owed(self) -> float:
        """Seconds until the debt is gone."""
        (before, spent_before), (now, spent) = self._counted, (monotonic(), thread_time())
        debt = self._debt + spent - spent_before - self.share * (now - before)
        self._debt = min(max(0.0, debt), self.share * SLOWEST_FRAME)
        self._counted = now, spent
        return self._debt / self.share
