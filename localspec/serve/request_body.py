"""Reads requests' bodies within bounds of size, time and number. Knows nothing about what is in them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from localspec.serve.faults import RequestRefused, too_many

MOST_BYTES = 8 << 20
MOST_DROPPED = 64 << 20  # read and dropped, so that the client hears why; one that sends more is cut off
BODY_SECONDS = 60.0
MOST_READ = 32  # at a time: each may take its bytes of memory
SLOW_SECONDS = 2.0  # after which a body gives way to another, where there are too many


@dataclass(frozen=True, slots=True)
class Bounds:
    most_bytes: int = MOST_BYTES
    seconds: float = BODY_SECONDS
    most_read: int = MOST_READ
    slow: float = SLOW_SECONDS


BOUNDS = Bounds()
CLOSES = {"connection": "close"}
TOO_SLOW = RequestRefused(408, "The body did not arrive in time.", code="too_slow", headers=CLOSES)


class Bodies:
    """The bodies that are read. Where they are too many, the slowest gives way: silent clients keep none out."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self.bounds = bounds
        self._limits: list[asyncio.Timeout] = []  # of those that are read, the oldest first

    @property
    def reading(self) -> int:
        return len(self._limits)

    async def read(self, request: Request) -> bytes:
        """The body; RequestRefused where it is too long or too slow, or where too many are read."""
        self._drop_oldest()
        try:
            async with asyncio.timeout(self.bounds.seconds) as limit:
                self._limits.append(limit)
                return await read_body(request, self.bounds.most_bytes)
        except TimeoutError:
            raise TOO_SLOW from None
        finally:
            self._limits = [one for one in self._limits if one is not limit]

    def _drop_oldest(self) -> None:
        if self.reading < self.bounds.most_read:
            return
        oldest, now = self._limits[0], asyncio.get_running_loop().time()
        if (oldest.when() or now) - self.bounds.seconds + self.bounds.slow > now:
            raise too_many(self.reading)
        oldest.reschedule(now)


async def read_body(request: Request, most: int) -> bytes:
    """The body; RequestRefused where it is too long."""
    too_large = RequestRefused(413, f"The body is larger than {most:,} bytes.", code="too_large", headers=CLOSES)
    announced = request.headers.get("content-length", "0")
    if int(announced) > MOST_DROPPED or (int(announced) > most and "expect" in request.headers):
        raise too_large
    try:
        content = await read_up_to(request, most)
    except ClientDisconnect:
        raise RequestRefused(400, "The body ended early.", code="cut") from None
    if content is None:
        raise too_large
    return content


async def read_up_to(request: Request, most: int) -> bytes | None:
    """The body; None where it is longer."""
    content, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size <= most:
            content += part
        elif size > MOST_DROPPED:
            break
        else:
            content.clear()
    return bytes(content) if size <= most else None
