"""Work that may never end, such as a read from a dead disk, in a thread that does not keep the program from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


async def in_daemon(work: Callable[[], Result]) -> Result:
    """The work's result. When waiting is cancelled, the thread is left alone."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def run() -> None:
        try:
            outcome: Callable[[], object] = partial(done.set_result, work())
        except Exception as fault:
            outcome = partial(done.set_exception, fault)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(lambda: done.done() or outcome())

    Thread(target=run, name="files", daemon=True).start()
    return await done
