"""A call a while from now, in a widget's own queue. Knows no widget.

Not Textual's `set_timer`: when the process sleeps between that timer's two looks at the clock (a laptop's lid is shut,
Ctrl+Z is pressed), it takes its only tick for missed and calls nothing (Timer._run, `skip`).
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Awaitable, Callable

from textual.message_pump import MessagePump


def once(
    pump: MessagePump, seconds: float, call: Callable[[], object] | Callable[[], Awaitable[object]]
) -> TimerHandle:
    """`cancel` it while it is not yet due; a pump that is closed by then hears nothing."""
    return get_running_loop().call_later(seconds, pump.call_next, call)
