"""Tells a dropped connection, which is worth another try, from an answer that will be the same. By names of classes:
the library's client is httpx in 1.x and httpx2 in 2.x."""

from __future__ import annotations

UNREACHED = {"ConnectError", "ConnectTimeout", "PoolTimeout"}
PASSING = {408, 425, 429, 500, 502, 503, 504}
UNANSWERED = {"TimeoutException"}
NO_ANSWER = "the hub does not answer"
CUT_SHORT = "Consistency check failed"  # http_get's own words for a body of another length


class LocationExpired(Exception):
    """A signed location is refused: a new one has to be asked for."""


def why_cut(fault: BaseException | None) -> str:
    """Why another try may succeed, in words; "" where it will not."""
    if fault is None:
        return ""
    names = {kind.__name__ for kind in type(fault).__mro__}
    if names & UNREACHED:
        return "the hub cannot be reached"
    if names & UNANSWERED:
        return NO_ANSWER
    if names & {"TransportError"} or (isinstance(fault, OSError) and CUT_SHORT in str(fault)):
        return "the connection was lost"
    if isinstance(fault, LocationExpired):
        return "the address of the file has expired"
    if (status := status_of(fault)) in PASSING:
        return f"the hub answered {status}"
    return why_cut(fault.__cause__)


def status_of(fault: BaseException) -> int:
    """The status of the answer that an error is about; 0 without one."""
    return int(getattr(getattr(fault, "response", None), "status_code", 0))
