"""Reads a request's body within bounds of size and time. Knows nothing about what is in it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from localspec.serve.faults import RequestRefused

MOST_BYTES = 8 << 20
MOST_DROPPED = 64 << 20  # read and dropped, so that the client hears why; one that sends more is cut off
BODY_SECONDS = 60.0
MOST_READ = 32  # at a time: each may take its bytes of memory


@dataclass(frozen=True, slots=True)
class Bounds:
    most_bytes: int = MOST_BYTES
    seconds: float = BODY_SECONDS
    most_read: int = MOST_READ


BOUNDS = Bounds()


async def read_body(request: Request, bounds: Bounds) -> bytes:
    """The body; RequestRefused where it is too long or too slow."""
    too_large = RequestRefused(
        413, f"The body is larger than {bounds.most_bytes:,} bytes.", code="too_large", headers={"connection": "close"}
    )
    announced = request.headers.get("content-length", "0")
    if int(announced) > MOST_DROPPED or (int(announced) > bounds.most_bytes and "expect" in request.headers):
        raise too_large
    try:
        async with asyncio.timeout(bounds.seconds):
            content = await read_up_to(request, bounds.most_bytes)
    except TimeoutError:
        headers = {"connection": "close"}
        raise RequestRefused(408, "The body did not arrive in time.", code="too_slow", headers=headers) from None
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
